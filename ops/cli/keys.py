"""The key of a job whose type is not declared here, from what its type has published."""

from __future__ import annotations

import string
from typing import Any

from store.errors import Refused, UsageError
from store.identity import check_name
from store.policy import Policy


def published_key(policy: Policy, payload: dict[str, Any]) -> str | None:
    """The key that a wake without one gets: as where the type is declared, so that it is the same job from everywhere.

    Raises UsageError where the payload lacks a field of the template, and Refused for a template that can't be read.
    """
    if policy.periodic is not None:
        return policy.job_type  # a schedule has one row, whoever wakes it
    if policy.key is None:
        return None
    parts = []
    for literal, name in _parts(policy):
        parts.append(literal)
        if name is not None:
            value = payload.get(name)
            if value is None or value == "" or isinstance(value, (dict, list)):
                raise UsageError(
                    f"the key of {policy.job_type!r} is {policy.key!r}: give the payload a text or a number as "
                    f"{name!r}, or name the key with --key"
                )
            parts.append(str(value))
    return check_name("key", "".join(parts))


def _parts(policy: Policy) -> list[tuple[str, str | None]]:
    try:
        found = list(string.Formatter().parse(policy.key or ""))
    except (TypeError, ValueError):
        found = [("", "", "", None)]
    if any(name is not None and (not name.isidentifier() or spec or conversion) for _, name, spec, conversion in found):
        raise Refused(f"the published key of {policy.job_type!r} can't be read here: name the key with --key")
    return [(literal, name) for literal, name, _, _ in found]
