"""The settings of proposal tracking."""

from __future__ import annotations

from pydantic import Field

from store.settings import Section


class ProposalSettings(Section):
    """How often branches are looked at, in seconds."""

    check_interval: float = Field(default=30.0, ge=5, le=3600, validation_alias="PROPOSAL_CHECK_INTERVAL_SECONDS")
