"""The schema: made once, by whoever comes first, and refused by who is too old for it."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from store.contract import ANY_VERSION, Document, Store
from store.errors import DramaturgError, Refused, SchemaTooNew
from store.migrations import Subject
from tests.contract.acts import at_once
from tests.contract.adapters import Adapter
from tests.contract.rows import NOW, wake


@pytest.fixture
def fresh(adapter: Adapter) -> Store:
    """A store over an empty database."""
    return adapter.open()


def works(store: Store) -> bool:
    """Whether a job can be woken, claimed and read."""
    store.put(Document("policy", "test.job", ANY_VERSION, {}))
    return store.wake([wake()], now=NOW)[0].created and len(store.due(now=NOW)) == 1


def subject(folder: Path, store: Store, **files: str) -> Subject:
    """A subject whose schema for this store is made of these files."""
    place = folder / "shop" / store.dialect
    place.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        if store.dialect == "surreal":
            (place / f"{name}.surql").write_text(SURQL[text], encoding="utf-8")
        else:
            (place / f"{name}.sql").write_text(text, encoding="utf-8")
    return Subject("shop", folder / "shop")


ORDERS = "CREATE TABLE orders (id integer PRIMARY KEY, note text NOT NULL DEFAULT 'a;b');\n"
FIRST = {"001_orders": ORDERS + "-- a comment; with a semicolon\nINSERT INTO orders (id, note) VALUES (1, 'x;y');\n"}
SECOND = {"002_more": "INSERT INTO orders (id) VALUES (2);\n"}
BROKEN = {"002_more": "INSERT INTO orders (id) VALUES (2);\nINSERT INTO orders (id) VALUES (2);\n"}

#: The same files in SurrealQL.
SURQL = {
    FIRST["001_orders"]: "DEFINE TABLE orders SCHEMAFULL;\nDEFINE FIELD note ON orders TYPE string DEFAULT 'a;b';\n"
    "-- a comment; with a semicolon\nCREATE orders:1 SET note = 'x;y';\n",
    SECOND["002_more"]: "CREATE orders:2;\n",
    BROKEN["002_more"]: "CREATE orders:2;\nCREATE orders:2;\n",
}


def orders(store: Store) -> list[tuple[int, str]]:
    """What stands in the subject's table."""
    columns = "VALUE [record::id(id), note]" if store.dialect == "surreal" else "id, note"
    with store.transaction() as tx:
        return sorted((number, note) for number, note in tx.execute(f"SELECT {columns} FROM orders"))


def test_an_empty_database_is_migrated_once(fresh: Store, adapter: Adapter) -> None:
    assert fresh.migrate() > 0
    assert fresh.migrate() == 0
    assert adapter.open().migrate() == 0

    fresh.check_schema()
    assert works(fresh)


def test_migrating_again_leaves_the_jobs_alone(store: Store) -> None:
    store.wake([wake()], now=NOW)
    before = store.read([wake().id])

    store.migrate()

    assert store.read([wake().id]) == before


def test_racing_migrators_are_harmless(adapter: Adapter, tmp_path: Path) -> None:
    stores = [adapter.open() for _ in range(4)]
    shop = subject(tmp_path, stores[0], **FIRST, **SECOND)

    counts = at_once([partial(store.migrate, [shop]) for store in stores])

    with stores[0].transaction() as tx:
        [(recorded,)] = tx.execute(adapter.say("count migrations"))
    assert sum(counts) == recorded > 2
    assert orders(stores[0]) == [(1, "x;y"), (2, "a;b")]
    assert works(stores[0])


MIGRATE = "import sys\nfrom store.open import open_store\nprint(open_store(sys.argv[1]).migrate())\n"


def test_racing_processes_are_harmless(fresh: Store, adapter: Adapter) -> None:
    racers = [
        subprocess.Popen([sys.executable, "-c", MIGRATE, adapter.url], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    counts = [int(racer.communicate(timeout=60)[0]) for racer in racers]

    assert [racer.returncode for racer in racers] == [0, 0, 0]
    assert sum(counts) > 0
    assert fresh.migrate() == 0
    assert works(fresh)


def test_a_database_that_was_never_migrated_is_refused_with_the_command_to_run(fresh: Store) -> None:
    with pytest.raises(Refused, match="run `dramaturg migrate`"):
        fresh.check_schema()


def test_a_verb_on_a_database_that_was_never_migrated_is_a_coded_error(fresh: Store) -> None:
    for verb in (
        lambda: fresh.wake([wake()]),
        lambda: fresh.due(),
        lambda: fresh.read([wake().id]),
        lambda: fresh.get("policy", "x"),
        lambda: fresh.lead("sweep", "a", 5),
    ):
        with pytest.raises(DramaturgError) as refused:
            verb()
        assert "CREATE" not in str(refused.value)
        assert "INSERT" not in str(refused.value)
        assert "SELECT" not in str(refused.value)


def _record(store: Store, adapter: Adapter, subject_: str, *, breaking: bool) -> None:
    with store.transaction() as tx:
        tx.execute(adapter.say("migration of the future"), {"subject": subject_, "breaking": breaking})


def _our_name(store: Store, adapter: Adapter) -> str:
    with store.transaction() as tx:
        [(name,)] = tx.execute(adapter.say("subjects"))
    assert isinstance(name, str)
    return name


def test_a_breaking_migration_that_this_program_does_not_know_is_too_new(store: Store, adapter: Adapter) -> None:
    _record(store, adapter, _our_name(store, adapter), breaking=True)

    for ask in (store.migrate, store.check_schema):
        with pytest.raises(SchemaTooNew, match="999"):
            ask()


def test_a_harmless_migration_that_this_program_does_not_know_is_harmless(store: Store, adapter: Adapter) -> None:
    _record(store, adapter, _our_name(store, adapter), breaking=False)

    assert store.migrate() == 0
    store.check_schema()
    assert works(store)


def test_a_breaking_migration_of_a_subject_that_is_not_here_is_none_of_our_business(
    store: Store, adapter: Adapter
) -> None:
    _record(store, adapter, "somebody_else", breaking=True)

    assert store.migrate() == 0
    store.check_schema()


def test_a_subject_brings_its_own_schema(store: Store, tmp_path: Path) -> None:
    shop = subject(tmp_path, store, **FIRST)
    with pytest.raises(Refused, match="shop 001"):
        store.check_schema([shop])

    assert store.migrate([shop]) == 1
    assert store.migrate([shop]) == 0
    store.check_schema([shop])
    assert orders(store) == [(1, "x;y")]

    shop = subject(tmp_path, store, **SECOND)
    with pytest.raises(Refused, match="shop 002"):
        store.check_schema([shop])
    assert store.migrate([shop]) == 1
    assert orders(store) == [(1, "x;y"), (2, "a;b")]


def test_a_breaking_migration_of_a_subject_is_too_new_for_who_brings_an_older_one(
    store: Store, adapter: Adapter, tmp_path: Path
) -> None:
    shop = subject(tmp_path, store, **FIRST)
    store.migrate([shop])
    _record(store, adapter, "shop", breaking=True)

    for ask in (store.migrate, store.check_schema):
        with pytest.raises(SchemaTooNew, match="999 of shop"):
            ask([shop])
    store.check_schema()


def test_a_migration_that_fails_leaves_nothing_of_itself_and_can_be_mended(store: Store, tmp_path: Path) -> None:
    shop = subject(tmp_path, store, **FIRST, **BROKEN)

    with pytest.raises(DramaturgError) as refused:
        store.migrate([shop])
    assert "INSERT" not in str(refused.value)
    assert orders(store) == [(1, "x;y")]

    shop = subject(tmp_path, store, **SECOND)
    assert store.migrate([shop]) == 1
    assert orders(store) == [(1, "x;y"), (2, "a;b")]
