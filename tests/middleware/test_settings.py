"""Settings are validated together, and all that is wrong is said at once, without values."""

from __future__ import annotations

import pytest

from middleware.settings import WorkerSettings
from store.errors import SettingsInvalid
from store.settings import StoreSettings, load_all


def test_every_fault_is_told_at_once_by_name_and_never_by_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKER_CONCURRENCY", "17")
    monkeypatch.setenv("JOBS_DB_URL", "mysql://user:hunter2@db/x")
    monkeypatch.setenv("JOBS_LEASE_SECONDS", "soon")
    with pytest.raises(SettingsInvalid) as caught:
        load_all(StoreSettings, WorkerSettings)
    text = str(caught.value)
    for name in ("WORKER_CONCURRENCY", "JOBS_DB_URL", "JOBS_LEASE_SECONDS"):
        assert name in text
    assert "hunter2" not in text
    assert "soon" not in text


def test_a_renewal_that_could_come_too_late_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBS_LEASE_SECONDS", "60")
    monkeypatch.setenv("JOBS_LEASE_RENEW_SECONDS", "55")
    monkeypatch.setenv("JOBS_LEASE_RENEW_JITTER_SECONDS", "5")
    with pytest.raises(SettingsInvalid, match="JOBS_LEASE_RENEW_SECONDS"):
        load_all(WorkerSettings)


def test_an_empty_variable_is_an_unset_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKER_CONCURRENCY", "")
    [settings] = load_all(WorkerSettings)
    assert isinstance(settings, WorkerSettings)
    assert (settings.concurrency, settings.lease_seconds, settings.renew_every) == (2, 120.0, 30.0)


@pytest.mark.parametrize("lease", [1, 2, 60, 120, 3600])
def test_two_renewals_fit_into_every_lease(lease: float) -> None:
    settings = WorkerSettings.model_validate({"JOBS_LEASE_SECONDS": lease})
    assert settings.renew_every + settings.renew_jitter <= lease / 2


def test_a_variable_that_is_named_like_a_field_means_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/nowhere")
    monkeypatch.setenv("CONCURRENCY", "9")
    store, worker = load_all(StoreSettings, WorkerSettings)
    assert isinstance(store, StoreSettings)
    assert isinstance(worker, WorkerSettings)
    assert (str(store.home), worker.concurrency) == (".dramaturg", 2)
