"""The option of actors that have one message at most: see ``Broker.enqueue``."""

from __future__ import annotations

from dramatiq.middleware import Middleware


class Singleton(Middleware):
    """Declares ``singleton``."""

    @property
    def actor_options(self) -> set[str]:
        """``singleton=True``: whoever sends it and how often, one message waits."""
        return {"singleton"}
