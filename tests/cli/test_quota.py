"""``quota``, and how limits show in other commands."""

from __future__ import annotations

from store.contract import ANY_VERSION, Document, Store
from store.limits import Quota, list_key, quotas, set_quota
from tests.cli.conftest import FOREIGN, Command, woken
from tests.cli.test_jobs import claimed


def test_a_quota_is_set_amended_listed_and_removed(dramaturg: Command, store: Store) -> None:
    made = dramaturg("quota", "set", "--domain", "mail", "--owner", "ann", "--max-queued", "5", "--json").json
    assert made == Quota("mail", "ann", 5)._asdict()
    assert dramaturg("quota", "set", "--domain", "mail", "--owner", "ann", "--max-in-flight", "2").code == 0
    assert dramaturg("quota", "set", "--submits-per-minute", "9").code == 0
    assert dramaturg("quota", "list", "--json").json == [
        Quota(None, None, None, 9)._asdict(),
        Quota("mail", "ann", 5, None, 2)._asdict(),
    ]
    assert "ann" in dramaturg("quota", "list").out
    assert dramaturg("quota", "remove", "--domain", "mail", "--owner", "ann", "--json").json == {"affected": 1}
    gone = dramaturg("quota", "remove", "--domain", "mail", "--owner", "ann")
    assert gone.code == 1
    assert "no quota for domain mail and owner ann" in gone.err
    assert "the quota for everything is gone" in dramaturg("quota", "remove").out
    assert dramaturg("quota", "list").out.strip() == "no quotas are set"


def test_what_can_not_be_a_quota_is_refused(dramaturg: Command, store: Store) -> None:
    for words in ((), ("--max-queued", "-1"), ("--max-queued", "many"), ("--domain", "a\x1b", "--max-queued", "1")):
        assert dramaturg("quota", "set", *words).code == 2, words
    assert quotas(store) == []


def test_a_wake_beyond_a_quota_is_refused_with_its_reason(dramaturg: Command, store: Store) -> None:
    set_quota(store, Quota("default", None, max_queued=1))
    assert dramaturg("wake", FOREIGN, "--key", "a").code == 0
    done = dramaturg("wake", FOREIGN, "--key", "b", "--json")
    assert (done.code, done.json["error"]["code"]) == (1, "quota_exceeded")
    assert "1 jobs that wait for domain default" in done.err


def test_a_wake_of_what_is_not_allowed_is_refused(dramaturg: Command, store: Store) -> None:
    store.put(Document("allow", list_key("queues"), ANY_VERSION, {"names": ["mail"]}))
    assert dramaturg("wake", FOREIGN, "--key", "a", "--queue", "mail").code == 0
    done = dramaturg("wake", FOREIGN, "--key", "a", "--queue", "other", "--json")
    assert (done.code, done.json["error"]["code"]) == (2, "not_allowed")
    assert len(store.due()) == 1


def test_show_tells_what_keeps_a_job_from_starting(dramaturg: Command, store: Store) -> None:
    listed, crowded = woken(store, "a", queue="other"), woken(store, "b", owner="ann")
    claimed(store, woken(store, "c", owner="ann"))
    assert dramaturg("show", listed, "--json").json["kept_back"] is None
    store.put(Document("allow", list_key("queues"), ANY_VERSION, {"names": ["mail"]}))
    set_quota(store, Quota(None, "ann", max_in_flight=1))
    assert "queue 'other' is not on the list" in dramaturg("show", listed).out
    assert (
        "the quota of 1 jobs that run for owner ann is reached"
        in dramaturg("show", crowded, "--json").json["kept_back"]
    )
    set_quota(store, Quota(None, "ann", max_in_flight=2))
    assert dramaturg("show", crowded, "--json").json["kept_back"] is None


def test_migrate_publishes_what_the_settings_say_and_takes_away_what_they_empty(program: Command, store: Store) -> None:
    settings = {
        "JOBS_ALLOWED_QUEUES": "mail, print",
        "JOBS_ALLOWED_QUEUES_OFFICE": "fax",
        "JOBS_QUOTA_MAX_QUEUED": "10",
        "JOBS_QUOTA_MAX_INFLIGHT_OFFICE_USER_ANN": "2",
    }
    assert program("migrate", **settings).code == 0
    assert {document.key: document.body for document in store.list("allow")} == {
        list_key("queues"): {"names": ["mail", "print"]},
        list_key("queues", "office"): {"names": ["fax"]},
    }
    assert quotas(store) == [Quota(None, None, 10), Quota("office", "ann", None, None, 2)]
    assert program("migrate").code == 0
    assert len(quotas(store)) == 2
    assert program("migrate", **dict.fromkeys(settings, "")).code == 0
    assert quotas(store) == store.list("allow") == []


def test_settings_that_can_not_be_are_told_by_their_names(program: Command, store: Store) -> None:
    done = program(
        "migrate", JOBS_QUOTA_MAX_QUEUED_OFFICE="hunter2", JOBS_ALLOWED_QUEUES="a\x1b", WORKER_CONCURRENCY="17"
    )
    assert done.code == 2
    for name in ("JOBS_QUOTA_MAX_QUEUED_OFFICE", "JOBS_ALLOWED_QUEUES", "WORKER_CONCURRENCY"):
        assert name in done.err
    assert "hunter2" not in done.err
    assert quotas(store) == []
