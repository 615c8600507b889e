"""Random cron expressions that mean something in every field."""

from __future__ import annotations

from hypothesis import strategies as st


def cron_field(least: int, most: int) -> st.SearchStrategy[str]:
    value = st.integers(least, most)
    span = st.tuples(value, value).map(sorted).map(lambda ends: f"{ends[0]}-{ends[1]}")
    stepped = st.tuples(st.one_of(st.just("*"), span), st.integers(1, most - least + 1)).map(lambda p: f"{p[0]}/{p[1]}")
    return st.one_of(
        st.just("*"), st.lists(st.one_of(value.map(str), span, stepped), min_size=1, max_size=3).map(",".join)
    )


EXPRESSIONS = st.tuples(
    cron_field(0, 59), cron_field(0, 23), cron_field(1, 31), cron_field(1, 12), cron_field(0, 7)
).map(" ".join)
SCHEDULES = st.tuples(  # dense enough to meet the windows
    cron_field(0, 59),
    st.one_of(st.just("*"), cron_field(0, 3), cron_field(0, 23)),
    st.one_of(st.just("*"), cron_field(1, 31)),
    st.just("*"),
    st.one_of(st.just("*"), cron_field(0, 7)),
).map(" ".join)
