"""A real PostgreSQL server, for tests in which the store is slow at one thing only."""

from store_fixtures import postgres_server, postgres_url

__all__ = ["postgres_server", "postgres_url"]
