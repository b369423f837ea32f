"""Training: the trainer, resuming, and the logs of a run."""
