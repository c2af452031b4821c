"""Measures an installation of the production profile with many waiting turns, as separate processes."""
