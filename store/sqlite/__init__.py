"""The store on SQLite: one file, any number of processes of one machine."""

from store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
