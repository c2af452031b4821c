"""A provider at which people sign in."""

from provider_login import provider

__all__ = ["provider"]
