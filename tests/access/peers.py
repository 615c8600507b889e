"""A small auth server and a small git storage, both real: their own certificate authority, TLS on loopback, clients'
certificates, revocation, and git itself behind the storage."""

from __future__ import annotations

import base64
import gzip
import json
import ssl
import subprocess
import threading
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from actors.access.certificates import CONTEXT
from actors.access.remote import INCARNATION
from actors.proposals.git import incarnation
from tests.middleware.credential_files import issue

AUTH_NAME, STORAGE_NAME = "auth.test", "storage.test"


class Authority:
    """A certificate authority."""

    def __init__(self, name: str) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        extension = x509.BasicConstraints(ca=True, path_length=None)
        built = self._built(self.name, self.key.public_key(), 3600).add_extension(extension, critical=True)
        self.certificate = built.sign(self.key, hashes.SHA256())

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def issue(self, name: str, public: Any, seconds: float = 3600, host: str | None = None) -> x509.Certificate:
        built = self._built(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), public, seconds)
        if host is not None:
            built = built.add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        return built.sign(self.key, hashes.SHA256())

    def _built(self, subject: x509.Name, public: Any, seconds: float) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return x509.CertificateBuilder(
            self.name, subject, public, x509.random_serial_number(),
            now - timedelta(seconds=max(0.0, 60 - seconds)), now + timedelta(seconds=seconds),
        )  # fmt: skip


class Peers:
    """Both servers. ``revoked`` holds accounts' credentials, ``barred`` serial numbers that the storage refuses."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.repositories = folder / "repositories"
        self.repositories.mkdir()
        self.servers, self.clients = Authority("servers"), Authority("clients")
        self.credentials: dict[str, Any] = {}
        self.revoked: set[str] = set()
        self.barred: set[int] = set()
        self.granted: set[str] = set()
        self.life = 3600.0
        self.packed = False  # answers are compressed
        self.fetched: list[int] = []  # serial numbers, in the order of issue
        self.asked: list[tuple[str, str | None]] = []  # path and account, as the storage saw them
        self._open = ExitStack()
        self.auth = self._serve(AUTH_NAME, _auth(self), None)
        self.storage = self._serve(STORAGE_NAME, _storage(self), self.clients)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @property
    def settings(self) -> dict[str, str]:
        """What a worker is told."""
        ca = self.folder / "ca.pem"
        ca.write_text(self.servers.pem)
        return {
            "WEB_SCRIBE_SERVER": f"tls://127.0.0.1:{self.storage}",
            "WEB_SCRIBE_TLS_SERVER_NAME": STORAGE_NAME,
            "WEB_SCRIBE_TLS_CA_FILE": str(ca),
            "WEB_SCRIBE_AUTH_SERVER": f"tls://127.0.0.1:{self.auth}",
            "SCRIBE_AUTH_TLS_SERVER_NAME": AUTH_NAME,
            "SCRIBE_READER_CREDENTIAL_FILE": str(self.folder / "reader.credential"),
        }

    def credential(self, name: str = "first") -> Path:
        """Issue a credential and put it in place."""
        key = ec.generate_private_key(ec.SECP256R1())
        self.credentials[name] = key.public_key()
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        values = {"id": name, "key": pem.decode(), "ca": self.servers.pem, "endpoint": f"tls://127.0.0.1:{self.auth}"}
        return issue(self.folder / "reader.credential", values=values)

    def url(self, repository: str) -> str:
        return f"tls://127.0.0.1:{self.storage}/{repository}"

    def _serve(self, host: str, handler: type[BaseHTTPRequestHandler], clients: Authority | None) -> int:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self.servers.issue(host, key.public_key(), host=host)
        file = self.folder / f"{host}.pem"
        file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            + certificate.public_bytes(serialization.Encoding.PEM)
        )
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(file)
        if clients is not None:
            context.load_verify_locations(cadata=clients.pem)
            context.verify_mode = ssl.CERT_OPTIONAL
        server = _Server(("127.0.0.1", 0), handler)
        server.context = context
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        self._open.callback(server.server_close)
        self._open.callback(server.shutdown)
        return int(server.server_address[1])


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    context: ssl.SSLContext

    def finish_request(self, request: Any, client_address: Any) -> None:
        # Here, in the connection's own thread: a client that says nothing keeps nobody waiting.
        try:
            with self.context.wrap_socket(request, server_side=True) as wrapped:
                super().finish_request(wrapped, client_address)
        except OSError:
            return  # a client that went away, or whose certificate is none


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Says nothing."""

    def answer(self, status: int, body: bytes = b"", kind: str = "application/json", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))


def _auth(peers: Peers) -> type[BaseHTTPRequestHandler]:
    class Auth(_Handler):
        def do_POST(self) -> None:
            asked = json.loads(self.body())
            public = peers.credentials.get(asked["credential"])
            if public is None or asked["credential"] in peers.revoked:
                return self.answer(403)
            text = CONTEXT + asked["at"].encode() + b"\n" + asked["public_key"].encode()
            try:
                public.verify(base64.b64decode(asked["signature"]), text, ec.ECDSA(hashes.SHA256()))
            except InvalidSignature:
                return self.answer(401)
            wanted = serialization.load_pem_public_key(asked["public_key"].encode())
            made = peers.clients.issue(asked["credential"], wanted, peers.life)
            peers.fetched.append(made.serial_number)
            pem = made.public_bytes(serialization.Encoding.PEM).decode()
            return self.answer(200, json.dumps({"certificate": pem}).encode())

    return Auth


def _storage(peers: Peers) -> type[BaseHTTPRequestHandler]:
    class Storage(_Handler):
        def do_GET(self) -> None:
            self._serve(b"# service=git-upload-pack\n", ["--advertise-refs"])

        def do_POST(self) -> None:
            self._serve(None, [])

        def _serve(self, service: bytes | None, options: list[str]) -> None:
            parts = urlsplit(self.path)
            path = parts.path.removesuffix("/info/refs" if service else "/git-upload-pack").strip("/")
            shown: Any = self.connection.getpeercert()  # type: ignore[attr-defined]
            account = dict(pair[0] for pair in shown["subject"])["commonName"] if shown else None
            peers.asked.append((path, account))
            if shown is None or not shown or int(shown["serialNumber"], 16) in peers.barred:
                return self.answer(401)
            repository = peers.repositories / path
            if path not in peers.granted:
                return self.answer(403)
            if not repository.is_dir():
                return self.answer(404)
            done = subprocess.run(
                ["git", "upload-pack", "--stateless-rpc", *options, str(repository)],
                input=self.body(),
                capture_output=True,
                check=True,
            )
            body = done.stdout
            if service is not None:
                assert parse_qs(parts.query) == {"service": ["git-upload-pack"]}
                body = f"{len(service) + 4:04x}".encode() + service + b"0000" + body
            kind = f"application/x-git-upload-pack-{'advertisement' if service else 'result'}"
            headers = {INCARNATION: incarnation.read(repository)}
            if peers.packed and "gzip" in self.headers.get("Accept-Encoding", ""):
                body, headers["Content-Encoding"] = gzip.compress(body), "gzip"
            return self.answer(200, body, kind, **headers)

    return Storage
