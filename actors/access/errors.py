"""What can go wrong on the way to a storage, as branches of the tree in ``store/errors.py``.

    Unavailable
    ├── CredentialRefused         the auth server or the storage refuses this worker's credential
    └── StorageUnavailable        the auth server or the storage does not answer as it should

The texts are ours alone, with what to do; what a server said is never part of them.
"""

from __future__ import annotations

from store.errors import Unavailable


class CredentialRefused(Unavailable):
    """This worker's credential expired, was revoked, or its account is disabled: issue another."""

    code = "worker_credential_refused"

    def __init__(self) -> None:
        super().__init__(
            "the worker's credential is refused: it expired, was revoked, or its account is disabled; issue a new one "
            "and put it in the place of SCRIBE_READER_CREDENTIAL_FILE (no restart is needed)"
        )


class StorageUnavailable(Unavailable):
    """The auth server or the storage does not answer as it should."""

    code = "storage_unavailable"
