"""Signoff beside a hand-written workflow, measured in one run on one server: `python -m tools.bench`."""
