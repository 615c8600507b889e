"""Secrets are found by names and patterns, told by their path alone, and in a time that the text's length bounds."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store.errors import SecretFound, SettingsInvalid
from store.hygiene import PATTERNS, REDACTED, Hygiene, HygieneSettings
from store.settings import load

REFUSING, REDACTING = Hygiene(reject=True), Hygiene(redact=True)

SAMPLES = {
    "openai": "sk-" + "a1B2" * 10,
    "aws": "AKIA" + "ABCDEFGH01234567",
    "github": "ghp_" + "a" * 36,
    "github fine": "github_pat_" + "a" * 30,
    "jwt": "eyJ" + "hbGciOiJI" + ".eyJ" + "zdWIiOiIx" + ".SflKxwRJSM",
    "google": "AIza" + "b" * 35,
    "slack": "xoxb-" + "123456789012",
    "key": "-----BEGIN RSA " + "PRIVATE KEY-----\nMIIE",
}


def cleaned(value: Any) -> Any:
    return json.loads(REDACTING.json(json.dumps(value), "payload"))


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
def test_each_kind_is_found_wherever_it_stands(sample: str) -> None:
    for text in (sample, f"see {sample}", f"https://host/?k={sample}&x", f"\n{sample}\n"):
        assert cleaned({"a": [{"b": text}]}) == {"a": [{"b": REDACTED}]}
        with pytest.raises(SecretFound) as caught:
            REFUSING.json(json.dumps({"a": [{"b": text}]}), "payload")
        assert "payload.a[0].b" in str(caught.value)
        assert sample[:12] not in str(caught.value)


@pytest.mark.parametrize(
    "key",
    ["api_key", "apiKey", "X-API-Key", "API_KEY", "password", "db_password", "githubToken", "SECRET", "set-cookie"],
)
def test_a_value_is_a_secret_by_the_last_words_of_its_key(key: str) -> None:
    assert cleaned({key: "x1y2", "n": 1}) == {key: REDACTED, "n": 1}
    assert cleaned({"deep": [{key: {"a": ["b"]}}]}) == {"deep": [{key: REDACTED}]}
    assert cleaned({key: 1}) == {key: REDACTED}


@pytest.mark.parametrize(
    "key", ["token_count", "secretary", "passwordless", "tokens_used", "broken", "authorization_id"]
)
def test_a_name_that_only_sounds_like_one_is_left_alone(key: str) -> None:
    assert cleaned({key: "x"}) == {key: "x"}


def test_what_holds_nothing_is_no_finding() -> None:
    for value in (None, "", True, False, REDACTED):
        assert REFUSING.json(json.dumps({"password": value}), "payload") == json.dumps({"password": value})


def test_text_without_findings_comes_back_as_it_was() -> None:
    text = '{"invoice_id": 7,   "note": "sk-short"}'
    assert REDACTING.json(text, "payload") is text
    assert REFUSING.json(text, "payload") is text


def test_a_key_that_is_a_secret_is_neither_kept_nor_told() -> None:
    sample = SAMPLES["github"]
    assert cleaned({sample: 1, REDACTED: 2}) == {f"{REDACTED}2": 1, REDACTED: 2}
    with pytest.raises(SecretFound) as caught:
        REFUSING.json(json.dumps({sample: {"x": sample}}), "payload")
    assert sample not in str(caught.value)


def test_a_jobs_name_that_holds_a_secret_is_refused_since_it_is_never_redacted() -> None:
    for hygiene in (REFUSING, REDACTING):
        with pytest.raises(SecretFound, match="key"):
            hygiene.name("order " + SAMPLES["github"], "key")
    with pytest.raises(SecretFound) as caught:
        REDACTING.json('{"password":"hunter2"}', "payload", apart_from=("user:hunter2", None))
    assert "hunter2" not in str(caught.value)


def test_a_long_list_of_findings_is_cut() -> None:
    with pytest.raises(SecretFound) as caught:
        REFUSING.json(json.dumps([{"password": "x1"}] * 5000), "payload")
    assert "4990 more" in str(caught.value)
    assert len(str(caught.value)) < 3000


def test_a_line_is_redacted_whole() -> None:
    assert REDACTING.line(f"using {SAMPLES['jwt']}", "the progress message") == REDACTED
    assert REDACTING.line("page 3 of 9", "the progress message") == "page 3 of 9"
    with pytest.raises(SecretFound):
        REFUSING.line(SAMPLES["jwt"], "the progress message")


HOSTILE: dict[str, Callable[[int], str]] = {
    "almost a JWT, again and again": lambda size: "eyJ" * (size // 3),
    "JWTs without an end": lambda size: "eyJaaaaaaaa." * (size // 12),
    "almost an API key": lambda size: "sk-" * (size // 3),
    "almost a private key": lambda size: "-----BEGIN " * (size // 11),
    "one letter": lambda size: "a" * size,
    "what ruins (a+)+$": lambda size: "a" * size + "!",
}


@pytest.mark.parametrize("make", HOSTILE.values(), ids=HOSTILE)
def test_ten_times_the_text_takes_about_ten_times_as_long(make: Callable[[int], str]) -> None:
    # Ratios, never seconds: a square would be a hundred times. The backtracking engines would not come back at all.
    hygiene = Hygiene(redact=True, patterns=(*PATTERNS, r"(a+)+$", r"(a|a)*b", r"(.*a){12}c"))

    def took(size: int) -> float:
        text, best = json.dumps([make(size)]), float("inf")
        for _ in range(3):
            began = time.process_time()
            hygiene.json(text, "payload")
            best = min(best, time.process_time() - began)
        return best

    assert took(1_000_000) < 40 * max(took(100_000), 0.002)  # below that it is the clock that is measured


def test_many_small_texts_and_deep_ones_are_looked_at() -> None:
    wide = {str(number): f"value {number}" for number in range(50_000)}
    assert cleaned(wide) == wide
    deep: Any = SAMPLES["aws"]
    for _ in range(63):
        deep = [deep]
    with pytest.raises(SecretFound):
        REFUSING.json(json.dumps(deep), "payload")
    assert cleaned({"a_" * 400_000 + "password": "x1"})["a_" * 400_000 + "password"] == REDACTED


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
)


@settings(max_examples=200)
@given(JSON, st.sampled_from([*SAMPLES.values()]), st.sampled_from(["password", "note"]))
def test_whatever_is_redacted_holds_no_secret_any_more(value: Any, sample: str, key: str) -> None:
    text = json.dumps({"a": value, "b": {key: sample}}).replace("\\u0000", "0")
    clean = REDACTING.json(text, "payload")
    assert sample not in clean
    assert REDACTING.json(clean, "payload") == clean
    assert REFUSING.json(clean, "payload") == clean


# --- settings


def loaded(monkeypatch: pytest.MonkeyPatch, **values: str) -> Hygiene:
    for name, value in values.items():
        monkeypatch.setenv(f"JOBS_SECRET_{name}", value)
    return load(HygieneSettings).hygiene


def test_it_is_off_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not loaded(monkeypatch).on
    assert loaded(monkeypatch, REDACT="true").on


def test_lists_of_ones_own_take_the_place_of_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    hygiene = loaded(monkeypatch, REDACT="true", DENY_KEYS="iban, Card-Number", PATTERNS=r"DE\d{20}; [0-9]{4}-x{2,3}")
    given = {"iban": "i1", "my_card_number": "c1", "password": "p1", "a": "DE" + "1" * 20, "b": "1234-xx"}
    assert json.loads(hygiene.json(json.dumps(given), "payload")) == {
        "iban": REDACTED, "my_card_number": REDACTED, "password": "p1", "a": REDACTED, "b": REDACTED,
    }  # fmt: skip


@pytest.mark.parametrize(
    "values",
    [
        {"PATTERNS": "("},
        {"PATTERNS": r"(a)\1"},
        {"PATTERNS": "(?=hunter2)"},
        {"PATTERNS": "a*"},
        {"PATTERNS": "good;^"},
        {"PATTERNS": "a{1000}{1000}{1000}"},
        {"PATTERNS": "x" * 501},
        {"PATTERNS": ";".join(["x"] * 65)},
        {"DENY_KEYS": "password,--"},
        {"REJECT": "hunter2"},
    ],
)
def test_what_can_not_be_used_is_told_at_start_and_not_shown(
    monkeypatch: pytest.MonkeyPatch, values: dict[str, str]
) -> None:
    with pytest.raises(SettingsInvalid) as caught:
        loaded(monkeypatch, **values)
    assert "JOBS_SECRET_" in str(caught.value)
    assert "hunter2" not in str(caught.value)
