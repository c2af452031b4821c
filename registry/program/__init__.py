"""Declarations in Python: collected by `signoff.App` and composed with a manifest."""
