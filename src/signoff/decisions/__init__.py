"""Accepts decisions into the store: the only place that decides which one counts first."""
