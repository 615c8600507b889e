"""Who leads: one holder at a time, and whether the term has been held without a gap."""

from __future__ import annotations

from functools import partial

from store.contract import Store, Term
from tests.contract.acts import at_once
from tests.contract.rows import NOW, later

HELD = Term(held=True, settled=True)
FRESH = Term(held=True, settled=False)


def test_a_term_that_nobody_ever_had_is_taken_and_settled_at_once(store: Store) -> None:
    assert store.lead("sweep", "a", 10, grace=30, now=NOW) == HELD


def test_a_term_is_its_holders_until_it_runs_out(store: Store) -> None:
    store.lead("sweep", "a", 10, now=NOW)

    assert not store.lead("sweep", "b", 10, now=later(9)).held
    assert store.lead("sweep", "b", 10, now=later(11)).held
    assert not store.lead("sweep", "a", 10, now=later(12)).held


def test_a_holder_prolongs_its_term(store: Store) -> None:
    store.lead("sweep", "a", 10, now=NOW)

    assert store.lead("sweep", "a", 10, now=later(9)) == HELD
    assert not store.lead("sweep", "b", 10, now=later(18)).held
    assert store.lead("sweep", "b", 10, now=later(20)).held


def test_one_who_is_refused_prolongs_nothing(store: Store) -> None:
    store.lead("sweep", "a", 10, now=NOW)
    store.lead("sweep", "b", 100, now=later(5))

    assert store.lead("sweep", "b", 10, now=later(11)).held


def test_names_are_terms_of_their_own(store: Store) -> None:
    assert store.lead("sweep", "a", 10, now=NOW).held
    assert store.lead("ticks", "b", 10, now=NOW).held


def test_a_term_counts_by_the_databases_clock(store: Store) -> None:
    assert store.lead("sweep", "a", 60).held
    assert not store.lead("sweep", "b", 60).held
    assert store.lead("ticks", "a", 0.001).held
    while not store.lead("ticks", "b", 60).held:
        assert not store.lead("sweep", "b", 60).held


# --- giving it back ---------------------------------------------------------------------------------------------------


def test_a_term_given_back_is_free_at_once_and_settled(store: Store) -> None:
    store.lead("sweep", "a", 60, grace=30, now=NOW)
    store.resign("sweep", "a", now=later(1))

    assert store.lead("sweep", "b", 60, grace=30, now=later(2)) == HELD


def test_nobody_gives_back_what_is_not_theirs(store: Store) -> None:
    store.resign("sweep", "a", now=NOW)
    store.lead("sweep", "a", 60, now=NOW)
    store.resign("sweep", "b", now=later(1))
    store.resign("ticks", "a", now=later(1))

    assert not store.lead("sweep", "b", 60, now=later(2)).held
    assert store.lead("sweep", "a", 60, now=later(2)).held


def test_what_was_held_up_to_the_giving_back_is_no_gap_but_what_follows_is(store: Store) -> None:
    store.lead("sweep", "a", 600, grace=30, now=NOW)
    store.resign("sweep", "a", now=later(500))
    store.lead("ticks", "a", 600, grace=30, now=NOW)
    store.resign("ticks", "a", now=later(500))

    assert store.lead("sweep", "b", 60, grace=30, now=later(529)) == HELD
    assert store.lead("ticks", "b", 60, grace=30, now=later(531)) == FRESH


def test_giving_back_what_ran_out_long_ago_does_not_hide_the_gap(store: Store) -> None:
    store.lead("sweep", "a", 10, grace=30, now=NOW)
    store.resign("sweep", "a", now=later(100))

    assert store.lead("sweep", "b", 60, grace=30, now=later(101)) == FRESH


def test_who_gave_back_may_take_it_again(store: Store) -> None:
    store.lead("sweep", "a", 60, now=NOW)
    store.resign("sweep", "a", now=later(1))

    assert store.lead("sweep", "a", 60, now=later(2)) == HELD
    assert not store.lead("sweep", "b", 60, now=later(3)).held


# --- settled ----------------------------------------------------------------------------------------------------------


def test_after_a_long_vacancy_a_term_is_unsettled_for_the_grace(store: Store) -> None:
    store.lead("sweep", "a", 10, grace=30, now=NOW)

    assert store.lead("sweep", "b", 60, grace=30, now=later(41)) == FRESH
    assert store.lead("sweep", "b", 60, grace=30, now=later(70)) == FRESH
    assert store.lead("sweep", "b", 60, grace=30, now=later(72)) == HELD


def test_a_short_vacancy_does_not_matter(store: Store) -> None:
    store.lead("sweep", "a", 10, grace=30, now=NOW)

    assert store.lead("sweep", "b", 60, grace=30, now=later(39)) == HELD


def test_the_last_holder_coming_back_after_a_long_vacancy_is_unsettled_too(store: Store) -> None:
    store.lead("sweep", "a", 10, grace=30, now=NOW)

    assert store.lead("sweep", "a", 10, grace=30, now=later(100)) == FRESH
    assert store.lead("sweep", "a", 60, grace=30, now=later(109)) == FRESH
    assert store.lead("sweep", "a", 60, grace=30, now=later(131)) == HELD


def test_the_wait_goes_on_whoever_holds_the_term_meanwhile(store: Store) -> None:
    store.lead("sweep", "a", 10, grace=30, now=NOW)
    assert store.lead("sweep", "b", 10, grace=30, now=later(100)) == FRESH
    store.resign("sweep", "b", now=later(105))

    assert store.lead("sweep", "c", 10, grace=30, now=later(106)) == FRESH
    assert store.lead("sweep", "d", 10, grace=30, now=later(125)) == FRESH
    assert store.lead("sweep", "d", 10, grace=30, now=later(131)) == HELD


def test_a_second_long_vacancy_starts_the_wait_anew(store: Store) -> None:
    store.lead("sweep", "a", 10, grace=30, now=NOW)
    assert store.lead("sweep", "a", 10, grace=30, now=later(100)) == FRESH

    assert store.lead("sweep", "a", 10, grace=30, now=later(145)) == FRESH
    assert store.lead("sweep", "a", 60, grace=30, now=later(154)) == FRESH
    assert store.lead("sweep", "a", 60, grace=30, now=later(176)) == HELD


def test_one_who_is_refused_hears_nothing_of_being_settled(store: Store) -> None:
    store.lead("sweep", "a", 60, now=NOW)

    assert store.lead("sweep", "b", 60, now=later(1)) == Term(held=False, settled=False)


# --- racing -----------------------------------------------------------------------------------------------------------


def test_of_eight_who_ask_at_once_one_leads(store: Store) -> None:
    calls = [partial(store.lead, "sweep", f"holder-{n}", 60) for n in range(8)]

    assert sum(term.held for term in at_once(calls)) == 1


def test_of_eight_who_ask_at_once_for_a_term_that_ran_out_one_leads(store: Store) -> None:
    for turn in range(5):
        now = later(turn * 100)
        calls = [partial(store.lead, "sweep", f"holder-{turn}-{n}", 10, now=now) for n in range(8)]
        assert sum(term.held for term in at_once(calls)) == 1
