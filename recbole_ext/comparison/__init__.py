"""Comparison of finished runs on the same test users: differences, intervals and p-values."""
