"""What a cron expression may say."""

from __future__ import annotations

import periodiq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.ticks import cron, from_spec, parse
from store.errors import UsageError
from tests.scheduler.expressions import EXPRESSIONS

LONGEST = {1: 31, 2: 29, 3: 31, 4: 30, 5: 31, 6: 30, 7: 31, 8: 31, 9: 30, 10: 31, 11: 30, 12: 31}


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@weekly", "0 0 * * sun"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("  5\t4 *  * * ", "5 4 * * *"),
        ("*/15 * * * *", "0,15,30,45 * * * *"),
        ("5-20/5 * * * *", "5,10,15,20 * * * *"),
        ("0 0 * * 7", "0 0 * * 0"),
        ("0 0 * * Mon-FRI", "0 0 * * 1-5"),
        ("0 0 * * sat,sun", "0 0 * * 6-7"),
        ("0 0 * * 0-7", "0 0 * * *"),
        ("0 0 * * */7", "0 0 * * sun"),
        ("*/60 * * * *", "0 * * * *"),
        ("1,*,3 * * * *", "* * * * *"),
        ("007 * * * *", "7 * * * *"),
        ("0 0 1-31 * *", "0 0 * * *"),
    ],
)
def test_what_is_written_differently_and_means_the_same_is_equal(text: str, same: str) -> None:
    assert parse(text) == parse(same)
    assert hash(parse(text)) == hash(parse(same))
    assert parse(text).text == text


@settings(max_examples=80, deadline=None)
@given(EXPRESSIONS)
def test_what_periodiq_reads_is_read_alike_or_refused_as_impossible(text: str) -> None:
    theirs = periodiq.cron(text)
    if len({day % 7 for day in theirs.dow}) == 7 and all(min(theirs.dom) > LONGEST[month] for month in theirs.month):
        with pytest.raises(UsageError, match="no year has such a date"):
            parse(text)
        return
    ours = parse(text)
    assert (sorted(ours.minutes), sorted(ours.hours), sorted(ours.days), sorted(ours.months)) == (
        theirs.minute,
        theirs.hour,
        theirs.dom,
        theirs.month,
    )
    assert ours.weekdays == {day % 7 for day in theirs.dow}
    assert from_spec(theirs) == ours
    assert from_spec(cron(text)) == ours


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "0 fields"),
        ("   ", "0 fields"),
        ("* * * *", "4 fields"),
        ("* * * * * *", "6 fields"),
        ("@reboot", "names are @yearly"),
        ("@Daily", "names are @yearly"),
        ("@daily 5", "2 fields"),
        ("60 * * * *", "minute: 60 is out of range, 0-59"),
        ("* 24 * * *", "hour: 24 is out of range, 0-23"),
        ("* * 0 * *", "day of month: 0 is out of range, 1-31"),
        ("* * 32 * *", "day of month: 32"),
        ("* * * 0 *", "month: 0"),
        ("* * * 13 *", "month: 13"),
        ("* * * * 8", "weekday: 8"),
        ("0-99 * * * *", "minute: 99"),
        ("10-5 * * * *", "runs backwards; write 10-59,0-5"),
        ("* * * * fri-mon", "runs backwards"),
        ("*/0 * * * *", "'0' is no step"),
        ("*/ * * * *", "'' is no step"),
        ("*/-1 * * * *", "'-1' is no step"),
        ("*/90 * * * *", "'90' is no step"),
        ("* */25 * * *", "'25' is no step"),
        ("*/1/2 * * * *", "'1/2' is no step"),
        ("5/15 * * * *", "write 5-59/15"),
        ("1,,2 * * * *", "''"),
        (", * * * *", "''"),
        ("-5 * * * *", "'-5'"),
        ("5- * * * *", "'5-'"),
        ("1-2-3 * * * *", "'1-2-3'"),
        ("** * * * *", r"'\*\*'"),
        ("*-5 * * * *", r"'\*-5'"),
        ("1.5 * * * *", "'1.5'"),
        ("٣ * * * *", "'٣'"),
        ("mon * * * *", "'mon' is not a number"),
        ("* * * jan *", "'jan' is not a number"),
        ("* * * * sunday", "'sunday' is not a number or sun, mon"),
        ("99999999999999999999 * * * *", "is not a number"),
        ("? * * * *", r"'\?'"),
        ("0 0 L * *", "'l' is not a number"),
        ("0 0 31 2 *", "no year has such a date"),
        ("0 0 30 2 *", "no year has such a date"),
        ("0 0 31 2,4,6,9,11 *", "no year has such a date"),
        ("0 0 30-31 2 0-6", "no year has such a date"),
    ],
)
def test_what_can_not_be_meant_is_refused_with_the_reason(text: str, reason: str) -> None:
    for reader in (parse, cron):
        with pytest.raises(UsageError, match=reason) as refused:
            reader(text)
        assert refused.value.code == "usage"
        assert repr(text) in str(refused.value)


@pytest.mark.parametrize("value", [None, 5, b"* * * * *", ["* * * * *"], {}])
def test_what_is_no_text_is_refused(value: object) -> None:
    with pytest.raises(UsageError):
        parse(value)  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        from_spec(value)


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet="0123456789*/-,@ suntefrimo\x00é", max_size=30) | st.text(max_size=20))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        assert parse(text).minutes
    except UsageError:
        with pytest.raises(UsageError):
            cron(text)
    else:
        assert cron(text).minute


def test_a_refusal_of_a_very_long_text_is_short() -> None:
    with pytest.raises(UsageError) as refused:
        parse("5" * 100_000 + " * * * *")
    assert len(str(refused.value)) < 500


def test_periodiqs_values_are_taken_over_with_their_text_or_without() -> None:
    assert from_spec(periodiq.cron("*/15 * * * *")) == parse("*/15 * * * *")
    assert from_spec(periodiq.CronSpec([0], [0], [1], [1], [7])) == parse("0 0 1 1 sun")
    assert from_spec(periodiq.cron("0 0 * * *").replace(h=[3, 4])) == parse("0 3-4 * * *")


@pytest.mark.parametrize(
    "spec",
    [
        periodiq.cron("75 * * * *"),
        periodiq.cron("0 0 31 2 *"),
        periodiq.cron("5/15 * * * *"),
        periodiq.cron("* * * * * *"),
        periodiq.CronSpec([60], [0], [1], [1], [0]),
        periodiq.CronSpec([-1], [0], [1], [1], [0]),
        periodiq.CronSpec([True], [0], [1], [1], [0]),
        periodiq.CronSpec([0.0], [0], [1], [1], [0]),
        periodiq.CronSpec([0], [0], [31], [2], list(range(7))),
    ],
)
def test_periodiqs_values_that_can_not_be_meant_are_refused(spec: periodiq.CronSpec) -> None:
    with pytest.raises(UsageError):
        from_spec(spec)
