"""The identity provider of sign-in tests."""

from provider_login import provider

__all__ = ["provider"]
