"""Supplier records: an agent changes the account that a supplier is paid to, and approvers see the difference."""
