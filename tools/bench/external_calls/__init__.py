"""Measures what an external call takes beside a hand-written workflow that does the same work."""
