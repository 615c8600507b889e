"""Opens a repository where it lies. What reads one behind TLS is loaded once there is one: it takes half a second."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from actors.access.endpoint import is_remote
from actors.access.settings import AccessSettings
from actors.proposals.view import GitView, OpenView, View
from middleware.credentials import Credential

if TYPE_CHECKING:
    from actors.access.remote import Storage

#: The credential by which repositories are read.
READER: Final = "storage.reader"


def opener(settings: AccessSettings, home: Path, credential: Callable[[], Credential]) -> OpenView:
    """Opens repositories of this machine, and those behind TLS with ``credential``; their copies lie under ``home``."""

    def open_view(path: str) -> AbstractContextManager[View]:
        return _storage(settings, home).open(path, credential) if is_remote(path) else GitView(path)

    return open_view


@lru_cache(maxsize=1)
def _storage(settings: AccessSettings, home: Path) -> Storage:
    from actors.access.remote import Storage

    return Storage(settings, home)
