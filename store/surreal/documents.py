"""Small keyed documents by compare-and-set, and terms of leadership."""

from __future__ import annotations

from typing import Any, Final

import orjson

from store.contract import ANY_VERSION, Document, Term
from store.surreal.requests import Step
from store.surreal.rows import micros

LISTED: Final = 10_000

_COLUMNS: Final = "[record::id(id)[0], record::id(id)[1], version, body]"


def get(kind: str, key: str) -> Step:
    """One document; answers its row, or nothing."""
    text = f"(SELECT VALUE {_COLUMNS} FROM ONLY type::record('dramaturg_document', [$k0, $k1]))"
    return Step(text, {"k0": kind, "k1": key})


def list_(kind: str) -> Step:
    """The documents of a kind by key. An id is [kind, key], and an object sorts behind every text."""
    text = f"(SELECT VALUE {_COLUMNS} FROM dramaturg_document:[$k0, NONE]..[$k0, {{}}] LIMIT {LISTED})"
    return Step(text, {"k0": kind})


def put(document: Document) -> Step:
    """Write ``document`` if the stored version is the one it names; answers whether it did."""
    kind, key, version, body = document
    text = f"""{{
LET $document = type::record('dramaturg_document', [$k0, $k1]);
LET $there = (SELECT VALUE version FROM ONLY $document) ?? 0;
LET $mine = $k2 = {ANY_VERSION} OR $k2 = $there;
IF $mine {{ UPSERT $document SET version = $there + 1, body = $k3, updated_at = $now RETURN NONE }};
$mine
}}"""
    return Step(text, {"k0": kind, "k1": key, "k2": version, "k3": orjson.dumps(dict(body)).decode()})


def remove(kind: str, key: str) -> Step:
    """Take a document away; answers whether there was one."""
    text = "(array::len((DELETE type::record('dramaturg_document', [$k0, $k1]) RETURN BEFORE)) > 0)"
    return Step(text, {"k0": kind, "k1": key})


def document_of(row: Any) -> Document | None:
    """The document in a row."""
    if row is None:
        return None
    kind, key, version, body = row
    return Document(kind, key, version, orjson.loads(body))


def lead(name: str, holder: str, seconds: float, grace: float) -> Step:
    """Take or prolong a term; answers nothing, or whether it has settled.

    Taken up again after a gap longer than the grace: settled only a grace after now.
    """
    text = """{
LET $term = type::record('dramaturg_term', $l0);
LET $old = (SELECT holder, until, settled_at FROM ONLY $term);
LET $until = fn::dramaturg::later($now, $l2);
LET $mine = $old.holder = $l1;
IF $old = NONE OR $old.holder = NONE OR $mine OR $old.until <= $now {
  LET $settled = IF $old = NONE THEN $now
    ELSE IF fn::dramaturg::later($old.until, $l3) < $now THEN fn::dramaturg::later($now, $l3)
    ELSE $old.settled_at END;
  UPSERT $term SET holder = $l1, settled_at = $settled,
    until = IF $mine AND $old.until > $until THEN $old.until ELSE $until END RETURN NONE;
  $settled <= $now
} ELSE { NONE }
}"""
    return Step(text, {"l0": name, "l1": holder, "l2": micros(seconds), "l3": micros(grace)})


def term_of(settled: Any) -> Term:
    """The term in the step's answer."""
    return Term(False) if settled is None else Term(True, bool(settled))


def resign(name: str, holder: str) -> Step:
    """Give a term back if it is ``holder``'s."""
    text = """{
LET $term = type::record('dramaturg_term', $l0);
UPDATE $term SET holder = NONE, until = IF until < $now THEN until ELSE $now END WHERE holder = $l1 RETURN NONE
}"""
    return Step(text, {"l0": name, "l1": holder})
