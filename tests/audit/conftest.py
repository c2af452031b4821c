"""One suite for every store: tests with `store_url` or `store` run on SQLite and on a real PostgreSQL server."""

from store_fixtures import postgres_server, postgres_url, sqlite_url, store, store_url, threads_end

__all__ = ["postgres_server", "postgres_url", "sqlite_url", "store", "store_url", "threads_end"]
