"""Checkpoints: files that are complete or absent, their content, and the way back to a model."""
