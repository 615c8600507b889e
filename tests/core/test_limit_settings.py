"""Limits in the environment: whose they are is in the variable's name."""

from __future__ import annotations

from pathlib import Path

import pytest

from store.errors import SettingsInvalid
from store.identity import MAINTENANCE
from store.limit_settings import LimitSettings
from store.limits import Quota, limits, list_key, quotas, set_quota
from store.open import open_store
from store.settings import load


@pytest.mark.parametrize(
    ("suffix", "domain", "owner"),
    [
        ("", None, None),
        ("_OFFICE", "office", None),
        ("_Office", "Office", None),
        ("_BACK_OFFICE", "back_office", None),
        ("_USER_42", None, "42"),
        ("_USER_ANN", None, "ann"),
        ("_OFFICE_USER_ANN", "office", "ann"),
        ("_OFFICE_USER_B_USER_C", "office", "b_user_c"),
    ],
)
def test_a_suffix_names_a_domain_and_a_user(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, suffix: str, domain: str | None, owner: str | None
) -> None:
    monkeypatch.setenv(f"JOBS_QUOTA_SUBMITS_PER_MIN{suffix}", "7")
    store = open_store(f"sqlite:///{tmp_path}/jobs.db")
    store.migrate()
    load(LimitSettings).publish(store)
    assert quotas(store) == [Quota(domain, owner, None, 7, None)]
    store.close()


def test_figures_that_operators_have_set_stay_where_settings_say_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store = open_store(f"sqlite:///{tmp_path}/jobs.db")
    store.migrate()
    set_quota(store, Quota("office", None, 5, 6, 7))
    monkeypatch.setenv("JOBS_QUOTA_MAX_QUEUED_OFFICE", "8")
    monkeypatch.setenv("JOBS_QUOTA_SUBMITS_PER_MIN_OFFICE", "")
    monkeypatch.setenv("JOBS_ALLOWED_JOB_TYPES", " a.b ,, c.d ")
    load(LimitSettings).publish(store)
    assert quotas(store) == [Quota("office", None, 8, None, 7)]
    found = limits(store)
    assert found is not None
    assert found.lists == {list_key("types"): {"a.b", "c.d", *MAINTENANCE}}
    store.close()


@pytest.mark.parametrize("value", ["-1", "1.5", "many", "1" * 11, "٣"])
def test_a_figure_that_can_not_be_is_told_without_its_value(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("JOBS_QUOTA_MAX_INFLIGHT_USER_7", value)
    with pytest.raises(SettingsInvalid) as raised:
        load(LimitSettings)
    assert "JOBS_QUOTA_MAX_INFLIGHT_USER_7: must be a whole number" in str(raised.value)
    assert value not in str(raised.value).replace("1000000000", "")
