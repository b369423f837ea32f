"""The files of a data set: atomic files, exact times, item names and item vectors."""
