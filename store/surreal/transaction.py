"""Transactions of several calls, over a server that takes each transaction in one request.

The engine that is embedded here knows no transaction that outlives a request, so each call of a transaction is
*rehearsed*: all that came before it and the call itself run in one transaction that ends by throwing its answers, and
nothing is written. The commit runs it all once more and for good. In between nobody waits for anybody: what a
transaction has been told may have changed meanwhile. So every rehearsal and the commit compare, in the same
transaction, what each statement answers with what it had answered (by a hash made in the database); where that differs
nothing is written and StoreUnavailable is raised. Only a wake may answer something else than before: it is wanted
whatever the row has become. What is merely read by ``read`` is not compared either, since a ``swap`` is guarded by
itself.
"""

from __future__ import annotations

import base64
import binascii
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final, NamedTuple

from surrealdb import BlockingWsSurrealConnection
from surrealdb.data.cbor import decode

from store import clock
from store.contract import Archived, Change, Document, Woken
from store.errors import StoreUnavailable, UsageError
from store.events import Wake
from store.job import Job
from store.surreal import archive, documents, finding, swaps, wakes
from store.surreal.connections import LOST
from store.surreal.errors import OURS, Thrown, results
from store.surreal.requests import NOW, Answer, Ask, Step, persistently

_NAMES: Final = re.compile(r"\$(now|[a-z][0-9]+)\b")
_WRITING: Final = re.compile(r"\s*\(?\s*(?:CREATE|INSERT|UPDATE|UPSERT|DELETE|RELATE)\b", re.IGNORECASE)
_READING: Final = re.compile(r"\s*\(?\s*(?:SELECT|RETURN|INFO|SHOW)\b", re.IGNORECASE)

#: Texts and comments, which are passed over, and the word RETURN with what stands before and behind it.
_PASSED: Final = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|`[^`]*`|/\*.*?\*/|(?:--|\#|//)[^\n]*""", re.DOTALL)
_RETURN: Final = re.compile(r"(\S*)\s*\bRETURN\b\s*(\w*)", re.IGNORECASE)
_CLAUSES: Final = frozenset({"NONE", "NULL", "BEFORE", "AFTER", "DIFF", "VALUE"})
_OPENERS: Final = frozenset({"", "THEN", "ELSE"})

_PARAMETER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_TOLD: Final = "told "
_CHANGED: Final = "changed"


class _Part(NamedTuple):
    """One call: a statement that puts its answer into ``$r<place>``."""

    text: str
    values: Mapping[str, Any]
    writes: bool
    told: str | None  # the hash of its answer, where another answer must not be committed


class Transaction:
    """What ``Tx`` of the contract asks for, with a commit of its own. Holds no connection and no lock."""

    def __init__(self, ask: Ask, patience: float, turn: threading.Lock) -> None:
        self._ask = ask
        self._patience = patience
        self._turn = turn
        self._parts: list[_Part] = []
        self._began: int | None = None
        self._ended = False

    def wake(self, wakes_: Sequence[Wake], *, now: datetime | None = None) -> list[Woken]:
        """As ``Store.wake``, as part of this transaction; a row that changes meanwhile is woken all the same."""
        self._check()
        if not wakes_:
            return []
        return wakes.answers(wakes_, self._run(wakes.step(wakes_), now, bound=False))

    def swap(self, changes: Sequence[Change], *, now: datetime | None = None) -> list[bool]:
        """As ``Store.swap``, as part of this transaction."""
        self._check()
        return swaps.swap(lambda step: self._run(step, now), changes)

    def read(self, ids: Sequence[str]) -> list[Job | None]:
        """As ``Store.read``, as this transaction sees the rows."""
        self._check()
        if not ids:
            return []
        part = self._part(finding.read(ids), None, writes=False)
        return finding.jobs_of(ids, self._rehearse(part)[1])

    def put(self, document: Document, *, now: datetime | None = None) -> bool:
        """As ``Store.put``, as part of this transaction."""
        self._check()
        return bool(self._run(documents.put(document), now))

    def archive(self, rows: Sequence[Archived], *, now: datetime | None = None) -> None:
        """As the contract says."""
        self._check()
        if rows:
            self._run(archive.write(rows), now)

    def execute(self, statement: str, parameters: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Run one statement of SurrealQL with ``$name`` parameters; ``$now`` is this transaction's moment, in µs.

        Answers its rows: each array that it answers is one (``SELECT VALUE [a, b] FROM ...``), anything else a row of
        one value; a statement that writes answers what its RETURN clause says, and none without one. The commit refuses
        where it would answer something else than now, so it must name no random value and no ``time::now()``.

        Raises StoreUnavailable and Refused, and UsageError for a RETURN that is no clause of another statement: the
        engine takes one for the end of the whole transaction, and would commit.
        """
        self._check()
        if _leaves(statement):
            raise UsageError("a statement in a transaction can't RETURN: write the expression by itself")
        place = len(self._parts)
        given = dict(parameters or {})
        if not all(_PARAMETER.fullmatch(name) for name in given):
            raise UsageError("a parameter's name is made of letters, digits and underscores")
        lets = "".join(f"LET ${name} = $p{place}.{name}; " for name in given)
        # In round brackets: between curly ones two statements need no semicolon, and a misspelt word is one. Named
        # before it is answered: a block with a LET in it answers nothing as the last word of another.
        words = statement.strip().rstrip(";")
        words = words if words.startswith("{") else f"({words}\n)"
        text = f"LET $r{place} = {{ {lets}LET $answer_{place} = {words}\n; $answer_{place} }};"
        part = _Part(text, {f"p{place}": given}, _READING.match(statement) is None, None)
        silent = _WRITING.match(statement) is not None and not _RETURN.search(_PASSED.sub("x", statement))
        found = self._keep(part, bound=not silent)
        if silent:
            return []
        if not isinstance(found, list):
            return [] if found is None else [(found,)]
        return [tuple(row) if isinstance(row, list) else (row,) for row in found]

    def commit(self) -> None:
        """Write all of it. Raises StoreUnavailable (nothing was written, or the answer to the commit was lost), Refused
        (nothing was written)."""
        self._check()
        self._ended = True
        if not any(part.writes for part in self._parts):
            return
        body, told = self._so_far()
        self._persist(lambda: self._request(f"BEGIN; LET $now = $at; {body} COMMIT;", self._parts, told))

    def end(self) -> None:
        """Refuse whatever comes now."""
        self._ended = True

    def _check(self) -> None:
        if self._ended:
            raise UsageError("this transaction has ended: begin another")

    def _run(self, step: Step, now: datetime | None, *, bound: bool = True) -> Any:
        return self._keep(self._part(step, now, writes=True), bound=bound)

    def _part(self, step: Step, now: datetime | None, *, writes: bool) -> _Part:
        place = len(self._parts)

        def renamed(match: re.Match[str]) -> str:
            name = match[1]
            if name == "now":
                return "$now" if now is None else f"$now_{place}"
            return f"${name}_{place}" if name in step.values else match[0]

        values = {f"{name}_{place}": value for name, value in step.values.items()} | {
            f"now_{place}": None if now is None else clock.micros(now)
        }
        return _Part(f"LET $r{place} = {_NAMES.sub(renamed, step.text)};", values, writes, None)

    def _keep(self, part: _Part, *, bound: bool) -> Any:
        told, answer = self._rehearse(part)
        self._parts.append(part._replace(told=told if bound else None))
        return answer

    def _rehearse(self, part: _Part) -> tuple[str, Any]:
        """The hash of what ``part`` answers after all that came before it, and the answer."""
        place = len(self._parts)
        body, told_before = self._so_far()
        body += part.text
        answer_ = f"encoding::cbor::encode([$now, {_hash(place)}, $r{place}])"
        throw = f"THROW '{OURS}{_TOLD}' + encoding::base64::encode({answer_})"

        def ask() -> str:
            try:
                self._request(f"BEGIN; {NOW} {body} {throw}; COMMIT;", [*self._parts, part], told_before)
            except Thrown as thrown:
                if thrown.word.startswith(_TOLD):
                    return thrown.word.removeprefix(_TOLD)
                raise
            raise StoreUnavailable("SurrealDB answered something else than it was asked: try again")

        word = self._persist(ask)
        try:
            self._began, told, answer = decode(base64.b64decode(word + "=" * (-len(word) % 4)))
        except (binascii.Error, ValueError):
            raise StoreUnavailable("SurrealDB's answer can't be read: try again") from None
        return told, answer

    def _so_far(self) -> tuple[str, dict[str, Any]]:
        """All parts, each followed by a look at whether its answer is what it was; and what those compare with."""
        body = "".join(
            part.text
            if part.told is None
            else f"{part.text} IF {_hash(place)} != $t{place} {{ THROW '{OURS}{_CHANGED}' }};"
            for place, part in enumerate(self._parts)
        )
        return body, {f"t{place}": part.told for place, part in enumerate(self._parts) if part.told is not None}

    def _persist(self, ask: Callable[[], Answer]) -> Answer:
        def unless_changed() -> Answer:
            try:
                return ask()
            except Thrown as thrown:
                if thrown.word != _CHANGED:
                    raise
            raise StoreUnavailable(
                "what this transaction was told has changed since: nothing was written, begin it again"
            )

        return persistently(unless_changed, self._patience, self._turn)

    def _request(self, statements: str, parts: Sequence[_Part], more: Mapping[str, Any]) -> None:
        values: dict[str, Any] = {"at": self._began, **more}
        for part in parts:
            values.update(part.values)
        results(self._ask(statements, values))


def _leaves(statement: str) -> bool:
    """Whether it may leave its transaction by a RETURN; when in doubt, yes."""
    for before, behind in _RETURN.findall(_PASSED.sub("x", statement)):
        if behind.upper() not in _CLAUSES or before.upper() in _OPENERS or before[-1] in "{([;,=:&|?+-*/<>":
            return True
    return False


def _hash(place: int) -> str:
    return f"crypto::blake3(encoding::base64::encode(encoding::cbor::encode($r{place})))"


@contextmanager
def committed(transaction: Transaction) -> Iterator[Transaction]:
    """Commit when the block ends; where it raises nothing was written."""
    try:
        yield transaction
        transaction.commit()
    finally:
        transaction.end()


class Bundle:
    """A caller's own transactions over a connection of their own SDK client, which must be signed in and on the store's
    database. Begins by itself with the first call, and anew after each commit or rollback.

    ``Store.adopt`` takes it, so that a wake commits or vanishes with the caller's own statements. Use from one thread
    at a time; the connection may be used beside it.
    """

    def __init__(self, connection: BlockingWsSurrealConnection, *, patience: float = 10.0) -> None:
        self._connection = connection
        self._patience = patience
        self._transaction: Transaction | None = None

    @property
    def transaction(self) -> Transaction:
        """The transaction that is going on, or begins here."""
        if self._transaction is None:
            self._transaction = Transaction(self._query, self._patience, threading.Lock())
        return self._transaction

    def execute(self, statement: str, parameters: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """As ``Transaction.execute``."""
        return self.transaction.execute(statement, parameters)

    def commit(self) -> None:
        """As ``Transaction.commit``; whatever comes of it, the next call begins another."""
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            transaction.commit()

    def rollback(self) -> None:
        """Forget what was begun."""
        if self._transaction is not None:
            self._transaction.end()
            self._transaction = None

    def close(self) -> None:
        """Roll back, and close the connection."""
        self.rollback()
        self._connection.close()

    def _query(self, statements: str, values: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            return self._connection.query_raw(statements, dict(values))
        except LOST as error:
            raise StoreUnavailable(
                f"SurrealDB did not answer on the caller's own connection ({type(error).__name__}): connect again"
            ) from None


def adopt(connection: Any) -> Transaction:
    """The transaction that a caller is in. Raises as ``Store.adopt``."""
    if isinstance(connection, Transaction):
        return connection
    if isinstance(connection, Bundle):
        return connection.transaction
    if isinstance(connection, BlockingWsSurrealConnection):
        raise UsageError(
            "a connection of SurrealDB's SDK commits each request by itself: make a store.surreal.Bundle of it, "
            "and let that run your statements too"
        )
    raise UsageError(
        "a SurrealDB store can wake in a store.surreal.Bundle or in its own transaction, not in a "
        f"{type(connection).__module__}.{type(connection).__qualname__}"
    )
