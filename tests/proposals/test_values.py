"""The small pieces: settings, positions, the dialects' spelling, the tree of refusals."""

from __future__ import annotations

import re

import pytest

from actors.proposals import refusals
from actors.proposals.job import scan_repositories, track_repository
from actors.proposals.passes import Position
from actors.proposals.settings import ProposalSettings
from actors.proposals.statements import dialect_of, spelled
from store.errors import DramaturgError, SettingsInvalid, UsageError
from store.outcome import Again, Retry
from store.settings import load

# --- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["4.9", "3600.1", "0", "-1", "nan", "soon"])
def test_an_interval_outside_of_five_seconds_to_an_hour_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROPOSAL_CHECK_INTERVAL_SECONDS", value)
    with pytest.raises(SettingsInvalid, match="PROPOSAL_CHECK_INTERVAL_SECONDS"):
        load(ProposalSettings)


@pytest.mark.parametrize(("value", "seconds"), [(None, 30), ("", 30), ("5", 5), ("3600", 3600), ("7.5", 7.5)])
def test_the_interval_is_thirty_seconds_unless_it_is_set(
    value: str | None, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PROPOSAL_CHECK_INTERVAL_SECONDS", raising=False)
    if value is not None:
        monkeypatch.setenv("PROPOSAL_CHECK_INTERVAL_SECONDS", value)
    assert load(ProposalSettings).check_interval == seconds


# --- passes -----------------------------------------------------------------------------------------------------------


def test_a_position_survives_its_checkpoint() -> None:
    position = Position().failing("branch_missing").failing("other")
    went_on = position.go_on("some-id")
    assert Position.read(went_on.checkpoint, woken=False) == Position("some-id", 2, "branch_missing", False)
    assert Position.read(went_on.checkpoint, woken=True).woken


@pytest.mark.parametrize("checkpoint", [None, 7, [], {}, {"after": "x"}, {"cursor": 1}])
def test_a_checkpoint_that_is_not_ours_begins_a_pass(checkpoint: object) -> None:
    assert Position.read(checkpoint, woken=True) == Position()


@pytest.mark.parametrize("draw", [0.0, 0.5, 1.0])
def test_a_pass_ends_by_what_happened_in_it(draw: float) -> None:
    assert Position().finish(30, draw) == Again(seconds=30 * (1 + 0.1 * draw), checkpoint=None)
    assert Position(failed=1, code="broken").finish(30, draw) == Retry("broken", checkpoint=None)
    assert Position(failed=1, code="broken", woken=True).finish(30, draw) == Again(checkpoint=None)


# --- the rest ---------------------------------------------------------------------------------------------------------


def test_a_store_that_proposals_have_no_tables_for_is_refused() -> None:
    with pytest.raises(UsageError, match="sqlite, postgres, surreal"):
        dialect_of("oracle")


def test_parameters_are_spelled_as_each_driver_wants_them() -> None:
    statement = "SELECT {now} FROM {our}proposal WHERE id = :id AND x > :after"
    assert spelled(dialect_of("postgres"), statement) == (
        "SELECT now() FROM dramaturg.proposal WHERE id = %(id)s AND x > %(after)s"
    )
    assert spelled(dialect_of("sqlite"), statement).endswith("FROM dramaturg_proposal WHERE id = :id AND x > :after")


def test_the_drawing_of_the_refusals_shows_each_with_a_code_of_its_own() -> None:
    kinds = [
        kind for kind in vars(refusals).values() if isinstance(kind, type) and kind.__module__ == refusals.__name__
    ]
    assert kinds
    assert all(issubclass(kind, DramaturgError) for kind in kinds)
    drawn = set(re.findall(r"── (\w+)  ", refusals.__doc__ or "")) - {"NotFound"}
    assert drawn == {kind.__name__ for kind in kinds}
    assert len({kind("").code for kind in kinds}) == len(kinds)


def test_a_failing_pass_comes_back_no_later_than_a_good_one() -> None:
    assert track_repository.policy.backoff_first <= track_repository.policy.backoff_cap <= 300
    assert track_repository.policy.backoff_cap <= load(ProposalSettings).check_interval


def test_the_scan_keeps_no_finished_rows() -> None:
    assert not scan_repositories.policy.keep_finished
