from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store.errors import SettingsInvalid
from store.valkey.address import Address, parse

GOOD = {
    "redis://localhost": Address((("localhost", 6379),)),
    "redis://h:7/3": Address((("h", 7),), db=3),
    "redis://:p%40ss@h": Address((("h", 6379),), password="p@ss"),
    "redis://u%3A:p@[::1]:7/0": Address((("::1", 7),), username="u:", password="p"),
    "rediss://h?ssl_ca_certs=/a/b.pem&ssl_check_hostname=false": Address(
        (("h", 6379),), tls=True, tls_options=(("ssl_ca_certs", "/a/b.pem"), ("ssl_check_hostname", False))
    ),
    "unix:///run/a%20b.sock": Address(path="/run/a b.sock"),
    "unix://u:p@/run/v.sock?db=2": Address(path="/run/v.sock", db=2, username="u", password="p"),
    "unix:///v.sock?password=p&username=u": Address(path="/v.sock", username="u", password="p"),
    "redis+cluster://u:p@a:1,b,[::1]:3": Address(
        (("a", 1), ("b", 6379), ("::1", 3)), cluster=True, username="u", password="p"
    ),
    "rediss+cluster://a/0": Address((("a", 6379),), cluster=True, tls=True),
}


@pytest.mark.parametrize("url", list(GOOD))
def test_a_url_is_taken_apart(url: str) -> None:
    assert parse(url) == GOOD[url]


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("", "scheme"),
        ("localhost:6379", "scheme"),
        ("http://secret@h", "scheme"),
        ("redis://", "no host"),
        ("redis://:secret@", "no host"),
        ("redis://secret@h:port", "host or port"),
        ("redis://secret@h:99999", "host or port"),
        ("redis://secret@[h", "can't be read"),
        ("redis://secret@a,b", "several hosts"),
        ("redis://secret@h/x", "database"),
        ("redis://secret@h/-1", "database"),
        ("redis://secret@h/999999", "database"),
        ("redis+cluster://secret@h/1", "only database 0"),
        ("unix://", "no socket"),
        ("unix:///s?ssl_ca_certs=secret", "ssl_ca_certs"),
        ("redis://h?retry_on_timeout=secret", "retry_on_timeout"),
        ("redis://h?decode_responses=secret", "decode_responses"),
        ("redis://h?db=1", "db"),
        ("rediss://h?ssl_cert_reqs=secret", "required or none"),
        ("rediss://h?ssl_check_hostname=secret", "true or false"),
    ],
)
def test_a_url_that_is_wrong_is_refused_with_its_fault_and_not_repeated(url: str, fault: str) -> None:
    with pytest.raises(SettingsInvalid, match=fault) as caught:
        parse(url)
    assert "secret" not in str(caught.value)


@settings(deadline=None)
@given(st.sampled_from(["redis://", "rediss://", "unix://", "redis+cluster://", ""]), st.text())
def test_no_text_makes_it_fail_otherwise(scheme: str, rest: str) -> None:
    with contextlib.suppress(SettingsInvalid):
        parse(scheme + rest)


def test_an_address_is_shown_without_user_and_password() -> None:
    for url in GOOD:
        address = parse(url)
        assert "@" not in str(address)
        assert address.password is None or repr(address.password) not in repr(address)
    assert str(parse("rediss+cluster://u:p@a:1,b")) == "rediss+cluster://a:1,b:6379"
    assert str(parse("unix://u:p@/v.sock?db=1")) == "unix:///v.sock"
