"""Accounts payable: an agent prepares payments, and people release them."""
