"""Sends Signoff's cards to pagers."""
