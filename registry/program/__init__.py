"""Declarations in Python: what `signoff.App` collects, and how it composes them with a manifest."""
