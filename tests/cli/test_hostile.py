"""Names, payloads and messages full of markup and terminal escapes are shown as the plain text that they are."""

from __future__ import annotations

import json

import pytest

from store import identity
from store.contract import ANY_VERSION, Document, Renewal, Store
from store.events import Claim, Wake
from store.following import switch_events
from store.policy import Policy
from tests.cli.conftest import Command

TAG = "<img src=x onerror=alert(1)>"
MARKUP = "[bold red]x[/bold red]"
ESCAPES = "\x1b[31m\x1b]0;owned\x07\u202e\u009b1m\r\b"
TYPE, QUEUE, OWNER = f"t{TAG}", f"q{MARKUP}", f"o{TAG}{MARKUP}"
KEY = f"k{TAG}{MARKUP}"


@pytest.fixture
def hostile(store: Store) -> str:
    """A running job of such names, payload and progress; its id."""
    switch_events(store, on=True)
    id_ = identity.job_id("default", QUEUE, TYPE, KEY)
    payload = json.dumps({TAG: [MARKUP, ESCAPES]})
    store.put(Document("policy", TYPE, ANY_VERSION, Policy(TYPE).document()))
    store.wake([Wake(id_, "default", QUEUE, TYPE, KEY, payload, owner=OWNER)])
    lease = str(identity.new_id())
    [claimed] = store.claim([Claim(id_, lease, f"w{TAG}{MARKUP}", 60)])
    assert claimed.job is not None
    assert store.renew([Renewal(id_, lease, 1, 60, (50, f"{TAG}{MARKUP}{ESCAPES}"))])[0].held
    return id_


@pytest.mark.parametrize("form", [(), ("--json",)])
@pytest.mark.parametrize(
    "words", [("list",), ("show", "ID"), ("stats",), ("queue", "list"), ("queue", "status", QUEUE), ("events",)]
)
def test_all_of_it_is_plain_text(
    dramaturg: Command, hostile: str, words: tuple[str, ...], form: tuple[str, ...]
) -> None:
    ran = dramaturg(*(hostile if word == "ID" else word for word in words), *form, COLUMNS="400")
    assert ran.code == 0, ran.err
    assert MARKUP in ran.out
    for char in ran.out + ran.err:
        assert char == "\n" or char.isprintable(), repr(char)
    if form:
        json.loads(ran.out)


def test_what_is_refused_is_not_told_by_its_escapes(dramaturg: Command) -> None:
    for words in (
        ("wake", f"t{ESCAPES}"),
        ("show", ESCAPES),
        ("list", "--queue", ESCAPES),
        (ESCAPES,),
        ("list", ESCAPES),
    ):
        ran = dramaturg(*words)
        assert ran.code == 2
        assert all(char == "\n" or char.isprintable() for char in ran.out + ran.err)
