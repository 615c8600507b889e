"""Batches as one JSON parameter."""

from __future__ import annotations

import json
from datetime import datetime
from itertools import chain
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from store import clock
from store.contract import Change
from store.events import Failure, Kind, Wake
from store.policy import Policy
from store.transitions import Answer, Decision, Write, decide
from store.wire import changes_json, rounds, wakes_json
from tests.contract import rows
from tests.contract.rows import NOW, TYPE, later, row, wake


def spell(moment: datetime) -> int:
    """Moments as microseconds, as one of the stores might want them."""
    return clock.micros(moment)


def _changed(*writes: Write | None) -> Any:
    changes = [Change(f"id{place}", place, Decision(Answer.APPLIED, "queued", w)) for place, w in enumerate(writes)]
    return json.loads(changes_json(changes, spell))


@given(st.lists(st.sampled_from("abcd"), max_size=12))
def test_no_round_names_an_id_twice_and_each_id_keeps_its_order(keys: list[str]) -> None:
    wakes = [wake(key) for key in keys]

    made = list(rounds(wakes))

    for batch in made:
        assert batch
        ids = [one.id for _, one in batch]
        assert len(ids) == len(set(ids))
        assert all(wakes[place] is one for place, one in batch)
    places = [place for place, _ in chain.from_iterable(made)]
    assert sorted(places) == list(range(len(wakes)))
    for key in set(keys):
        mine = [place for place in places if keys[place] == key]
        assert mine == sorted(mine)
    assert len(made) == max((keys.count(key) for key in keys), default=0)


def test_wakes_are_written_in_the_order_of_their_ids_with_every_field_that_says_something() -> None:
    wakes = [wake(key, run_at=later(5), once=True, trace="t", max_retries=0) for key in "abcdef"]

    written = json.loads(wakes_json(wakes, spell))

    assert [one["id"] for one in written] == sorted(one.id for one in wakes)
    assert set(written[0]) == set(Wake._fields) - {"owner", "delay", "request_id"}
    assert written[0]["max_retries"] == 0
    assert written[0]["run_at"] == clock.micros(later(5))
    assert written[0]["payload"] == {"n": 1}
    assert (written[0]["once"], written[0]["trace"]) == (True, "t")


@given(rows.json_texts, rows.names())
def test_a_payload_travels_as_it_is(payload: str, key: str) -> None:
    text = wakes_json([wake(key, payload=payload)], spell)

    assert f'"payload":{payload}' in text
    assert json.loads(text)[0]["key"] == key


def test_a_change_names_only_what_it_sets() -> None:
    [changed] = _changed(Write({"retries": 2, "lease_id": None}, ("finished_at",), run_in=1.5, lapsed=True))

    assert changed == {
        "id": "id0",
        "revision": 0,
        "lapsed": True,
        "set": {"retries": 2, "lease_id": None},
        "stamps": ["finished_at"],
        "run_in": 1.5,
        "earliest": True,
    }


def test_a_moment_is_spelled_and_seconds_are_not() -> None:
    at, never, neither = _changed(
        Write({}, run_at=NOW, earliest=False), Write({}, run_at=clock.PARKED), Write({"a": 1})
    )

    assert (at["run_at"], at["earliest"]) == (clock.micros(NOW), False)
    assert never["run_at"] == clock.micros(clock.PARKED)
    assert "run_at" not in neither
    assert "run_in" not in neither


def test_a_deletion_says_nothing_else() -> None:
    assert _changed(Write(delete=True)) == [{"id": "id0", "revision": 0, "delete": True}]


def test_decisions_that_change_nothing_are_left_out() -> None:
    assert _changed(None, Write({"a": 1}), None) == [{"id": "id1", "revision": 1, "set": {"a": 1}, "earliest": True}]
    assert changes_json([], spell) == "[]"


def test_changes_are_written_in_the_order_of_their_ids() -> None:
    decision = Decision(Answer.APPLIED, "queued", Write({"a": 1}))
    changes = [Change(id_, 1, decision) for id_ in ("c", "a", "b")]

    assert [one["id"] for one in json.loads(changes_json(changes, spell))] == ["a", "b", "c"]


def test_json_columns_are_embedded_and_others_are_strings() -> None:
    job = row("processing")
    ended = rows.finish(
        job, Kind.RETRY, sets_checkpoint=True, checkpoint='{"at":[1]}', failure=Failure("OSError", "disk")
    )
    decision = decide(job, ended, Policy(TYPE))

    [changed] = json.loads(changes_json([Change(job.id, job.revision, decision)], spell))

    assert changed["set"]["checkpoint"] == {"at": [1]}
    assert changed["set"]["failure"] == {"class": "OSError", "code": "disk"}
    assert changed["set"]["state"] == "queued"
    assert changed["set"]["finish_token"] == job.lease_id
