"""What only SQLite can show of the outbox: triggers that exist only while they are wanted."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from store.open import open_store
from tests.contract.acts import publish
from tests.contract.rows import TYPE, wake
from tests.contract.test_outbox import limit, turn

TRIGGERS = "SELECT name FROM sqlite_master WHERE type = 'trigger' AND name LIKE '%event'"


def test_triggers_exist_only_while_somebody_wants_them(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/jobs.db")
    store.migrate()
    publish(store, TYPE)
    with sqlite3.connect(tmp_path / "jobs.db") as stranger:
        assert stranger.execute(TRIGGERS).fetchall() == []
        turn(store)
        assert len(stranger.execute(TRIGGERS).fetchall()) == 3
        limit(store, duration=5)
        turn(store, on=False)
        assert len(stranger.execute(TRIGGERS).fetchall()) == 1  # what looks at limits
        limit(store, removed=True)
        assert stranger.execute(TRIGGERS).fetchall() == []
    stranger.close()
    store.close()


def test_positions_go_on_where_they_were_in_a_copy_of_the_database(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/jobs.db")
    store.migrate()
    publish(store, TYPE)
    turn(store)
    store.wake([wake("a"), wake("b")])
    assert store.prune_events(seconds=-60, through=2) == 2
    store.close()
    with sqlite3.connect(tmp_path / "jobs.db") as old, sqlite3.connect(tmp_path / "copy.db") as new:
        new.execute("PRAGMA writable_schema = ON")
        for statement in old.iterdump():
            if statement not in ("BEGIN TRANSACTION;", "COMMIT;"):
                new.execute(statement)
        new.execute("PRAGMA writable_schema = OFF")
    new.close()
    old.close()

    copy = open_store(f"sqlite:///{tmp_path}/copy.db")
    copy.wake([wake("c")])
    assert [(event.position, event.key) for event in copy.events(2).events] == [(3, "c")]
    copy.close()
