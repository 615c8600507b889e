"""Limits from the environment: variables whose names may end in a domain and a user, published as documents.

Documents are the truth: what is set here is written over them at every boot of a worker and by ``dramaturg migrate``,
what is set to nothing is taken away, and what is not set is left as it is.
"""

from __future__ import annotations

import re
from typing import Any, Final

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings

from store.contract import ANY_VERSION, Document, Store
from store.errors import UsageError
from store.identity import MAINTENANCE, check_name
from store.limits import ALLOW, FIGURES, MOST, QUOTA, Quota, list_key, scope_key, set_quota
from store.settings import Section, spelled, suffixed

_NUMBER: Final = re.compile(r"[0-9]{1,10}")
_USER: Final = "USER_"

#: By field: what its documents say.
_LISTS: Final = {"queues": "queue", "types": "job type"}


class LimitSettings(Section):
    """Each by the suffix of its variable: "" for the plain one, a domain's name, for quotas ``USER_`` and a user's id,
    or both joined by an underscore."""

    queues: dict[str, str] = Field(default={}, validation_alias="JOBS_ALLOWED_QUEUES")
    types: dict[str, str] = Field(default={}, validation_alias="JOBS_ALLOWED_JOB_TYPES")
    max_queued: dict[str, str] = Field(default={}, validation_alias="JOBS_QUOTA_MAX_QUEUED")
    submits_per_minute: dict[str, str] = Field(default={}, validation_alias="JOBS_QUOTA_SUBMITS_PER_MIN")
    max_in_flight: dict[str, str] = Field(default={}, validation_alias="JOBS_QUOTA_MAX_INFLIGHT")

    @classmethod
    def settings_customise_sources(cls, settings_cls: type[BaseSettings], *_: Any, **__: Any) -> Any:
        """The environment, suffixes and all, and nothing else."""
        names = [str(field.validation_alias) for field in settings_cls.model_fields.values()]
        return (lambda: {name: suffixed(name) for name in names},)

    @model_validator(mode="after")
    def _readable(self) -> LimitSettings:
        faults = []
        for field, found in self._fields():
            variable = str(type(self).model_fields[field].validation_alias)
            for suffix, value in found.items():
                name = f"{variable}_{suffix}" if suffix else variable
                try:
                    for part, owner in zip(("domain", "owner"), _scope(suffix, field in FIGURES), strict=True):
                        if owner is not None:
                            check_name(part, owner)
                    if field in _LISTS:
                        for one in _names(value):
                            check_name(_LISTS[field], one)
                    elif value and not (_NUMBER.fullmatch(value) and int(value) <= MOST):
                        faults.append(f"{name}: must be a whole number from 0 to {MOST}, or empty for none")
                except UsageError as error:
                    faults.append(f"{name}: {error}")
        if faults:
            raise ValueError("\n  ".join(faults))
        return self

    def publish(self, store: Store) -> None:
        """Write what is set into the documents. Raises StoreUnavailable."""
        for field in _LISTS:
            for suffix, value in getattr(self, field).items():
                key, names = list_key(field, _scope(suffix, user=False)[0]), _names(value)
                there = store.get(ALLOW, key)
                if names and field == "types":
                    names += [name for name in MAINTENANCE if name not in names]
                if not names:
                    store.remove(ALLOW, key)
                elif there is None or there.body.get("names") != names:
                    store.put(Document(ALLOW, key, ANY_VERSION, {"names": names}))
        for figure in FIGURES:
            for suffix, value in getattr(self, figure).items():
                domain, owner = _scope(suffix, user=True)
                if value:
                    set_quota(store, Quota(domain, owner, **{figure: int(value)}))
                else:
                    _unset(store, scope_key(domain, owner), figure)

    def _fields(self) -> list[tuple[str, dict[str, str]]]:
        return [(field, getattr(self, field)) for field in (*_LISTS, *FIGURES)]


def _unset(store: Store, key: str, figure: str) -> None:
    there = store.get(QUOTA, key)
    if there is None or figure not in there.body:
        return
    left = {name: most for name, most in there.body.items() if name != figure}
    if left:
        store.put(Document(QUOTA, key, there.version, left))
    else:
        store.remove(QUOTA, key)


def _scope(suffix: str, user: bool) -> tuple[str | None, str | None]:
    """The domain and the owner that a suffix names. All capitals stand for small letters, as variables are spelled."""
    domain, owner = suffix, ""
    if user and suffix.startswith(_USER):
        domain, owner = "", suffix.removeprefix(_USER)
    elif user and f"_{_USER}" in suffix:
        domain, _, owner = suffix.partition(f"_{_USER}")
    return spelled(domain), spelled(owner)


def _names(value: str) -> list[str]:
    return [name.strip() for name in value.split(",") if name.strip()]
