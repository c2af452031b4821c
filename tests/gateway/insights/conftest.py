from store_fixtures import postgres_server, postgres_url, sqlite_url, store, store_url

__all__ = ["postgres_server", "postgres_url", "sqlite_url", "store", "store_url"]
