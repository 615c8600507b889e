"""``events``, ``sla``, ``attach`` and ``attachments``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from store import identity
from store.contract import Store
from store.events import Claim
from tests.cli.conftest import FOREIGN, ROOT, Command, environment, woken
from tests.endtoend.house import eventually

HOSTILE = "\x9b31m\u202e[bold red]x[/bold red]"


def test_events_are_off_until_they_are_asked_for(dramaturg: Command, store: Store) -> None:
    woken(store, "before")
    done = dramaturg("events")
    assert (done.code, done.out) == (0, "")
    assert "dramaturg events on" in done.err
    assert dramaturg("events", "on", "--json").json == {"on": True, "affected": 1}
    assert "as they were" in dramaturg("events", "on").out
    woken(store, "after")
    assert [event["key"] for event in dramaturg("events", "--json").json["events"]] == ["after"]
    assert dramaturg("events", "off").code == 0
    woken(store, "later")
    assert dramaturg("events", "--json").json["cursor"] == 1


def test_events_are_told_by_cursor_and_filters(dramaturg: Command, store: Store) -> None:
    dramaturg("events", "on")
    for key in "abc":
        woken(store, key, domain="odd" if key == "b" else "default", request_id="req-1", trace="t-1")
    store.claim([Claim(identity.job_id("default", "default", FOREIGN, "a"), identity.new_lease_id(), "w", 60)])

    told = dramaturg("events", "--json").json
    assert [(event["position"], event["name"], event["key"]) for event in told["events"]] == [
        (1, "job.created", "a"), (2, "job.created", "b"), (3, "job.created", "c"), (4, "job.claimed", "a"),
    ]  # fmt: skip
    assert {(event["request_id"], event["trace"]) for event in told["events"]} == {("req-1", "t-1")}
    assert told["cursor"] == 4
    assert [e["position"] for e in dramaturg("events", "--after", "2", "--json").json["events"]] == [3, 4]
    assert dramaturg("events", "--after", "newest", "--json").json == {"events": [], "cursor": 4}
    assert [e["key"] for e in dramaturg("events", "--domain", "odd", "--json").json["events"]] == ["b"]
    claimed = dramaturg("events", "--name", "job.claimed")
    assert len(claimed.out.splitlines()) == 1
    assert "job.claimed" in claimed.out
    assert dramaturg("events", "--queue", "low", "--json").json == {"events": [], "cursor": 4}
    last = dramaturg("events", "--name", "job.claimed", "--limit", "1", "--json").json
    assert [event["position"] for event in last["events"]] == [4]  # looked for beyond the first page
    first = dramaturg("events", "--limit", "2", "--json").json
    assert (len(first["events"]), first["cursor"]) == (2, 2)
    for words in (("--after", "x"), ("--after", "-1"), ("--after", "1", "--consumer", "a"), ("--domain", "")):
        assert dramaturg("events", *words).code == 2, words
    assert dramaturg("events", "--after", "9").code == 1


def test_what_rows_hold_does_not_drive_the_terminal(dramaturg: Command, store: Store) -> None:
    dramaturg("events", "on")
    woken(store, "\u202e[red]key[/red]", owner="[link=x]o", trace=HOSTILE)
    done = dramaturg("events")
    assert "[red]key" in done.out
    assert "\u202e" not in done.out


def test_a_consumer_goes_on_where_it_was(dramaturg: Command, store: Store) -> None:
    dramaturg("events", "on")
    for key in "abc":
        woken(store, key)
    first = dramaturg("events", "--consumer", "mailer", "--limit", "2", "--json").json
    second = dramaturg("events", "--consumer", "mailer", "--json").json
    third = dramaturg("events", "--consumer", "mailer", "--json").json
    assert [len(each["events"]) for each in (first, second, third)] == [2, 1, 0]
    woken(store, "d")
    listed = dramaturg("events", "consumers", "--json").json
    assert listed == {
        "on": True, "oldest": 1, "newest": 4,
        "consumers": [{"name": "mailer", "cursor": 3, "enabled": True, "behind": 1, "lost": 0}],
    }  # fmt: skip
    assert "mailer" in dramaturg("events", "consumers").out

    assert dramaturg("events", "prune", "--days", "0", "--dry-run", "--json").json["affected"] == 3
    pruned = dramaturg("events", "prune", "--days", "0", "--json").json
    assert (pruned["affected"], pruned["held_by"], pruned["oldest"]) == (3, ["mailer"], 4)
    assert dramaturg("events", "prune", JOBS_EVENTS_RETENTION_DAYS="1").out.startswith("0 events")
    refused = dramaturg("events", "--after", "1", "--json")
    assert (refused.code, refused.json["error"]["code"]) == (1, "cursor_too_old")
    assert dramaturg("events", "consumers", "--disable", "mailer").code == 0
    assert dramaturg("events", "prune", "--days", "0", "--json").json["affected"] == 1
    assert dramaturg("events", "consumers", "--enable", "nobody").code == 1


def test_following_tells_what_comes_and_commits_it(dramaturg: Command, store: Store, home: Path) -> None:
    dramaturg("events", "on")
    words = [sys.executable, "-m", "ops.cli.main", "events", "--follow", "--consumer", "tail", "--json"]
    with subprocess.Popen(words, cwd=ROOT, env=environment(home), stdout=subprocess.PIPE, text=True) as follower:
        try:
            assert follower.stdout is not None
            woken(store, "one")
            assert json.loads(follower.stdout.readline())["key"] == "one"
            woken(store, "two")
            assert json.loads(follower.stdout.readline())["key"] == "two"
            listed = lambda: dramaturg("events", "consumers", "--json").json["consumers"]  # noqa: E731
            eventually(lambda: [each["cursor"] for each in listed()] == [2], what="the cursor to be committed")
            os.kill(follower.pid, signal.SIGINT)
            assert follower.wait(20) == 130
        finally:
            follower.kill()


def test_limits_are_set_listed_and_removed(dramaturg: Command, store: Store) -> None:
    set_ = dramaturg("sla", "set", FOREIGN, "--queue-latency", "0.001s", "--duration", "5m", "--json").json
    assert (set_["queue_latency"], set_["duration"]) == (0.001, 300.0)
    assert dramaturg("sla", "set", FOREIGN, "--duration", "1m", "--domain", "eu").code == 0
    assert [each["domain"] for each in dramaturg("sla", "list", "--json").json] == [None, "eu"]
    assert FOREIGN in dramaturg("sla", "list").out
    id_ = woken(store)

    def over() -> bool:
        return [each["id"] for each in dramaturg("sla", "breaches", "--json").json] == [id_]

    eventually(over, what="the job to wait too long")
    assert "queue_latency" in dramaturg("sla", "breaches").out
    store.claim([Claim(id_, identity.new_lease_id(), "w", 60)])
    shown = dramaturg("show", id_, "--json").json
    assert [(line["kind"], line["code"]) for line in shown["history"]] == [("sla_breached", "queue_latency")]
    assert dramaturg("sla", "breaches").out == "no job is over its limits\n"

    assert dramaturg("sla", "remove", FOREIGN, "--domain", "eu").code == 0
    assert dramaturg("sla", "remove", FOREIGN, "--domain", "eu").code == 1
    assert dramaturg("sla", "remove", FOREIGN).code == 0
    assert dramaturg("sla", "list").out == "no limits are set\n"
    assert dramaturg("sla", "set", FOREIGN).code == 2
    assert "published" in dramaturg("sla", "set", "no.such", "--duration", "1m").err
    wrong = dramaturg("sla", "set", FOREIGN, "--duration", "soon")
    assert wrong.code == 2
    assert "--duration" in wrong.err


def test_files_and_lines_are_attached_listed_and_saved(dramaturg: Command, store: Store, tmp_path: Path) -> None:
    id_ = woken(store)
    file = tmp_path / "report.txt"
    file.write_bytes(b"a\x00b")
    assert dramaturg("attach", id_, str(file), "--json").json == {"id": id_, "number": 1, "affected": 1}
    assert dramaturg("attach", id_, "--log", f"seen {HOSTILE}").code == 0
    listed = dramaturg("attachments", id_, "--json").json
    assert [(each["number"], each["kind"], each["media_type"], each["text"]) for each in listed] == [
        (1, "file", "text/plain", None),
        (2, "log", "text/plain", f"seen {HOSTILE}"),
    ]
    for_people = dramaturg("attachments", id_).out
    assert "report.txt" in for_people
    assert "\x9b" not in for_people
    saved = tmp_path / "saved"
    assert dramaturg("attachments", id_, "--save", "1", "--to", str(saved)).code == 0
    assert saved.read_bytes() == b"a\x00b"

    assert dramaturg("attachments", id_, "--save", "1", "--to", str(saved)).code == 1
    assert dramaturg("attachments", id_, "--save", "7", "--to", str(tmp_path / "x")).code == 1
    for words in ((id_,), (id_, str(file), "--log", "x"), (id_, str(tmp_path / "none")), ("seven", str(file))):
        assert dramaturg("attach", *words).code == 2, words
    (tmp_path / "large").write_bytes(b"x" * 1_048_577)
    assert dramaturg("attach", id_, str(tmp_path / "large")).code == 2
    assert dramaturg("attach", identity.new_id(), str(file)).code == 1
    assert dramaturg("attachments", identity.new_id()).code == 1


def test_a_wake_can_say_for_whom(dramaturg: Command, store: Store) -> None:
    dramaturg("events", "on")
    answer = dramaturg("wake", FOREIGN, "--key", "7", "--request-id", "req-9", "--trace", "00-a-b-01", "--json").json
    [row] = store.read([answer["id"]])
    assert row is not None
    assert (row.request_id, row.trace) == ("req-9", "00-a-b-01")
    [event] = dramaturg("events", "--json").json["events"]
    assert (event["request_id"], event["trace"]) == ("req-9", "00-a-b-01")
    assert dramaturg("wake", FOREIGN, "--key", "8", "--trace", "a\nb").code == 2
