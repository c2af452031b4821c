"""Deterministic code only; imports contracts and approvals, names activities by constant."""
