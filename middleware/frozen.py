"""A store whose clock stands still until it is moved: the testing kit's, and nobody else's.

It is a real store with every ``now`` filled in. Nothing in the settings and nothing in a broker leads here: only
``InlineJobs`` makes one, over a database that no worker uses.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, ClassVar, cast

from store.contract import Store, Tx


class FrozenClock:
    """Stands at ``now``, which whoever made it may move."""

    def __init__(self, now: datetime) -> None:
        self.now = now


def _taking_now(verbs: type) -> frozenset[str]:
    return frozenset(
        name
        for name, verb in vars(verbs).items()
        if inspect.isfunction(verb) and "now" in inspect.signature(verb).parameters
    )


class _Frozen:
    """All that ``real`` can do, at the clock's moment wherever a verb takes one and is given none."""

    _taking: ClassVar[frozenset[str]]

    def __init__(self, real: Any, clock: FrozenClock) -> None:
        self._real = real
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        verb: Callable[..., Any] = getattr(self._real, name)
        if name not in self._taking:
            return verb

        def call(*args: Any, now: datetime | None = None, **options: Any) -> Any:
            return verb(*args, now=now or self._clock.now, **options)

        return call


class _FrozenTx(_Frozen):
    _taking = _taking_now(Tx)


class _FrozenStore(_Frozen):
    _taking = _taking_now(Store)

    @contextmanager
    def transaction(self) -> Iterator[Tx]:
        """As ``Store.transaction``."""
        with self._real.transaction() as tx:
            yield cast(Tx, _FrozenTx(tx, self._clock))

    def adopt(self, connection: Any) -> Tx:
        """As ``Store.adopt``."""
        ours = isinstance(connection, _FrozenTx)
        return cast(Tx, connection if ours else _FrozenTx(self._real.adopt(connection), self._clock))

    def ping(self) -> datetime:
        """The frozen moment, once the database has answered."""
        self._real.ping()
        return self._clock.now


def frozen(store: Store, clock: FrozenClock) -> Store:
    """``store`` at the moment at which ``clock`` stands."""
    return cast(Store, _FrozenStore(store, clock))
