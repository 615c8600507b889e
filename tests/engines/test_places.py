"""Where a Postgres lives when its user may not be able to reach the home."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
from pathlib import Path

import pytest

from store.engines import places
from store.engines.places import Account, Place, find_place, postgres_programs, reaches, unprivileged_account
from store.engines.postgres import Postgres
from store.errors import EngineFailed
from tests.engines_fixtures import FAST

ROOT = os.geteuid() == 0


@pytest.fixture
def closed_home(fresh_home: Path) -> Path:
    """A home that others can't pass through."""
    home = fresh_home / "closed" / "home"
    home.mkdir(parents=True)
    home.parent.chmod(0o700)
    return home


@pytest.fixture
def shelter(fresh_home: Path) -> Path:
    (fresh_home / "shelter").mkdir()
    return fresh_home / "shelter"


def test_data_and_binaries_lie_where_the_server_s_user_can_reach_them(
    closed_home: Path, shelter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = postgres_programs().parents[2]
    (closed_home / "site").symlink_to(site)
    hidden = closed_home / "site" / postgres_programs().relative_to(site)
    monkeypatch.setattr(places, "postgres_programs", lambda: hidden)
    found = find_place(closed_home, [shelter])
    with Postgres(closed_home, settings=FAST, shelters=[shelter]) as postgres:
        assert postgres.running
        assert postgres.data.is_relative_to(shelter if ROOT else closed_home)
        assert postgres.log.is_relative_to(closed_home)
    assert stat.S_IMODE(closed_home.parent.stat().st_mode) == 0o700
    assert found.programs.is_relative_to(shelter if ROOT else closed_home)
    before = found.programs.stat().st_ctime_ns
    assert find_place(closed_home, [shelter]) == found
    assert found.programs.stat().st_ctime_ns == before, "copied once"


def test_an_open_home_needs_no_shelter(fresh_home: Path, shelter: Path) -> None:
    assert find_place(fresh_home, [shelter]).data == fresh_home / "postgres"
    assert list(shelter.iterdir()) == []


def test_two_homes_never_share_a_shelter(closed_home: Path, shelter: Path) -> None:
    other = closed_home.parent / "other"
    other.mkdir()
    assert find_place(closed_home, [shelter]).base != find_place(other, [shelter]).base


def test_data_in_a_shelter_is_found_again_when_the_home_has_been_opened(closed_home: Path, shelter: Path) -> None:
    place = find_place(closed_home, [shelter])
    made(place)
    closed_home.parent.chmod(0o755)
    assert find_place(closed_home, [shelter]) == place


def test_data_in_a_home_that_was_closed_is_not_replaced_by_a_new_database(fresh_home: Path, shelter: Path) -> None:
    home = fresh_home / "open" / "home"
    home.mkdir(parents=True)
    place = find_place(home, [shelter])
    made(place)
    home.parent.chmod(0o700)
    if place.account is None:
        assert find_place(home, [shelter]) == place
    else:
        with pytest.raises(EngineFailed, match=r"can't be reached by the user.*chmod o\+x"):
            find_place(home, [shelter])


def made(place: Place) -> None:
    place.data.mkdir()
    if place.account is not None:
        os.chown(place.data, place.account.uid, place.account.gid)


def test_no_shelter_is_an_error_that_says_what_to_do(closed_home: Path, fresh_home: Path) -> None:
    nowhere = [fresh_home / "missing"]
    if ROOT:
        with pytest.raises(EngineFailed, match="JOBS_HOME"):
            find_place(closed_home, nowhere)
    else:
        assert find_place(closed_home, nowhere).base == closed_home


def test_a_system_without_the_usual_accounts_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "ACCOUNTS", ("no-such-account",))
    with pytest.raises(EngineFailed, match="no-such-account"):
        unprivileged_account()


def test_an_account_that_can_t_be_taken_is_an_error(fresh_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "as in a container without other users")

    monkeypatch.setattr(subprocess, "run", refuse)
    with pytest.raises(EngineFailed, match=r"somebody.*EPERM") as refused:
        reaches(Account("somebody", 12345, 12345), fresh_home)
    assert "container" not in str(refused.value)
