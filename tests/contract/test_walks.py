"""Random walks: a store and the pure function live the same lives, and hold the same rows after every step.

Beyond equality each step asserts what design says of rows whatever happened before: a lease exactly while processing,
no end of another's run, no wake forgotten.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

from store.clock import PARKED
from store.contract import Change, Renewal, Renewed, Store
from store.events import Cancel, Event, Failure, Finish, GiveBack, Kind, Reclaim, Release, Requeue, Reschedule
from store.job import Job
from store.policy import Policy
from store.transitions import Answer, decide, evaluate
from tests.contract import rows
from tests.contract.acts import differences
from tests.contract.adapters import Adapter
from tests.contract.rows import NOW, TYPE, claim, wake

KEYS = ("a", "b")
IDS = {key: wake(key).id for key in KEYS}
_ = (consumes, precondition, multiple, PARKED, Any, pytest, initialize)
