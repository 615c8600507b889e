"""What is sealed opens where it stood, with its key, and nowhere else; what can't be opened is told and never lost."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from store.archive import Archiving, kept
from store.boundary import place_of
from store.crypto_settings import CryptoSettings
from store.errors import PayloadSealed, SettingsInvalid, UsageError
from store.sealing import Key, Place, Sealing, is_sealed, key_id
from store.settings import load
from tests.contract.rows import row, wake

OLD, NEW = Key(b"o" * 32), Key(b"n" * 32)
OLD_TEXT = base64.b64encode(b"o" * 32).decode()
PLACE = Place("office", "default", "invoice.send", "id-1", "payload")


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_what_is_sealed_opens_at_its_place_and_shows_nothing(text: str) -> None:
    sealed = Sealing(OLD).seal(text, PLACE)
    assert is_sealed(sealed)
    assert key_id(sealed) == OLD.id
    assert Sealing(OLD).open(sealed, PLACE) == text
    assert Sealing(NEW, OLD).open(sealed, PLACE) == text


def test_the_envelope_has_the_published_shape() -> None:
    envelope = json.loads(Sealing(OLD).seal('{"n":1}', PLACE))
    assert set(envelope) == {"_encrypted"}
    assert set(envelope["_encrypted"]) == {"_enc", "kid", "nonce", "ct"}
    assert envelope["_encrypted"]["_enc"] == "aesgcm:v1"
    assert len(base64.b64decode(envelope["_encrypted"]["nonce"], validate=True)) == 12


def test_the_same_text_is_never_sealed_alike() -> None:
    assert len({Sealing(OLD).seal("{}", PLACE) for _ in range(100)}) == 100


@pytest.mark.parametrize(
    "elsewhere",
    [
        ("other", "default", "invoice.send", "id-1", "payload"),
        ("office", "high", "invoice.send", "id-1", "payload"),
        ("office", "default", "other", "id-1", "payload"),
        ("office", "default", "invoice.send", "id-2", "payload"),
        ("office", "default", "invoice.send", "id-1", "result"),
    ],
)
def test_what_was_moved_to_another_row_or_column_does_not_open(elsewhere: tuple[str, str, str, str, str]) -> None:
    sealed = Sealing(OLD).seal('{"n":1}', PLACE)
    with pytest.raises(PayloadSealed):
        Sealing(OLD).open(sealed, Place(*elsewhere))


def test_a_rows_place_is_all_of_its_identity_whether_it_is_woken_stored_or_kept() -> None:
    job = row(key="k")
    asked = wake("k")._replace(id=job.id, domain=job.domain, queue=job.queue, job_type=job.job_type)
    places = [place_of(job, "payload"), place_of(asked, "payload"), place_of(kept(job, Archiving()), "payload")]
    assert len({place.bound for place in places}) == 1
    others = [job._replace(**{name: "other"}) for name in ("domain", "queue", "job_type", "id")]  # type: ignore[arg-type]
    bound = [place_of(other, "payload").bound for other in others] + [place_of(job, "result").bound]
    assert len({*bound, places[0].bound}) == 6


def test_another_key_does_not_open_it_and_the_error_names_the_key_that_would() -> None:
    with pytest.raises(PayloadSealed, match=OLD.id):
        Sealing(NEW).open(Sealing(OLD).seal('{"n":1}', PLACE), PLACE)


@given(st.data())
def test_one_changed_byte_is_seen(data: st.DataObject) -> None:
    envelope = json.loads(Sealing(OLD).seal('{"n":12345}', PLACE))
    part = data.draw(st.sampled_from(["nonce", "ct"]))
    raw = bytearray(base64.b64decode(envelope["_encrypted"][part]))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    envelope["_encrypted"][part] = base64.b64encode(raw).decode()
    with pytest.raises(PayloadSealed):
        Sealing(OLD).open(json.dumps(envelope), PLACE)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=30) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
PARTS = st.fixed_dictionaries(
    {}, optional={"_enc": st.just("aesgcm:v1") | JSON, "kid": st.just(OLD.id) | JSON, "nonce": JSON, "ct": JSON}
)


@given(st.one_of(JSON, PARTS).map(lambda inner: json.dumps({"_encrypted": inner})) | st.text())
@example('{"_encrypted":' * 50_000)
@example('{"_encrypted":{"_enc":"aesgcm:v1","kid":"\\ud800","nonce":"\\u00e9","ct":""}}')
def test_any_text_opens_as_it_is_or_is_refused_by_its_code(text: str) -> None:
    key_id(text)
    try:
        opened = Sealing(OLD).open(text, PLACE)
    except PayloadSealed as error:
        assert is_sealed(text)
        told = str(error)
        assert len(told) < 200
    else:
        assert opened == text
        assert not is_sealed(text)


def test_a_row_in_the_clear_is_read_whoever_wrote_it() -> None:
    assert Sealing(OLD, everywhere=True).open('{"n": 1}', PLACE) == '{"n": 1}'


def test_an_envelope_is_known_however_a_database_spells_it() -> None:
    assert is_sealed('{ "_encrypted" : {}}')
    assert is_sealed('\n{"_encrypted":{}}')
    assert not is_sealed('{"a": {"_encrypted": {}}}')


def test_nothing_is_sealed_without_a_key_and_no_key_shows_itself() -> None:
    with pytest.raises(UsageError):
        Sealing().seal("{}", PLACE)
    assert "6f6f" not in repr(OLD)
    assert OLD_TEXT not in repr(OLD)


# --- settings


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("JOBS_ENCRYPT", "JOBS_CRYPTO_KEY", "JOBS_CRYPTO_KEY_FILE", "JOBS_CRYPTO_SECONDARY_KEY"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_nothing_is_sealed_unless_it_is_asked_for(clean: pytest.MonkeyPatch) -> None:
    assert not load(CryptoSettings).sealing.on
    clean.setenv("JOBS_CRYPTO_KEY", OLD_TEXT)
    sealing = load(CryptoSettings).sealing
    assert not sealing.on
    assert sealing.current == OLD.id


def test_a_domain_says_for_itself_whether_it_is_sealed(clean: pytest.MonkeyPatch) -> None:
    clean.setenv("JOBS_CRYPTO_KEY", OLD_TEXT)
    clean.setenv("JOBS_ENCRYPT", "true")
    clean.setenv("JOBS_ENCRYPT_OPEN_HOUSE", "false")
    sealing = load(CryptoSettings).sealing
    assert sealing.wants("office")
    assert not sealing.wants("open_house")
    clean.setenv("JOBS_ENCRYPT", "false")
    clean.setenv("JOBS_ENCRYPT_Office", "true")
    sealing = load(CryptoSettings).sealing
    assert sealing.on
    assert sealing.wants("Office")
    assert not sealing.wants("office")


def test_a_key_comes_from_a_file_that_nobody_else_reads(clean: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(OLD_TEXT + "\n")
    file.chmod(0o400)
    clean.setenv("JOBS_CRYPTO_KEY_FILE", str(file))
    assert load(CryptoSettings).sealing.current == OLD.id
    for mode in (0o404, 0o420, 0o402):
        file.chmod(mode)
        with pytest.raises(SettingsInvalid, match="chmod"):
            load(CryptoSettings)


@pytest.mark.parametrize(
    "settings",
    [
        {"JOBS_ENCRYPT": "true"},
        {"JOBS_ENCRYPT_OFFICE": "true"},
        {"JOBS_ENCRYPT_OFFICE": "perhaps", "JOBS_CRYPTO_KEY": OLD_TEXT},
        {"JOBS_CRYPTO_KEY": "hunter2"},
        {"JOBS_CRYPTO_KEY": base64.b64encode(b"o" * 31).decode()},
        {"JOBS_CRYPTO_KEY": OLD_TEXT[:20] + "\n" + OLD_TEXT[20:]},
        {"JOBS_CRYPTO_KEY": OLD_TEXT.replace("=", "")},
        {"JOBS_CRYPTO_KEY": OLD_TEXT + "!"},
        {"JOBS_CRYPTO_KEY": "\xe9"},
        {"JOBS_CRYPTO_SECONDARY_KEY": "hunter2"},
        {"JOBS_CRYPTO_KEY_FILE": "/nowhere/key"},
        {"JOBS_CRYPTO_KEY_FILE": "/dev/null"},
        {"JOBS_CRYPTO_KEY_FILE": "/etc/passwd"},
    ],
)
def test_what_is_wrong_is_told_at_start_by_the_variables_name(
    clean: pytest.MonkeyPatch, settings: dict[str, str]
) -> None:
    for name, value in settings.items():
        clean.setenv(name, value)
    with pytest.raises(SettingsInvalid) as caught:
        load(CryptoSettings)
    text = str(caught.value)
    assert "JOBS_" in text
    assert "hunter2" not in text
    assert OLD_TEXT[:20] not in text


def test_a_key_is_given_once(clean: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(OLD_TEXT)
    (tmp_path / "key").chmod(0o400)
    clean.setenv("JOBS_CRYPTO_KEY", OLD_TEXT)
    clean.setenv("JOBS_CRYPTO_KEY_FILE", str(tmp_path / "key"))
    with pytest.raises(SettingsInvalid, match="twice"):
        load(CryptoSettings)
