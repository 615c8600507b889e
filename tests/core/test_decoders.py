"""Whatever stands in a payload, a setting, a key's file or a cursor: it is read, or refused by a code and not shown."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from actors.proposals.settings import ProposalSettings
from middleware.settings import WorkerSettings
from scheduler.settings import SweepSettings
from store import archive, payloads
from store.boundary import SECTIONS
from store.contract import Archived
from store.errors import CursorTooOld, PayloadInvalid, Refused, SettingsInvalid
from store.identity import new_id
from store.limit_settings import LimitSettings
from store.outbox import Extent, page_of
from store.settings import Section, StoreSettings, load_all

ALL: tuple[type[Section], ...] = (
    StoreSettings, WorkerSettings, LimitSettings, SweepSettings, ProposalSettings, *SECTIONS,
)  # fmt: skip

#: What an environment can hold: any bytes but zero ones.
WORDS = st.binary(max_size=40).map(lambda raw: os.fsdecode(raw.replace(b"\0", b"")))

#: Every variable of ours, those with a domain or a user after them included.
NAMES = [
    name.removesuffix("*") + ("office" if name.endswith("*") else "")
    for section in ALL
    for field in section.model_fields.values()
    if isinstance(name := field.validation_alias, str)
]


def wrong(name: str, value: str) -> str | None:
    """What is told of a setting; None where it is taken."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(name, value)
        try:
            load_all(*ALL)
        except SettingsInvalid as error:
            return str(error)
    return None


def test_all_variables_are_among_those_that_are_tried() -> None:
    assert len(NAMES) > 40
    assert {"JOBS_CRYPTO_KEY", "JOBS_SECRET_PATTERNS", "JOBS_DB_URL", "JOBS_ENCRYPT_office"} <= set(NAMES)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(NAMES), WORDS | st.text("0123456789.-+e_,;:()[]{}*?", max_size=30))
@example("JOBS_SECRET_PATTERNS", "(" * 200)
@example("JOBS_LEASE_SECONDS", "9" * 5000)
@example("WORKER_CONCURRENCY", "9" * 5000)
@example("JOBS_MAX_JSON_BYTES", "1e999")
@example("JOBS_LEASE_SECONDS", "nan")
def test_no_setting_does_anything_but_hold_or_be_told_without_its_value(name: str, value: str) -> None:
    told = wrong(name, value)
    if told is not None:
        assert "JOBS_" in told or "WORKER_" in told or "PROPOSAL_" in told
        assert len(value) < 12 or value not in told


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    raw=st.binary(max_size=200)
    | st.binary(min_size=32, max_size=32).map(base64.b64encode)
    | st.binary(min_size=30, max_size=34).map(base64.b64encode)
)
@example(raw=b"=" * 44)
@example(raw=b"\xef\xbb\xbf" + base64.b64encode(b"k" * 32))
def test_a_keys_file_holds_a_key_or_is_refused_without_being_shown(tmp_path: Path, raw: bytes) -> None:
    file = tmp_path / "key"
    file.unlink(missing_ok=True)
    file.write_bytes(raw)
    file.chmod(0o400)
    told = wrong("JOBS_CRYPTO_KEY_FILE", str(file))
    if told is None:
        assert len(base64.b64decode(raw.strip(), validate=True)) == 32
    else:
        assert "JOBS_CRYPTO_KEY_FILE" in told
        assert len(raw) < 12 or raw.decode("latin-1") not in told


BRACKETS = st.text('[]{}":,0123456789.eE+-\\u nulltrefasNI\x00', max_size=60)


@given(st.text() | BRACKETS)
@example("9" * 5000)
@example('{"a":' + "9" * 5000 + "}")
@example('"\\ud800"')
@example("[" * 100_000)
def test_any_text_is_a_payload_or_is_refused_by_its_code(text: str) -> None:
    try:
        taken = payloads.check(text)
    except PayloadInvalid as error:
        told = str(error)
        assert len(told) < 200
    else:
        assert payloads.check(taken) == taken
        assert json.loads(taken) == json.loads(text)


@given(st.none() | st.integers(-(2**70), 2**70), st.integers(1, 100), st.integers(1, 2**63), st.integers(0, 2**63))
def test_any_cursor_gives_a_page_or_is_refused_by_its_code(
    after: int | None, limit: int, oldest: int, length: int
) -> None:
    kept = Extent(oldest, oldest - 1 + length)
    try:
        page = page_of(after, limit, kept, [])
    except CursorTooOld:
        assert after is not None
        assert after < kept.oldest - 1
    except Refused:
        assert after is not None
        assert after > kept.newest
    else:
        assert kept.oldest - 1 <= page.cursor <= kept.newest


NUMBERS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=9,
)


@given(st.dictionaries(st.text(max_size=9), NUMBERS, max_size=5), st.sampled_from([None, 1]), NUMBERS)
def test_a_kept_row_is_taken_apart_and_put_together_as_it_was(
    others: dict[str, Any], indent: int | None, anew: Any
) -> None:
    spelled = json.dumps(others | {"payload": {"n": 1}}, indent=indent)
    kept = Archived(new_id(), 1, "d", "q", "t", None, spelled)
    text = json.dumps(anew)
    changed = archive.with_texts(kept, {"payload": text})
    assert json.loads(changed.job) == others | {"payload": anew}
    if anew is not None:
        assert archive.texts(changed)["payload"] == text
