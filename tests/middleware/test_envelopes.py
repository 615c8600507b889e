"""A damaged envelope in Valkey is buried and told, and never stands in the way of what is behind it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import dramatiq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from middleware.broker import Broker
from middleware.envelopes import message_of
from store.errors import PayloadInvalid
from store.identity import new_id
from store.valkey.entries import Offer
from tests.middleware.test_fence import Hands, job

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9) | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
WHOLE = {
    "queue_name": "default", "actor_name": "nobody", "args": [], "kwargs": {}, "options": {}, "message_id": "1",
    "message_timestamp": 1,
}  # fmt: skip
NEARLY = st.builds(
    lambda parts, without: {name: part for name, part in (WHOLE | parts).items() if name not in without},
    st.dictionaries(st.sampled_from([*WHOLE, "other"]), JSON, max_size=3),
    st.sets(st.sampled_from([*WHOLE]), max_size=1),
)
ENVELOPES = st.binary(min_size=1) | JSON.map(json.dumps).map(str.encode) | NEARLY.map(json.dumps).map(str.encode)
DEEP = b'{"args":' + b"[" * 100_000
LONG = json.dumps(WHOLE).replace('"message_timestamp": 1', '"message_timestamp": ' + "9" * 5000).encode()


@pytest.fixture
def broker(working_broker: Broker) -> Iterator[Broker]:
    yield working_broker
    working_broker.runtime.completion.close(5)


def refused(envelope: bytes) -> str | None:
    """What is told of an envelope; None for one that is a message."""
    try:
        message_of(envelope)
    except PayloadInvalid as error:
        return str(error)
    return None


@given(ENVELOPES)
@example(DEEP)
@example(LONG)
@example(json.dumps(WHOLE).encode())
def test_any_bytes_are_a_message_or_are_refused_by_a_code(envelope: bytes) -> None:
    told = refused(envelope)
    if told is not None:
        assert len(told) < 100
        return
    message = message_of(envelope)
    assert str(message)
    assert hash((message.actor_name, message.queue_name, message.message_id)) is not None
    assert message.options.get("no such option") is None


def test_what_dramatiq_writes_is_read_as_it_was() -> None:
    message: dramatiq.Message[Any] = dramatiq.Message("default", "x", (1, "a"), {"b": [None]}, {"eta": 1})
    assert message_of(message.encode()) == message


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(envelopes=st.lists(ENVELOPES, max_size=4))
@example(envelopes=[DEEP, LONG])
def test_the_job_behind_damaged_envelopes_runs(broker: Broker, envelopes: list[bytes]) -> None:
    leases = broker.runtime.leases
    leases.flush("default")
    damaged = 0
    for envelope in envelopes:
        if refused(envelope) is not None:
            damaged += 1
            leases.offer("default", [Offer(f"m:{new_id()}", "1", envelope)], watermark=9)
    before = leases.sizes("default").dead
    actor = broker.actors.get("test.job") or job(broker, lambda payload, run: None)
    id_ = actor.send().id
    broker.runtime.slots.concurrency = 8
    hands = Hands(broker)
    hands.run()
    row = hands.row(id_)
    assert row is None or row.state == "completed"
    assert leases.sizes("default").dead == before + damaged
    assert broker.runtime.slots.in_hand == 0
