"""Taking and keeping rows: claims and renewals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from store.contract import Claimed, Renewal, Renewed
from store.events import Claim
from store.surreal.requests import Step
from store.surreal.rows import JOB, LIMITS, job_of, micros, record


def claim(claims: Sequence[Claim]) -> Step:
    """Take what can be taken, in order; answers [[whether each was taken], [the rows]]."""
    values: dict[str, Any] = {
        f"c{place}": {
            "id": claim.id,
            "lease_id": claim.lease_id,
            "worker": claim.worker,
            "micros": micros(claim.seconds),
        }
        for place, claim in enumerate(claims)
    }
    calls = ", ".join(f"fn::dramaturg::claim_row(${name}, $now, $limits)" for name in values)
    values["r0"] = [record(id_) for id_ in sorted({claim.id for claim in claims})]
    take = f"LET $limits = {LIMITS}; LET $taken = [{calls}];"
    return Step(f"{{ {take} [$taken, (SELECT VALUE {JOB} FROM $r0)] }}", values)


def claimed(claims: Sequence[Claim], found: Any) -> list[Claimed]:
    """What the step's answer says of each. Nothing is ever held: see ``SurrealStore.gaps``."""
    taken, rows = found
    jobs = {job.id: job for job in map(job_of, rows)}
    return [Claimed(jobs[claim.id] if mine else None) for claim, mine in zip(claims, taken, strict=True)]


def writes(renewal: Renewal) -> bool:
    """Whether it does more than look."""
    return renewal.seconds is not None or renewal.progress is not None or renewal.stopping


def renew(renewals: Sequence[Renewal]) -> Step:
    """Write signs of life, where they are any, and look; answers a number for each."""
    values: dict[str, Any] = {}
    for place, renewal in enumerate(renewals):
        percent, message = renewal.progress or (None, None)
        values[f"s{place}"] = {
            "id": renewal.id,
            "lease_id": renewal.lease_id,
            "attempt": renewal.attempt,
            "micros": None if renewal.seconds is None else micros(renewal.seconds),
            "percent": percent,
            "message": message,
            "stopping": renewal.stopping,
        }
    calls = ", ".join(f"fn::dramaturg::renew_row(${name}, $now)" for name in values)
    return Step(f"[{calls}]", values)


def renewed(found: Any) -> list[Renewed]:
    """What the step's answer says of each."""
    return [Renewed(held > 0, held > 1) for held in found]
