"""Names that are allowed, and ids that every language derives alike."""

from __future__ import annotations

import hashlib
import unicodedata
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store import identity
from store.errors import UsageError
from tests.contract.rows import names

#: Derived by hand (printf 'a\x1fb\x1fc\x1fd' | sha256sum, then version and variant): what other languages must get too.
VECTORS = {
    ("default", "default", "invoice.send", "7"): "0b2821a3-cb3c-82eb-b8ed-aa4383380cbb",
    ("default", "high", "proposal.repository", "münchen/日本 🎭"): "9eb54208-c7b0-8233-9326-0dfe67975723",
    ("a", "b", "c", "d"): "1a840201-53d6-8f97-a8d1-655a1f92be92",
}


@pytest.mark.parametrize(("names", "expected"), VECTORS.items(), ids=[vector[3] for vector in VECTORS])
def test_an_id_is_the_same_in_every_language(names: tuple[str, str, str, str], expected: str) -> None:
    assert identity.job_id(*names) == expected


@given(names("domain"), names("queue"), names("job type"), names("key"))
def test_an_id_with_a_key_is_a_uuid8_of_the_hash(domain: str, queue: str, job_type: str, key: str) -> None:
    made = uuid.UUID(identity.job_id(domain, queue, job_type, key))
    digest = hashlib.sha256(f"{domain}\x1f{queue}\x1f{job_type}\x1f{key}".encode()).digest()

    assert (made.version, made.variant) == (8, uuid.RFC_4122)
    fixed = (0xF << 76) | (0x3 << 62)
    assert made.int | fixed == int.from_bytes(digest[:16]) | fixed


@given(st.lists(names("key"), min_size=4, max_size=4), st.lists(names("key"), min_size=4, max_size=4))
def test_different_names_are_different_jobs(one: list[str], other: list[str]) -> None:
    assert (identity.job_id(*one) == identity.job_id(*other)) == (one == other)


def test_names_can_not_flow_into_one_another() -> None:
    assert identity.job_id("ab", "c", "d", "e") != identity.job_id("a", "bc", "d", "e")


def test_without_a_key_every_id_is_new_and_later_ones_sort_behind() -> None:
    made = [identity.job_id("d", "q", "t", None) for _ in range(2000)]

    assert len(set(made)) == len(made)
    assert {(uuid.UUID(one).version, uuid.UUID(one).variant) for one in made} == {(7, uuid.RFC_4122)}
    times = [one[:13] for one in made]
    assert times == sorted(times)


def test_lease_ids_are_never_the_same() -> None:
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: identity.new_lease_id(), range(4000)))

    assert len(set(made)) == len(made)
    assert {uuid.UUID(one).version for one in made} == {4}


@given(st.sampled_from(sorted(identity.MAX_LENGTH)), names())
def test_an_allowed_name_comes_back_as_it_is(field: str, name: str) -> None:
    assert identity.check_name(field, name) == name


@pytest.mark.parametrize("field", identity.MAX_LENGTH)
def test_a_name_may_be_as_long_as_its_limit_and_no_longer(field: str) -> None:
    limit = identity.MAX_LENGTH[field]

    assert identity.check_name(field, "ä" * limit)
    with pytest.raises(UsageError, match=f"{field} has {limit + 1} characters; {limit} are allowed"):
        identity.check_name(field, "a" * (limit + 1))


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("", "empty"),
        ("  ", "empty"),
        ("\u3000", "empty"),
        ("a\x00b", "control character"),
        ("a\nb", "control character"),
        ("a\x1fb", "control character"),
        ("a\x7f", "control character"),
        ("a\x85", "control character"),
        ("a\x9f", "control character"),
        ("a\ud800", "surrogate"),
        (unicodedata.normalize("NFD", "é"), "NFC"),
        (7, "must be a string, not int"),
        (None, "must be a string, not NoneType"),
        (b"a", "must be a string, not bytes"),
    ],
)
@pytest.mark.parametrize("field", ["domain", "key"])
def test_a_name_that_is_not_allowed_is_refused_with_the_reason(field: str, value: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as refused:
        identity.check_name(field, value)

    assert str(refused.value).startswith(field)


@pytest.mark.parametrize("code", ["a", "Broken", "http.503", "a_b-c:d", "x" * 64])
def test_a_code_may_be(code: str) -> None:
    assert identity.check_code(code) == code


@pytest.mark.parametrize("code", ["", "1a", "a b", "a\n", "é", "x" * 65, ".a", None, 5])
def test_a_code_may_not_be(code: str) -> None:
    with pytest.raises(UsageError, match="a code is a letter"):
        identity.check_code(code)


def test_an_id_is_taken_in_every_spelling_and_answered_in_one() -> None:
    plain = identity.job_id("a", "b", "c", "d")

    for spelling in (plain, plain.upper(), plain.replace("-", ""), f"{{{plain}}}"):
        assert identity.check_id(spelling) == plain


@pytest.mark.parametrize("value", ["", "7", "not-an-id", "0190f3c2-7d1e-8a6b-9c3d", None, 5, b"x"])
def test_what_is_not_an_id_is_refused_without_repeating_it(value: str) -> None:
    with pytest.raises(UsageError, match=r"that is not a job's id"):
        identity.check_id(value)
