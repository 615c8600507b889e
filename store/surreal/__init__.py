"""The store on SurrealDB: one database of a server, by WebSocket, shared by any number of processes."""

from store.surreal.store import SurrealStore
from store.surreal.transaction import Bundle

__all__ = ["Bundle", "SurrealStore"]
