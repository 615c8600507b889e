from __future__ import annotations

from typing import Any

import pytest

from ops.cli.options import chosen
from store.errors import UsageError


def test_no_option_narrows_nothing() -> None:
    assert not chosen().narrows()


def test_a_phase_may_stand_among_the_states() -> None:
    assert chosen(states=["parked"]) == chosen(phases=["parked"])
    assert chosen(states=["queued", "ready"]).phase == "ready"


@pytest.mark.parametrize(
    "options",
    [
        {"states": ["ready"], "phases": ["parked"]},
        {"states": ["ready", "parked"]},
        {"states": ["completed"], "phases": ["ready"]},
        {"phases": ["ready", "parked"]},
        {"states": ["completed", "ready"]},
    ],
)
def test_a_phase_excludes_other_phases_and_states(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="run the same once for each"):
        chosen(**options)


@pytest.mark.parametrize("field", ["domain", "queue", "job_type", "key", "owner"])
@pytest.mark.parametrize("value", ["", " ", "a\x1b[0m", "a\x00", "\udcff", "e\u0301"])
def test_a_name_that_no_job_can_have_is_refused(field: str, value: str) -> None:
    with pytest.raises(UsageError):
        chosen(**{field: value})
