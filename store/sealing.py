"""Payloads, checkpoints and results at rest: AES-256-GCM, each bound to the row and the column in which it stands.

    {"_encrypted": {"_enc": "aesgcm:v1", "kid": "6f1c...", "nonce": "...", "ct": "..."}}

The associated data are the row's identity and the column's name, so that what is sealed can be opened there and nowhere
else. A nonce is 96 random bits: a key may seal four billion texts before two of them are likely to share one. What
stands in the clear is read as it is. Which keys there are is said by the settings: see ``store/crypto_settings.py``.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
import re
from collections.abc import Mapping
from typing import Any, Final

from store.errors import PayloadSealed, UsageError
from store.identity import SEPARATOR

#: The columns that are sealed.
FIELDS: Final = ("payload", "checkpoint", "result")

#: How a text was sealed, for whoever opens it in a later age.
SCHEME: Final = "aesgcm:v1"

KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12
_PARTS: Final = {"_enc", "kid", "nonce", "ct"}
_ENVELOPE = re.compile(r'\s*\{\s*"_encrypted"\s*:')


class Place:
    """Where a sealed text stands: the row's identity and the column."""

    __slots__ = ("bound", "domain", "field")

    def __init__(self, domain: str, queue: str, job_type: str, id_: str, field: str) -> None:
        self.domain = domain
        self.field = field
        # The joiner is refused in every name: no two places are spelled alike.
        self.bound = SEPARATOR.join((SCHEME, domain, queue, job_type, id_, field)).encode("utf-8")


class Key:
    """An AES-256 key. Its id is a part of its hash: it tells keys apart and says nothing about them."""

    __slots__ = ("_cipher", "id")

    def __init__(self, raw: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # loads OpenSSL: only where something is sealed

        if len(raw) != KEY_BYTES:
            raise UsageError(f"a key has {KEY_BYTES} bytes")
        self.id = hashlib.sha256(b"dramaturg key id" + raw).hexdigest()[:16]
        self._cipher = AESGCM(raw)

    def __repr__(self) -> str:
        return f"Key({self.id})"

    def encrypt(self, nonce: bytes, text: str, place: Place) -> bytes:
        """``text`` sealed for ``place``."""
        return self._cipher.encrypt(nonce, text.encode("utf-8"), place.bound)

    def decrypt(self, nonce: bytes, sealed: bytes, place: Place) -> str | None:
        """The text; None where it was sealed for another place, or changed since."""
        from cryptography.exceptions import InvalidTag

        try:
            return self._cipher.decrypt(nonce, sealed, place.bound).decode("utf-8")
        except (InvalidTag, UnicodeDecodeError):
            return None


class Sealing:
    """What is sealed, and with which keys. ``secondary`` opens what was sealed before the key was changed."""

    def __init__(
        self, primary: Key | None = None, secondary: Key | None = None, *, everywhere: bool = False,
        domains: Mapping[str, bool] | None = None,
    ) -> None:  # fmt: skip
        self._primary = primary
        self._keys = {key.id: key for key in (secondary, primary) if key is not None}
        self._everywhere = everywhere
        self._domains = dict(domains or {})

    @property
    def on(self) -> bool:
        """Whether anything is sealed at all."""
        return self._everywhere or any(self._domains.values())

    @property
    def current(self) -> str | None:
        """The id of the key that seals."""
        return None if self._primary is None else self._primary.id

    def wants(self, domain: str) -> bool:
        """Whether this domain's texts are sealed."""
        return self._domains.get(domain, self._everywhere)

    def seal(self, text: str, place: Place) -> str:
        """``text`` in an envelope. Raises UsageError without a key."""
        if self._primary is None:
            raise UsageError("nothing can be sealed without a key: set JOBS_CRYPTO_KEY or JOBS_CRYPTO_KEY_FILE")
        nonce = os.urandom(_NONCE_BYTES)
        sealed = self._primary.encrypt(nonce, text, place)
        parts = {"_enc": SCHEME, "kid": self._primary.id, "nonce": _text(nonce), "ct": _text(sealed)}
        return json.dumps({"_encrypted": parts}, separators=(",", ":"))

    def open(self, text: str, place: Place) -> str:
        """The text in an envelope, and one in the clear as it is. Raises PayloadSealed."""
        if not is_sealed(text):
            return text
        kid, nonce, sealed = _parts(text, place.field)
        key = self._keys.get(kid)
        if key is None:
            raise PayloadSealed(
                f"the {place.field} was sealed with key {kid}, which this process does not have: give it by "
                "JOBS_CRYPTO_SECONDARY_KEY"
            )
        opened = key.decrypt(nonce, sealed, place)
        if opened is None:
            raise PayloadSealed(f"the {place.field} was sealed for another row or column, or changed since")
        return opened


def is_sealed(text: str) -> bool:
    """Whether ``text`` says that it is an envelope."""
    return _ENVELOPE.match(text) is not None


def key_id(text: str) -> str | None:
    """The id of the key that sealed ``text``; None for one in the clear, and for an envelope that can't be read."""
    try:
        return _parts(text, "text")[0] if is_sealed(text) else None
    except PayloadSealed:
        return None


def read_key(text: str) -> bytes:
    """The bytes of a key as settings have it: strict base64 of 32 bytes. Raises ValueError, which does not show it."""
    try:
        raw = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("must be base64 of 32 bytes, without spaces or line breaks inside") from None
    if len(raw) != KEY_BYTES:
        raise ValueError("must be base64 of 32 bytes: make one with `openssl rand -base64 32`")
    return raw


def _parts(text: str, field: str) -> tuple[str, bytes, bytes]:
    """Key id, nonce and sealed bytes of an envelope. Raises PayloadSealed for one that nobody of ours has made."""
    try:
        outer = json.loads(text)
        inner: Any = outer["_encrypted"]
        if set(outer) != {"_encrypted"} or set(inner) != _PARTS or inner["_enc"] != SCHEME:
            raise ValueError
        nonce, sealed = _bytes(inner["nonce"]), _bytes(inner["ct"])
        if len(nonce) != _NONCE_BYTES or not re.fullmatch("[0-9a-f]{16}", inner["kid"]):
            raise ValueError
    except (ValueError, TypeError, KeyError, RecursionError):
        raise PayloadSealed(f"the {field} is an envelope that can't be read here: {SCHEME} is what can be") from None
    return inner["kid"], nonce, sealed


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
