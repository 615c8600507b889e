"""What is encrypted at rest, as the command line shows and changes it, and secrets that it does not let in."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from store.contract import Store
from store.events import Cancel
from store.filters import Filter
from store.operations import apply
from store.sealing import Key, is_sealed, key_id
from tests.cli.conftest import FOREIGN, Command
from tests.cli.test_operating import job_of

OLD, NEW, LOST = (base64.b64encode(letter * 32).decode() for letter in (b"o", b"n", b"l"))
SEALED = {"JOBS_ENCRYPT": "true", "JOBS_CRYPTO_KEY": OLD}
ROTATING = {"JOBS_ENCRYPT": "true", "JOBS_CRYPTO_KEY": NEW, "JOBS_CRYPTO_SECONDARY_KEY": OLD}
TOKEN = "ghp_" + "a" * 36


def ids(*keys: bytes) -> list[str]:
    return [Key(key * 32).id for key in keys]


def wake(dramaturg: Command, key: str, payload: str = '{"n":"plain-one"}', **settings: str) -> str:
    ran = dramaturg("wake", FOREIGN, "--key", key, "--payload", payload, "--json", **settings)
    assert ran.code == 0, ran.err
    return str(ran.json["id"])


def test_a_wake_is_sealed_and_shown_as_such_unless_it_is_opened(store: Store, dramaturg: Command) -> None:
    id_ = wake(dramaturg, "k", **SEALED)
    assert is_sealed(job_of(store, id_).payload)

    shown = dramaturg("show", id_)
    assert f"encrypted with key {ids(b'o')[0]}" in shown.out
    assert "plain-one" not in shown.out + dramaturg("show", id_, "--json").out
    assert dramaturg("show", id_, "--reveal", "--json", **SEALED).json["payload"] == {"n": "plain-one"}
    closed = dramaturg("show", id_, "--reveal", JOBS_CRYPTO_KEY=NEW)
    assert closed.code == 1
    assert "JOBS_CRYPTO_SECONDARY_KEY" in closed.err


def test_rotate_seals_anew_tells_what_it_would_do_and_what_it_could_not_open(store: Store, dramaturg: Command) -> None:
    fine, lost = wake(dramaturg, "a", **SEALED), wake(dramaturg, "b", JOBS_ENCRYPT="true", JOBS_CRYPTO_KEY=LOST)
    clear = wake(dramaturg, "c")
    before = job_of(store, lost)

    dry = dramaturg("crypto", "rotate", "--all", "--dry-run", "--json", **ROTATING)
    assert dry.code == 1
    assert key_id(job_of(store, fine).payload) == ids(b"o")[0]
    ran = dramaturg("crypto", "rotate", "--all", "--json", **ROTATING)
    assert ran.code == 1
    assert lost in ran.err
    assert ran.json | {"dry_run": True} == dry.json
    assert ran.json == {
        "jobs": 3, "resealed": 1, "current": 0, "clear": 1, "unopened": 1, "unsettled": 0,
        "next": None, "dry_run": False, "key": ids(b"n")[0], "unopened_jobs": [lost],
    }  # fmt: skip
    assert key_id(job_of(store, fine).payload) == ids(b"n")[0]
    assert job_of(store, lost) == before

    sealed = dramaturg("crypto", "rotate", "--key", "c", "--seal-clear", **ROTATING)
    assert sealed.code == 0
    assert is_sealed(job_of(store, clear).payload)


def test_rotate_goes_on_where_it_ended(dramaturg: Command) -> None:
    for key in "abc":
        wake(dramaturg, key, **SEALED)
    first = dramaturg("crypto", "rotate", "--all", "--limit", "2", "--json", **ROTATING)
    assert first.json["resealed"] == 2
    assert f"--after {first.json['next']}" in dramaturg("crypto", "rotate", "--all", "--limit", "2", **ROTATING).out
    rest = dramaturg("crypto", "rotate", "--all", "--after", first.json["next"], "--json", **ROTATING)
    assert (rest.json["resealed"], rest.json["next"]) == (1, None)


@pytest.mark.parametrize("compress", ["false", "true"])
def test_deleted_jobs_that_were_kept_are_rotated_and_opened_too(
    store: Store, dramaturg: Command, compress: str
) -> None:
    made = [wake(dramaturg, key, **SEALED) for key in "ab"]
    apply(store, Filter(ids=made), Cancel())
    archived = {"JOBS_ARCHIVE_BEFORE_DELETE": "true", "JOBS_ARCHIVE_COMPRESS": compress}
    pruned = dramaturg("prune", "--state", "cancelled", "--older-than", "0s", "--json", **archived)
    assert pruned.code == 0, pruned.err

    assert "plain-one" not in dramaturg("archive", "show", made[0], "--json").out
    first = dramaturg("crypto", "rotate", "--archived", "--type", FOREIGN, "--limit", "1", "--json", **ROTATING)
    assert first.json["jobs"] == 1
    rest = dramaturg(
        "crypto", "rotate", "--archived", "--all", "--after", first.json["next"], "--json", **ROTATING
    )  # fmt: skip
    assert rest.json["next"] is None
    for id_ in made:
        shown = dramaturg("archive", "show", id_, "--reveal", "--json", JOBS_CRYPTO_KEY=NEW)
        assert shown.json["payload"] == {"n": "plain-one"}


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--all", "--key", "k"),
        ("--all", "--after", "nonsense"),
        ("--all", "--archived", "--after", "00000000-0000-7000-8000-000000000000"),
        ("--all", "--archived", "--after", "00000000-0000-7000-8000-000000000000:9999999999999999999"),
        ("--archived", "--state", "failed"),
    ],
)
def test_what_is_not_said_right_is_a_usage_error(dramaturg: Command, words: tuple[str, ...]) -> None:
    assert dramaturg("crypto", "rotate", *words, **ROTATING).code == 2


def test_without_a_key_nothing_is_rotated(dramaturg: Command) -> None:
    ran = dramaturg("crypto", "rotate", "--all")
    assert ran.code == 2
    assert "JOBS_CRYPTO_KEY" in ran.err


def test_secrets_are_refused_or_redacted_and_named_by_their_path(store: Store, dramaturg: Command) -> None:
    payload = f'{{"deep":[{{"api_key":"hunter2"}},"{TOKEN}"]}}'
    ran = dramaturg("wake", FOREIGN, "--key", "k", "--payload", payload, "--json", JOBS_SECRET_REJECT="true")
    assert ran.code == 2
    assert "payload.deep[0].api_key" in ran.err
    assert "payload.deep[1]" in ran.err
    assert "hunter2" not in ran.out + ran.err
    assert TOKEN not in ran.out + ran.err
    assert store.find(Filter()) == []
    id_ = wake(dramaturg, "k", payload, JOBS_SECRET_REDACT="true")
    row = job_of(store, id_)
    assert "hunter2" not in row.payload
    assert TOKEN not in row.payload
    refused = dramaturg("wake", FOREIGN, "--key", TOKEN, JOBS_SECRET_REDACT="true")
    assert refused.code == 2
    assert TOKEN not in refused.out + refused.err


def test_a_line_that_somebody_puts_on_a_job_is_looked_at(store: Store, dramaturg: Command) -> None:
    id_ = wake(dramaturg, "k")
    refused = dramaturg("attach", id_, "--log", f"with {TOKEN}", JOBS_SECRET_REJECT="true")
    assert refused.code == 2
    assert TOKEN not in refused.err
    assert store.attachments(id_) == []
    assert dramaturg("attach", id_, "--log", f"with {TOKEN}", JOBS_SECRET_REDACT="true").code == 0
    assert TOKEN.encode() not in (store.attachment(id_, 1) or ("", b""))[1]


def test_settings_of_the_boundary_are_told_with_all_others(dramaturg: Command, tmp_path: Path) -> None:
    ran = dramaturg(
        "list", JOBS_CRYPTO_KEY="hunter2", JOBS_SECRET_PATTERNS="(", JOBS_CRYPTO_SECONDARY_KEY_FILE=str(tmp_path)
    )
    assert ran.code == 2
    for name in ("JOBS_CRYPTO_KEY", "JOBS_SECRET_PATTERNS", "JOBS_CRYPTO_SECONDARY_KEY_FILE"):
        assert name in ran.err
    assert "hunter2" not in ran.err
