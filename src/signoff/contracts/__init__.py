"""The records, ids, limits and errors that all folders share. Imports nothing else of the package."""
