"""Hyper-parameter search with Ray Tune, on one machine or a cluster. Ray and plotly are imported when a search runs."""
