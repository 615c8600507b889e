"""Access certificates: an auth server issues them for about an hour, for the key of a credential.

A request names the credential and a fresh public key, and is signed with the credential's key:

    POST <endpoint>/certificates
    {"credential": id, "at": RFC 3339, "public_key": PEM, "signature": base64 of ECDSA-SHA256}

The signature is over CONTEXT, the time, a line feed and the public key. The answer is ``{"certificate": PEM}``, or 401
or 403. A certificate is used until half of its life is over.
"""

from __future__ import annotations

import base64
import hashlib
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import httpx
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from actors.access.endpoint import parse_endpoint
from actors.access.errors import CredentialRefused, StorageUnavailable
from middleware.credentials import Credential
from store import clock
from store.errors import CredentialUnusable

CONTEXT = b"dramaturg access certificate\n"

#: Seconds for one answer.
PATIENCE = 20.0

#: Certificates kept: one for each credential that was replaced meanwhile.
_KEPT_MOST = 16

_REFUSED = (401, 403)


class Certificate(NamedTuple):
    """A certificate and its key, PEM, and when (on clock.elapsed) another should be fetched."""

    certificate: str
    key: str
    renew_at: float


class Certificates:
    """Fetches certificates and keeps them for as long as they are good. Safe to share between threads."""

    def __init__(self, server_name: str | None = None) -> None:
        """``server_name``: the identity that the auth server's certificate carries where it is not its host."""
        self._server_name = server_name
        self._lock = threading.Lock()
        self._kept: dict[str, Certificate] = {}

    def get(self, credential: Credential) -> Certificate:
        """One that is good for a while. Raises CredentialRefused, CredentialUnusable, StorageUnavailable."""
        name = _name_of(credential)
        with self._lock:
            kept = self._kept.get(name)
            if kept is None or clock.elapsed() >= kept.renew_at:
                if len(self._kept) >= _KEPT_MOST:
                    self._kept.clear()
                kept = self._kept[name] = self._fetch(credential)
            return kept

    def drop(self, credential: Credential, refused: Certificate) -> None:
        """It was refused: the next ``get`` fetches another."""
        with self._lock:
            if self._kept.get(_name_of(credential)) == refused:
                del self._kept[_name_of(credential)]

    def _fetch(self, credential: Credential) -> Certificate:
        began = clock.elapsed()
        private = ec.generate_private_key(ec.SECP256R1())
        public = private.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        at = clock.wall().isoformat()
        asked = {
            "credential": credential["id"],
            "at": at,
            "public_key": public.decode("ascii"),
            "signature": base64.b64encode(_sign(credential, CONTEXT + at.encode() + b"\n" + public)).decode("ascii"),
        }
        try:
            endpoint = parse_endpoint(credential["endpoint"])
        except ValueError:
            raise CredentialUnusable("the credential's endpoint is none: issue another") from None
        if not endpoint.tls:
            raise CredentialUnusable("the credential's endpoint is without TLS: issue another")
        with answering("the auth server"), client(trusting(credential["ca"])) as http:
            answer = http.post(f"{endpoint.url}/certificates", json=asked, extensions=named(self._server_name))
        if answer.status_code in _REFUSED:
            raise CredentialRefused
        if answer.status_code != httpx.codes.OK:
            raise StorageUnavailable(f"the auth server answered with status {answer.status_code}: try again later")
        try:
            text = str(answer.json()["certificate"])
            parsed = x509.load_pem_x509_certificate(text.encode("ascii"))
            ours = parsed.public_key() == private.public_key()
        except (ValueError, KeyError, TypeError, UnicodeEncodeError):
            ours = False
        if not ours:
            raise StorageUnavailable("the auth server answered with something that is no certificate for this worker")
        life = (parsed.not_valid_after_utc - parsed.not_valid_before_utc).total_seconds()
        key = private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return Certificate(text, key.decode("ascii"), began + life / 2)


def named(server_name: str | None) -> dict[str, str]:
    """What httpx is told of a server's name where it is not its host."""
    return {} if server_name is None else {"sni_hostname": server_name}


def client(context: ssl.SSLContext) -> httpx.Client:
    """An HTTP client that trusts what ``context`` trusts, follows nobody elsewhere, and takes nothing from the
    environment."""
    return httpx.Client(verify=context, timeout=PATIENCE, trust_env=False, follow_redirects=False)


def trusting(ca: str | None) -> ssl.SSLContext:
    """A context that trusts these certificates (PEM), or the system's. Raises CredentialUnusable."""
    try:
        return ssl.create_default_context(cadata=ca)
    except (ssl.SSLError, ValueError):
        raise CredentialUnusable("the trusted certificates can't be read: they must be PEM") from None


@contextmanager
def answering(who: str) -> Iterator[None]:
    """Turn what httpx raises into StorageUnavailable, without its text."""
    try:
        yield
    except (httpx.HTTPError, httpx.InvalidURL, ssl.SSLError, OSError) as error:
        raise StorageUnavailable(
            f"{who} does not answer ({type(error).__name__}): check its endpoint, its certificate's name, and the "
            "certificates that are trusted"
        ) from None


def _sign(credential: Credential, text: bytes) -> bytes:
    try:
        key = serialization.load_pem_private_key(credential["key"].encode("ascii"), password=None)
    except (ValueError, TypeError, UnicodeEncodeError):
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise CredentialUnusable("the credential's key is no private key on an elliptic curve in PEM: issue another")
    return key.sign(text, ec.ECDSA(hashes.SHA256()))


def _name_of(credential: Credential) -> str:
    parts = (credential["id"], credential["endpoint"], credential["key"])
    return hashlib.sha256("\0".join(parts).encode("utf-8")).hexdigest()
