"""Accounts payable: an agent that prepares payments, and people who release them."""
