"""Shared records, ids, limits and errors. Imports nothing else of the package."""
