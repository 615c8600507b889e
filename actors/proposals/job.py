"""The job types of proposals, declared on the process' broker, and the wakes that others ask for."""

from __future__ import annotations

from actors.access.opening import READER, opener
from actors.access.settings import AccessSettings
from actors.proposals.model import Registration
from actors.proposals.scanning import Scan, Scanner
from actors.proposals.settings import ProposalSettings
from actors.proposals.tracking import RepositoryRef, Tracker
from dramaturg import Outcome, Run, broker, job
from store.events import Wake
from store.settings import load

_ACCESS, _SETTINGS = load(AccessSettings), load(ProposalSettings)

#: A pass that failed is retried no later than the next one would have come: a branch that stays missing must not make
#: the other proposals of its repository wait longer than they do without it.
_LONGEST_BACKOFF = min(300.0, _SETTINGS.check_interval)


@job(
    "proposal.repository",
    payload=RepositoryRef,
    key="{repository}@{incarnation}",
    backoff_cap=_LONGEST_BACKOFF,
    credentials=(READER,) if _ACCESS.authenticated else (),
)
def track_repository(ref: RepositoryRef, run: Run) -> Outcome:
    """Keep the tracked proposals of one repository and incarnation up to date."""
    view = opener(_ACCESS, broker().runtime.settings.home, lambda: run.credential(READER))
    return Tracker(broker().runtime.store, _SETTINGS.check_interval, view=view).work(ref, run)


# No finished rows are kept: a scan leaves nothing to look at.
@job("proposal.scan", payload=Scan, key="scan", keep_finished=False)
def scan_repositories(scan: Scan, run: Run) -> Outcome:
    """See that every repository with tracked proposals has its job."""
    return Scanner(broker().runtime.store, request).work(run)


def request(registration: Registration, once: bool = False) -> Wake:
    """The wake of a registration's job; ``once`` leaves a job alone that is there already."""
    payload = {"repository": registration.name, "incarnation": registration.incarnation}
    return track_repository.request(kwargs=payload, domain=registration.domain, once=once)
