"""Declares tools, their actors and their gates, in code or in a manifest. Pure."""
