"""Every error that this project raises on purpose, as one small tree.

    DramaturgError                something that we worded; its text is safe to show and to store
    ├── UsageError                the caller asked for something that can't be: nothing was changed
    │   ├── PayloadInvalid        a payload, result or checkpoint that is not allowed
    │   │   └── SecretFound       it holds what looks like a secret
    │   ├── UnknownType           a job type that nobody published
    │   ├── NotAllowed            a queue, job type or domain that is not allowed here
    │   ├── CredentialNotGranted  a credential that the job type does not declare
    │   └── SettingsInvalid       the environment, all that is wrong with it at once
    ├── Refused                   the state of things says no: nothing was changed
    │   ├── NotFound              there is no such row
    │   ├── PayloadSealed         it is encrypted, and this process can't open it
    │   ├── CredentialUnusable    its file is out of order, or it has expired
    │   ├── QuotaExceeded         a domain's or an owner's quota is reached
    │   ├── CursorTooOld          events behind this cursor were pruned
    │   └── SchemaTooNew          this program is older than the database that it was pointed at
    └── Unavailable               a service did not answer; trying again later may help
        ├── StoreUnavailable      the database
        ├── ValkeyUnavailable     Valkey
        ├── CredentialMissing     a credential's file is not there, or can't be opened
        └── EngineFailed          an embedded engine that did not start, or ended

Only these errors' texts may be written down (rows, logs, history). Of any other error we record its class, a stable
code and the place in our code where it was thrown, never its text: see ``middleware/failures.py``.
"""

from __future__ import annotations


class DramaturgError(Exception):
    """Base of all; ``code`` is stable and is what rows, logs and scripts see."""

    code = "dramaturg_error"


class UsageError(DramaturgError):
    """The caller asked for something that can't be; nothing was changed."""

    code = "usage"


class PayloadInvalid(UsageError):
    """A payload, result or checkpoint is not allowed: see ``store/payloads.py`` for the rules."""

    code = "payload_invalid"


class SecretFound(PayloadInvalid):
    """It holds what looks like a secret; the text names the path, never the value."""

    code = "secret_found"


class UnknownType(UsageError):
    """Nobody published this job type: start a worker that knows it, or run ``dramaturg migrate`` beside it."""

    code = "type_unknown"


class CredentialNotGranted(UsageError):
    """The job type does not declare this credential."""

    code = "credential_not_granted"


class NotAllowed(UsageError):
    """The queue or the job type is not on the list of those that are allowed."""

    code = "not_allowed"


class SettingsInvalid(UsageError):
    """The settings are wrong; the text lists every fault, one a line."""

    code = "settings_invalid"


class Refused(DramaturgError):
    """The state of things says no; nothing was changed."""

    code = "refused"


class NotFound(Refused):
    """There is no such row."""

    code = "not_found"


class CredentialUnusable(Refused):
    """A credential's file is out of order, or what it holds has expired."""

    code = "credential_unusable"


class PayloadSealed(Refused):
    """A payload, checkpoint or result is encrypted with a key that this process lacks, or was tampered with."""

    code = "payload_sealed"


class QuotaExceeded(Refused):
    """A domain's or an owner's quota of waiting jobs or of submits is reached; nothing was changed."""

    code = "quota_exceeded"


class CursorTooOld(Refused):
    """Events behind this cursor have been pruned: whoever reads on would miss them."""

    code = "cursor_too_old"


class SchemaTooNew(Refused):
    """The database's schema is marked as breaking for a program of this age: upgrade this program."""

    code = "schema_too_new"


class Unavailable(DramaturgError):
    """A service did not answer; nothing is known to have changed, and trying again later may help."""

    code = "unavailable"


class StoreUnavailable(Unavailable):
    """The database did not answer."""

    code = "store_unavailable"


class ValkeyUnavailable(Unavailable):
    """Valkey did not answer."""

    code = "valkey_unavailable"


class CredentialMissing(Unavailable):
    """A credential's file is not there, or can't be opened: it may be on its way."""

    code = "credential_missing"


class EngineFailed(Unavailable):
    """An embedded engine did not start, or ended by itself."""

    code = "engine_failed"
