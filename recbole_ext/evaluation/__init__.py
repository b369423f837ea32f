"""Evaluation: GAUC of labels, rankings without seen items, metrics of each user, and registered metrics."""
