"""The words every room speaks: frozen shapes, ids, limits and errors. Imports nothing of ours."""
