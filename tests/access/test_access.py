"""Repositories behind TLS: what a certificate is fetched for, kept and dropped for, and what each refusal is called."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.access import certificates, remote
from actors.access.endpoint import parse_endpoint
from actors.access.errors import CredentialRefused, StorageUnavailable
from actors.access.opening import READER
from actors.access.remote import Storage
from actors.access.settings import AccessSettings
from actors.proposals.git import incarnation
from actors.proposals.refusals import RepositoryHidden
from middleware.credentials import Credential, Credentials, CredentialSettings
from store.errors import CredentialUnusable, SettingsInvalid, UsageError
from store.settings import load
from tests.access.peers import Peers
from tests.proposals.repositories import Workshop


@pytest.fixture
def house(peers: Peers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Storage:
    """The storage as a worker sees it."""
    for name, value in peers.settings.items():
        monkeypatch.setenv(name, value)
    return Storage(load(AccessSettings), tmp_path / "home")


def credential() -> Credential:
    return Credentials(load(CredentialSettings)).open(READER)


def heads(house: Storage, peers: Peers, path: str = "team/app.git") -> dict[str, str | None]:
    with house.open(peers.url(path), credential) as view:
        return view.heads(["main", "feature"])


def test_a_repository_is_read_with_a_certificate_and_as_it_stands_now(
    house: Storage, peers: Peers, workshop: Workshop
) -> None:
    first = workshop.commit("main", {"a.txt": "a\n"})
    assert heads(house, peers) == {"main": first, "feature": None}
    head = workshop.commit("feature", {"a.txt": "b\n"}, parents=[first])
    with house.open(peers.url("team/app.git"), credential) as view:
        assert view.heads(["feature"]) == {"feature": head}
        assert view.incarnation == incarnation.read(workshop.path)
        assert view.compare(first, head).ahead == 1
        assert not view.bare
    assert {account for _, account in peers.asked} == {"first"}
    assert len(peers.fetched) == 1


def test_compressed_answers_are_read(house: Storage, peers: Peers, workshop: Workshop) -> None:
    peers.packed = True
    first = workshop.commit("main", {"a.txt": "a\n"})
    assert heads(house, peers)["main"] == first


def test_nothing_is_sent_again_while_nothing_moves(
    house: Storage, peers: Peers, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    workshop.commit("main", {"a.txt": "a\n"})
    heads(house, peers)
    fetched = []
    monkeypatch.setattr(remote, "_fetch", lambda *details: fetched.append(details))
    before = len(peers.asked)
    heads(house, peers)
    assert (len(peers.asked) - before, fetched) == (1, [])


def test_gits_child_gets_the_certificate_and_nothing_else(
    house: Storage, peers: Peers, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "hunter2")
    seen: list[dict[str, Any]] = []
    run = remote.subprocess.run  # type: ignore[attr-defined]

    def watched(command: list[str], **options: Any) -> Any:
        if "env" not in options:
            return run(command, **options)  # the storage's own
        seen.append(options["env"])
        assert all(Path(options["env"][name]).stat().st_mode & 0o077 == 0 for name in ("GIT_SSL_KEY", "HOME"))
        return run(command, **options)

    monkeypatch.setattr(remote.subprocess, "run", watched)  # type: ignore[attr-defined]
    workshop.commit("main", {"a.txt": "a\n"})
    heads(house, peers)
    [environment] = seen
    assert set(environment) == {
        "PATH", "LC_ALL", "GIT_CONFIG_NOSYSTEM", "GIT_CONFIG_GLOBAL", "GIT_TERMINAL_PROMPT", "GIT_ALLOW_PROTOCOL",
        "GIT_DIR", "HOME", "GIT_SSL_CAINFO", "GIT_SSL_CERT", "GIT_SSL_KEY",
    }  # fmt: skip
    assert not Path(environment["GIT_SSL_KEY"]).exists()
    assert not Path(environment["HOME"]).exists()


def test_a_certificate_is_renewed_at_half_its_life(
    house: Storage, peers: Peers, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    workshop.commit("main", {"a.txt": "a\n"})
    now = [certificates.clock.elapsed()]  # type: ignore[attr-defined]
    monkeypatch.setattr(certificates.clock, "elapsed", lambda: now[0])  # type: ignore[attr-defined]
    for seconds, fetched in ((0, 1), (1700, 1), (150, 2), (1700, 2), (150, 3)):
        now[0] += seconds
        heads(house, peers)
        assert len(peers.fetched) == fetched, seconds


def test_a_refused_certificate_is_dropped_and_fetched_once_more(
    house: Storage, peers: Peers, workshop: Workshop
) -> None:
    workshop.commit("main", {"a.txt": "a\n"})
    heads(house, peers)
    peers.barred.update(peers.fetched)
    heads(house, peers)
    assert len(peers.fetched) == 2
    refused: set[int] = set()

    class Every(set[int]):
        def __contains__(self, serial: object) -> bool:
            refused.add(int(str(serial)))
            return True

    peers.barred = Every()
    with pytest.raises(CredentialRefused, match="issue a new one"):
        heads(house, peers)
    assert len(refused) == 2
    assert len(peers.fetched) == 3


def test_an_expired_certificate_is_refused_by_the_handshake(house: Storage, peers: Peers, workshop: Workshop) -> None:
    workshop.commit("main", {"a.txt": "a\n"})
    peers.life = -30.0  # over when it is issued
    with pytest.raises(CredentialRefused):
        heads(house, peers)
    assert len(peers.fetched) == 2


def test_a_revoked_credential_is_refused_and_a_new_file_needs_no_restart(
    house: Storage, peers: Peers, workshop: Workshop
) -> None:
    workshop.commit("main", {"a.txt": "a\n"})
    peers.revoked.add("first")
    with pytest.raises(CredentialRefused):
        heads(house, peers)
    peers.credential("second")
    assert heads(house, peers)["main"] is not None
    assert {account for _, account in peers.asked} == {"second"}
    peers.credentials["second"] = peers.credentials["first"]  # another's key now: its signature is none
    peers.barred.update(peers.fetched)
    with pytest.raises(CredentialRefused):
        heads(house, peers)


@pytest.mark.parametrize("gone", [False, True])
def test_a_repository_without_grant_or_gone_is_hidden(
    house: Storage, peers: Peers, workshop: Workshop, gone: bool
) -> None:
    path = "team/gone.git" if gone else "team/app.git"
    (peers.granted.add if gone else peers.granted.discard)(path)
    with pytest.raises(RepositoryHidden, match="reader grant") as caught:
        heads(house, peers, path)
    assert path in str(caught.value)


def test_a_git_that_was_killed_in_the_middle_of_a_fetch_stops_nobody(
    house: Storage, peers: Peers, workshop: Workshop, tmp_path: Path
) -> None:
    workshop.commit("main", {"a.txt": "a\n"})
    heads(house, peers)
    [copy] = (tmp_path / "home" / "mirrors").glob("*.git")
    for name in ("packed-refs.lock", "refs/heads/main.lock", "config.lock"):
        (copy / name).touch()
    moved = workshop.commit("main", {"a.txt": "b\n"})
    assert heads(house, peers)["main"] == moved


def test_one_made_anew_is_another_repository(house: Storage, peers: Peers, workshop: Workshop) -> None:
    workshop.commit("main", {"a.txt": "a\n"})
    with house.open(peers.url("team/app.git"), credential) as view:
        before = view.incarnation
    workshop.path.rename(workshop.path.with_name("old"))
    anew = Workshop(workshop.path).commit("main", {"b.txt": "b\n"})
    with house.open(peers.url("team/app.git"), credential) as view:
        assert view.incarnation != before
        assert view.heads(["main"]) == {"main": anew}


def test_a_certificate_is_shown_to_the_storage_alone(house: Storage, peers: Peers) -> None:
    for url in (
        f"tls://localhost:{peers.storage}/team/app.git", f"tls://127.0.0.1:{peers.auth}/team/app.git",
        f"http://127.0.0.1:{peers.storage}/team/app.git", peers.url("../etc"), peers.url("a/../../b"),
        f"tls://user:hunter2@127.0.0.1:{peers.storage}/a", peers.url("a?b=c"),
    ):  # fmt: skip
        with pytest.raises(UsageError) as caught:
            house.open(url, credential)
        assert "hunter2" not in str(caught.value)
    assert peers.asked == peers.fetched == []


@pytest.mark.parametrize("name", ["WEB_SCRIBE_TLS_SERVER_NAME", "SCRIBE_AUTH_TLS_SERVER_NAME"])
def test_a_server_of_another_name_is_not_believed(
    peers: Peers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for variable, value in peers.settings.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setenv(name, "other.test")
    with pytest.raises(StorageUnavailable, match="certificate's name"):
        Storage(load(AccessSettings), tmp_path).open(peers.url("team/app.git"), credential)


def test_an_auth_server_that_is_away_is_no_refusal(house: Storage, peers: Peers, workshop: Workshop) -> None:
    peers.__exit__()
    with pytest.raises(StorageUnavailable):
        heads(house, peers)


@pytest.mark.parametrize("value", ["key", "ca", "endpoint"])
def test_a_credential_with_odd_values_is_unusable(house: Storage, peers: Peers, value: str) -> None:
    good = credential()
    values = {name: good[name] for name in ("id", "key", "ca", "endpoint")} | {value: "hunter2"}
    odd = Credential(READER, good.issued_at, good.expires_at, False, values)
    with pytest.raises(CredentialUnusable) as caught:
        house.open(peers.url("team/app.git"), lambda: odd)
    assert "hunter2" not in str(caught.value)


# --- settings


def set_all(monkeypatch: pytest.MonkeyPatch, **settings: str) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"WEB_SCRIBE_AUTH_SERVER": "tls://a:1", "WEB_SCRIBE_SERVER": "tls://s:1"}, "SCRIBE_READER_CREDENTIAL_FILE"),
        ({"WEB_SCRIBE_AUTH_SERVER": "tls://a:1", "SCRIBE_READER_CREDENTIAL_FILE": "/x"}, "WEB_SCRIBE_SERVER"),
        ({"WEB_SCRIBE_SERVER": "http://s:1", "SCRIBE_READER_CREDENTIAL_FILE": "/x"}, "must be tls://"),
        ({"WEB_SCRIBE_SERVER": "tls://user:hunter2@s:1"}, "neither user"),
        ({"WEB_SCRIBE_SERVER": "tls://s:1/path"}, "without a path"),
        ({"WEB_SCRIBE_SERVER": "ftp://s:1"}, "must start with tls://"),
        ({"WEB_SCRIBE_TLS_CA_FILE": "/nowhere"}, "can't be read"),
        ({"WEB_SCRIBE_TLS_CA_FILE": os.devnull}, "without certificates"),
    ],
)
def test_settings_that_do_not_fit_are_told_at_the_start(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], match: str
) -> None:
    set_all(monkeypatch, **settings)
    with pytest.raises(SettingsInvalid, match=match) as caught:
        load(AccessSettings)
    assert "hunter2" not in str(caught.value)


def test_plain_deployments_need_nothing(tmp_path: Path) -> None:
    settings = load(AccessSettings)
    assert not settings.authenticated
    with pytest.raises(UsageError, match="WEB_SCRIBE_SERVER"):
        Storage(settings, tmp_path).open("tls://s:1/a", credential)


@given(st.text())
def test_any_text_is_an_endpoint_or_refused(text: str) -> None:
    parse: Callable[[str], Any] = parse_endpoint
    try:
        found = parse(f"tls://{text}")
    except ValueError:
        return
    assert parse(found.url) == found
