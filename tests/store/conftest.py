from store_fixtures import made_stores, postgres_server, postgres_url, sqlite_url, store, store_url, threads_end

__all__ = ["made_stores", "postgres_server", "postgres_url", "sqlite_url", "store", "store_url", "threads_end"]
