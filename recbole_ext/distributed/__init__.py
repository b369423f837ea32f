"""Several processes train one model: starting them, sharing batches and users between them, and merging results."""
