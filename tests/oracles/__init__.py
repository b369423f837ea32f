"""Plain, obviously right versions of what the package computes cleverly."""
