"""The job types, one file or folder a subject. ``dramatiq actors`` loads this: it composes, and connects to nothing."""

from actors.proposals.job import scan_repositories, track_repository
from actors.proposals.startup import ScanAtBoot
from actors.proposals.statements import SUBJECT
from dramaturg import broker

broker().runtime.subjects.append(SUBJECT)
broker().add_middleware(ScanAtBoot(scan_repositories))

__all__ = ["scan_repositories", "track_repository"]
