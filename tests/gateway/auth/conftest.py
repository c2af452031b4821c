from provider_login import provider

__all__ = ["provider"]
