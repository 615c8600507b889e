"""The tree of errors is the one that is drawn, and its codes are stable."""

from __future__ import annotations

import re

import pytest

from store import errors
from store.errors import DramaturgError

#: Codes that rows, logs and scripts rely on.
CODES = {
    "DramaturgError": "dramaturg_error",
    "UsageError": "usage",
    "PayloadInvalid": "payload_invalid",
    "UnknownType": "type_unknown",
    "SettingsInvalid": "settings_invalid",
    "Refused": "refused",
    "NotFound": "not_found",
    "CursorTooOld": "cursor_too_old",
    "SchemaTooNew": "schema_too_new",
    "Unavailable": "unavailable",
    "StoreUnavailable": "store_unavailable",
    "ValkeyUnavailable": "valkey_unavailable",
    "EngineFailed": "engine_failed",
}


def _classes() -> dict[str, type[DramaturgError]]:
    found = {name: value for name, value in vars(errors).items() if isinstance(value, type)}
    return {name: value for name, value in found.items() if issubclass(value, DramaturgError)}


def _drawn() -> dict[str, str]:
    """Each class of the drawing, by the depth at which it stands, and the class above it."""
    above: dict[int, str] = {}
    parents = {}
    for line in (errors.__doc__ or "").splitlines():
        if match := re.match(r"([\s│├└─]*)([A-Z]\w+)(?:\s{2,}|$)", line):
            depth = len(match[1])
            parents[match[2]] = next((above[place] for place in sorted(above, reverse=True) if place < depth), "")
            above = {place: name for place, name in above.items() if place < depth} | {depth: match[2]}
    return parents


def test_the_drawing_shows_every_class_below_the_one_that_it_extends() -> None:
    expected = {name: kind.__mro__[1].__name__ for name, kind in _classes().items()}

    assert _drawn() == expected | {"DramaturgError": ""}


def test_codes_are_stable_and_each_names_one_class() -> None:
    codes = {name: kind.code for name, kind in _classes().items()}

    assert codes.items() >= CODES.items()
    assert len(set(codes.values())) == len(codes)
    assert all(re.fullmatch(r"[a-z][a-z_]+", code) for code in codes.values())


@pytest.mark.parametrize("kind", _classes().values())
def test_an_error_says_its_text_and_nothing_else(kind: type[DramaturgError]) -> None:
    assert str(kind("the disk is full: make room")) == "the disk is full: make room"
    assert kind.__doc__
