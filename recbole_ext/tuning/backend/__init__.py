"""What a search needs of Ray: the cluster, searchers, schedulers, callback and stored checkpoints."""
