"""What goes into a row and comes out of it: free of secrets where that is asked for, sealed where that is.

Whatever Python wakes passes ``admit`` (``guarded`` sees to it, for every store that a program of ours opens), whatever
a run leaves behind passes ``keep``. Where neither is asked for there is nothing in the way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final, cast

from store import archive
from store.attachments import LOG, Item
from store.contract import Archived, Store, Tx, Woken
from store.crypto_settings import CryptoSettings
from store.events import Wake
from store.hygiene import Hygiene, HygieneSettings
from store.job import Job
from store.sealing import FIELDS, Place, Sealing, is_sealed
from store.settings import Section, load_all

#: Sections of the settings that it is made of, to be validated with the others.
SECTIONS: Final[tuple[type[Section], ...]] = (CryptoSettings, HygieneSettings)


class Boundary:
    """The rules of one process."""

    def __init__(self, sealing: Sealing | None = None, hygiene: Hygiene | None = None) -> None:
        self.sealing = sealing or Sealing()
        self._hygiene = hygiene or Hygiene()

    @property
    def on(self) -> bool:
        """Whether anything is to be done to what is written."""
        return self.sealing.on or self._hygiene.on

    def admit(self, wake: Wake) -> Wake:
        """``wake`` as it may be written. Raises SecretFound."""
        payload = wake.payload
        if self._hygiene.on:
            names = {"key": wake.key, "owner": wake.owner, "request id": wake.request_id, "trace": wake.trace}
            for what, name in names.items():
                self._hygiene.name(name, what)
            payload = self._hygiene.json(payload, "payload", apart_from=tuple(names.values()))
        if self.sealing.wants(wake.domain):
            payload = self.sealing.seal(payload, place_of(wake, "payload"))
        return wake if payload is wake.payload else wake._replace(payload=payload)

    def keep(self, job: Job, field: str, text: str) -> str:
        """A result or checkpoint of ``job`` as it may be written. Raises SecretFound."""
        if self._hygiene.on:
            text = self._hygiene.json(text, field)
        return self.sealing.seal(text, place_of(job, field)) if self.sealing.wants(job.domain) else text

    def message(self, text: str | None) -> str | None:
        """A progress message as it may be written. Raises SecretFound."""
        return None if text is None else self.line(text, "the progress message")

    def line(self, text: str, what: str) -> str:
        """A line of text as it may be written. Raises SecretFound, which names ``what``."""
        return self._hygiene.line(text, what) if self._hygiene.on else text

    def attached(self, item: Item) -> Item:
        """What is attached as it may be written. Raises SecretFound."""
        return item if item.kind != LOG else item._replace(data=self.line(item.data.decode(), "a log line").encode())

    def read(self, job: Job, field: str) -> str | None:
        """The JSON text of a column, opened. Raises PayloadSealed."""
        text: str | None = getattr(job, field)
        return text if text is None or not is_sealed(text) else self.sealing.open(text, place_of(job, field))

    def opened(self, job: Job) -> Job:
        """``job`` with all of its columns open. Raises PayloadSealed."""
        opened: dict[str, Any] = {field: self.read(job, field) for field in FIELDS}
        return job._replace(**opened)

    def opened_archive(self, kept: Archived) -> Archived:
        """``kept`` with all of its columns open. Raises PayloadSealed."""
        closed = {where: text for where, text in archive.texts(kept).items() if is_sealed(text)}
        opened = {where: self.sealing.open(text, place_of(kept, archive.field_of(where)))
                  for where, text in closed.items()}  # fmt: skip
        return archive.with_texts(kept, opened) if opened else kept


def load_boundary() -> Boundary:
    """As the environment says. Raises SettingsInvalid."""
    crypto, hygiene = load_all(*SECTIONS)
    assert isinstance(crypto, CryptoSettings)
    assert isinstance(hygiene, HygieneSettings)
    return Boundary(crypto.sealing, hygiene.hygiene)


def guarded(store: Store, boundary: Boundary) -> Store:
    """``store``, whose wakes pass ``boundary``: itself where there is nothing to do."""
    return cast(Store, _GuardedStore(store, boundary)) if boundary.on else store


class _Guarded:
    """All that ``real`` can do."""

    def __init__(self, real: Any, boundary: Boundary) -> None:
        self._real = real
        self._boundary = boundary

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def wake(self, wakes: Sequence[Wake], *, now: datetime | None = None, **options: Any) -> list[Woken]:
        """As ``Store.wake`` and ``Tx.wake``."""
        woken: list[Woken] = self._real.wake([self._boundary.admit(wake) for wake in wakes], now=now, **options)
        return woken


class _GuardedStore(_Guarded):
    @contextmanager
    def transaction(self) -> Iterator[Tx]:
        """As ``Store.transaction``."""
        with self._real.transaction() as tx:
            yield cast(Tx, _Guarded(tx, self._boundary))

    def attach(self, job_id: str, items: Sequence[Item], **options: Any) -> list[int] | None:
        """As ``Store.attach``: lines are looked at, files are not."""
        clean = [self._boundary.attached(item) for item in items]
        given: list[int] | None = self._real.attach(job_id, clean, **options)
        return given

    def adopt(self, connection: Any) -> Tx:
        """As ``Store.adopt``."""
        ours = isinstance(connection, _Guarded)
        return cast(Tx, connection if ours else _Guarded(self._real.adopt(connection), self._boundary))


def place_of(of: Wake | Job | Archived, field: str) -> Place:
    """Where a column of a row stands."""
    return Place(of.domain, of.queue, of.job_type, of.id, field)
