"""What a message's envelope in Valkey must be before anything of ours or of Dramatiq's touches it."""

from __future__ import annotations

from typing import Any

import dramatiq

from store.errors import PayloadInvalid

#: The types that each part of a message has. Whatever encoder a program chose, the rest of Dramatiq relies on them.
_PARTS: dict[str, type] = {
    "queue_name": str,
    "actor_name": str,
    "args": tuple,
    "kwargs": dict,
    "options": dict,
    "message_id": str,
    "message_timestamp": int,
}


def message_of(envelope: bytes) -> dramatiq.Message[Any]:
    """The message in ``envelope``. Raises PayloadInvalid for one that is damaged, whatever is wrong with it."""
    try:
        message: dramatiq.Message[Any] = dramatiq.Message.decode(envelope)
    except Exception:  # noqa: BLE001 - the encoder is the program's own, and may refuse by any error
        raise PayloadInvalid("a message's envelope can't be decoded by this process' encoder") from None
    for name, kind in _PARTS.items():
        if not isinstance(getattr(message, name), kind):
            raise PayloadInvalid(f"a message's envelope has a {name} of another type")
    if not all(isinstance(name, str) for name in message.kwargs):
        raise PayloadInvalid("a message's envelope has an argument whose name is no text")
    return message
