"""Workflows: deterministic code only; they import contracts and approvals, and name activities by constant."""
