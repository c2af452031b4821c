"""Compares an external call with a hand-written workflow for the same work."""
