"""Compares Signoff with a hand-written workflow, in one run on one server: `python -m tools.bench`."""
