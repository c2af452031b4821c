"""Takes answers into the store: the one place that decides whose answer counts first."""
