from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.access.peers import Peers
from tests.proposals.repositories import Workshop


@pytest.fixture
def peers(tmp_path: Path) -> Iterator[Peers]:
    """An auth server and a storage, with a credential in place."""
    folder = tmp_path / "peers"
    folder.mkdir()
    with Peers(folder) as made:
        made.credential()
        yield made


@pytest.fixture
def workshop(peers: Peers) -> Workshop:
    """A repository on the storage, which the account may read."""
    peers.granted.add("team/app.git")
    return Workshop(peers.repositories / "team" / "app.git", bare=True)
