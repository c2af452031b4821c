"""Approval policies: CEL expressions that run without approval only if two engines agree."""
