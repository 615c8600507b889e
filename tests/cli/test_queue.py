"""``queue``: pause, resume, drain, status, list."""

from __future__ import annotations

from store import queues
from store.contract import Store
from tests.cli.conftest import Command, woken
from tests.cli.test_jobs import HOSTILE, claimed


def test_a_queue_is_paused_and_resumed(dramaturg: Command, store: Store) -> None:
    woken(store)
    paused = dramaturg("queue", "pause", "default", "--json").json
    assert (paused["paused"], paused["drain"], paused["running"], paused["ready"]) == (True, False, 0, 1)
    assert (paused["changed"], paused["reached"]) == (True, True)
    assert dramaturg("queue", "pause", "default", "--json").json["changed"] is False
    assert store.due() == []
    assert "default resumed" in dramaturg("queue", "resume", "default").out
    assert "default was not paused" in dramaturg("queue", "resume", "default").out
    assert len(store.due()) == 1


def test_one_domain_alone(dramaturg: Command, store: Store) -> None:
    woken(store, domain="a")
    woken(store, domain="b")
    assert dramaturg("queue", "pause", "default", "--domain", "a").code == 0
    assert len(store.due()) == 1
    assert dramaturg("queue", "status", "default", "--domain", "a", "--json").json["paused"] is True
    assert dramaturg("queue", "status", "default", "--json").json["paused"] is False


def test_a_resume_for_one_domain_tells_that_the_queue_stays_paused(dramaturg: Command) -> None:
    dramaturg("queue", "pause", "default")
    assert "is paused for all domains" in dramaturg("queue", "resume", "default", "--domain", "a").out


def test_a_drain_tells_whether_something_runs(dramaturg: Command, store: Store) -> None:
    id_ = woken(store)
    claimed(store, id_)
    assert "draining: 1 still running" in dramaturg("queue", "drain", "default").out
    waited = dramaturg("queue", "drain", "default", "--wait", "0.01s", "--json")
    assert (waited.code, waited.json["running"], waited.json["drain"]) == (1, 1, True)
    assert dramaturg("queue", "drain", "high", "--wait", "10s").code == 0
    assert "drained: nothing runs" in dramaturg("queue", "drain", "high").out


def test_status_and_list_show_where_queues_stand(dramaturg: Command, store: Store) -> None:
    woken(store, "a")
    woken(store, "b", queue="low")
    claimed(store, woken(store, "c", queue="low"))
    queues.pause(store, None, "low", drain=True)
    queues.pause(store, None, "empty", "a")
    found = {(row["queue"], row["domain"]): row for row in dramaturg("queue", "list", "--json").json}
    assert set(found) == {("default", None), ("low", None), ("empty", "a")}
    assert (found["low", None]["running"], found["low", None]["ready"], found["low", None]["drain"]) == (1, 1, True)
    for words in (("list",), ("status", "low")):
        shown = dramaturg("queue", *words)
        assert shown.code == 0
        assert "draining" in shown.out


def test_what_can_not_be_a_queue_is_refused(dramaturg: Command, store: Store) -> None:
    for words in (("pause", "scheduler"), ("resume", "a\x1b"), ("status", ""), ("drain", "default", "--wait", "soon")):
        assert dramaturg("queue", *words).code == 2, words
    assert dramaturg("queue", "pause").code == 2
    assert store.list("queue") == []


def test_names_do_not_drive_the_terminal(dramaturg: Command, store: Store) -> None:
    woken(store, queue=HOSTILE.replace("\x9b", ""))
    assert all(line.isprintable() for line in dramaturg("queue", "list").out.splitlines())


def test_a_valkey_that_is_away_is_told_of_later(dramaturg: Command, store: Store) -> None:
    done = dramaturg("queue", "pause", "default", JOBS_VALKEY_URL="redis://127.0.0.1:1")
    assert done.code == 0
    assert "Valkey was not reached" in done.err
    assert [word.paused for word in queues.controls(store)] == [True]
