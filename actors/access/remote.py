"""A repository behind TLS, read by way of a copy of our own.

libgit2 can't present a client's certificate, so git does the reading: a child whose environment holds the certificate
and nothing else. Before that the storage is asked by HTTP who the repository is and where its branches stand: that
costs one small answer while nothing moves, and its status says who is to be told what.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import socket
import ssl
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

import httpx

from actors.access.certificates import Certificate, Certificates, answering, client, named, trusting
from actors.access.endpoint import Endpoint, parse_url
from actors.access.errors import CredentialRefused, StorageUnavailable
from actors.access.settings import AccessSettings
from actors.proposals.errors import RepositoryUnreadable
from actors.proposals.git import incarnation, make_bare
from actors.proposals.refusals import RepositoryHidden
from actors.proposals.view import GitView
from middleware.credentials import Credential
from store.errors import UsageError

#: Seconds for a fetch: a large repository's first copy takes its time.
FETCH_PATIENCE: Final = 300.0

#: The header by which a storage says which repository it is: 32 hex digits that one made anew does not share.
INCARNATION: Final = "Repository-Incarnation"

#: Bytes of branches' names and heads at most.
_REFS_MOST: Final = 16 << 20

_SEEN: Final = "dramaturg-refs"
_SHAPE: Final = re.compile(r"[0-9a-f]{32}")


class _Answer(NamedTuple):
    """What the storage said of a repository."""

    status: int
    identity: str
    refs: bytes  # where its branches stand, unpacked


class Storage:
    """The storage of the settings, and the copies under ``home``. Safe to share between threads and processes."""

    def __init__(self, settings: AccessSettings, home: Path) -> None:
        self._settings = settings
        self._home = home.absolute() / "mirrors"
        self._certificates = Certificates(settings.auth_server_name)

    def open(self, path: str, credential: Callable[[], Credential]) -> RemoteView:
        """The repository at a URL, brought up to date. ``credential`` is called where the storage wants to know who
        reads. Raises RepositoryHidden, CredentialRefused, StorageUnavailable, UsageError and what ``credential``
        raises."""
        endpoint, where = self._locate(path)
        if not self._settings.authenticated:
            try:
                with self._context(None) as context:
                    return self._judged(self._ask(endpoint, where, context), endpoint, where, path, None)
            except _CertificateRefused:
                raise StorageUnavailable("the storage wants a certificate: set WEB_SCRIBE_AUTH_SERVER") from None
        opened = credential()
        for first in (True, False):
            certificate = self._certificates.get(opened)
            try:
                with self._context(certificate) as context:
                    answer = self._ask(endpoint, where, context)
                    if answer.status != httpx.codes.UNAUTHORIZED:
                        return self._judged(answer, endpoint, where, path, certificate)
            except _CertificateRefused:
                pass
            self._certificates.drop(opened, certificate)
            if not first:
                break
        raise CredentialRefused

    def _locate(self, path: str) -> tuple[Endpoint, str]:
        try:
            endpoint, where = parse_url(path)
        except ValueError as error:
            raise UsageError(f"the repository's URL {error}") from None
        if endpoint != self._settings.storage:
            raise UsageError(
                "the repository lies on another server than WEB_SCRIBE_SERVER, which alone is shown a certificate"
            )
        if any(part in ("..", ".") for part in where.split("/")):
            raise UsageError("the repository's URL has a path that goes up")
        return endpoint, where.rstrip("/")

    def _ask(self, endpoint: Endpoint, where: str, context: ssl.SSLContext) -> _Answer:
        try:
            with client(context) as http, http.stream(
                "GET",
                f"{endpoint.url}{where}/info/refs",
                params={"service": "git-upload-pack"},
                extensions=named(self._settings.server_name),
            ) as answer:  # fmt: skip
                body = bytearray()
                for part in answer.iter_bytes():
                    body += part
                    if len(body) > _REFS_MOST:
                        raise StorageUnavailable("the storage lists more branches than can be read")
                return _Answer(answer.status_code, answer.headers.get(INCARNATION, ""), bytes(body))
        except httpx.HTTPError as error:
            _told(error)

    def _judged(
        self, answer: _Answer, endpoint: Endpoint, where: str, path: str, certificate: Certificate | None
    ) -> RemoteView:  # fmt: skip
        if answer.status in (httpx.codes.FORBIDDEN, httpx.codes.NOT_FOUND, httpx.codes.UNAUTHORIZED):
            raise RepositoryHidden(
                f"the storage does not show this worker {path}: the repository is gone, or the worker's account has no "
                "reader grant on it or on its namespace; grant that, or remove the repository"
            )
        if answer.status != httpx.codes.OK:
            raise StorageUnavailable(f"the storage answered with status {answer.status}: try again later")
        identity = answer.identity
        if not _SHAPE.fullmatch(identity):
            raise StorageUnavailable(
                f"the storage does not say which repository it is: its header {INCARNATION} is none"
            )
        copy = self._home / f"{hashlib.sha256(f'{path} {identity}'.encode()).hexdigest()[:32]}.git"
        with _alone(copy):
            self._refresh(copy, identity, answer.refs, endpoint, where, certificate)
        return RemoteView(copy)

    def _refresh(
        self, copy: Path, identity: str, refs: bytes, endpoint: Endpoint, where: str, certificate: Certificate | None
    ) -> None:
        if not (copy / incarnation.PIN).exists():
            shutil.rmtree(copy, ignore_errors=True)
            make_bare(copy, identity)
        seen, now = copy / _SEEN, hashlib.sha256(refs).hexdigest()
        if seen.exists() and seen.read_text(encoding="ascii") == now:
            return
        for lock in copy.rglob("*.lock"):  # of a git that was killed: whoever is here is alone
            lock.unlink(missing_ok=True)
        with _files(certificate, self._settings) as files:
            _fetch(copy, self._url_for_git(endpoint, where), files, self._resolved(endpoint))
        seen.write_text(now, encoding="ascii")

    def _url_for_git(self, endpoint: Endpoint, where: str) -> str:
        return f"{endpoint._replace(host=self._settings.server_name or endpoint.host).url}{where}"

    def _resolved(self, endpoint: Endpoint) -> str | None:
        """How git finds the storage under the name that its certificate carries."""
        if self._settings.server_name is None:
            return None
        with answering("the storage"):
            address = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)[0][4][0]
        return f"{self._settings.server_name}:{endpoint.port}:{address}"

    @contextmanager
    def _context(self, certificate: Certificate | None) -> Iterator[ssl.SSLContext]:
        ca = None if self._settings.ca_file is None else self._settings.ca_file.read_text(encoding="ascii")
        context = trusting(ca)
        if certificate is not None:
            with _files(certificate, self._settings) as files:
                context.load_cert_chain(files["GIT_SSL_CERT"], files["GIT_SSL_KEY"])
        yield context


class RemoteView(GitView):
    """The copy of a repository behind TLS, for reading."""

    @property
    def bare(self) -> bool:
        """As one with a working tree: its branches are not written here."""
        return False


class _CertificateRefused(Exception):
    """The storage ended the handshake over our certificate."""


def _told(error: httpx.HTTPError) -> NoReturn:
    """Raise what an error of the way means: an alert of the other side over our certificate, or anything else."""
    cause: BaseException | None = error
    while cause is not None:
        ours = isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLCertVerificationError)
        if ours and "ALERT" in (getattr(cause, "reason", None) or ""):
            raise _CertificateRefused from None
        cause = cause.__cause__ or cause.__context__
    with answering("the storage"):
        raise error


@contextmanager
def _files(certificate: Certificate | None, settings: AccessSettings) -> Iterator[dict[str, str]]:
    """git's variables for TLS; what they name is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="dramaturg-access-") as folder:  # made for this user alone
        found = {"HOME": folder}
        if settings.ca_file is not None:
            found["GIT_SSL_CAINFO"] = str(settings.ca_file.absolute())
        if certificate is not None:
            for variable, text in (("GIT_SSL_CERT", certificate.certificate), ("GIT_SSL_KEY", certificate.key)):
                file = Path(folder) / variable.lower()
                file.touch(mode=0o600)
                file.write_text(text, encoding="ascii")
                found[variable] = str(file)
        yield found


@contextmanager
def _alone(copy: Path) -> Iterator[None]:
    """One at a time brings a copy up to date."""
    copy.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with copy.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(copy: Path, url: str, files: Mapping[str, str], resolved: str | None) -> None:
    """All branches of ``url`` into the copy. Raises StorageUnavailable, RepositoryUnreadable."""
    git = shutil.which("git")
    if git is None:
        raise StorageUnavailable("there is no git on this machine, which reads repositories behind TLS: install it")
    options = ["-c", "http.followRedirects=false", "-c", "credential.helper=", "-c", "http.proxy=", "-c", "gc.auto=0"]
    if resolved is not None:
        options += ["-c", f"http.curloptResolve={resolved}"]
    command = [git, *options, "fetch", "--quiet", "--prune", "--no-tags", "--no-write-fetch-head", "--", url]
    environment = {
        "PATH": os.defpath,
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ALLOW_PROTOCOL": "https:http",
        "GIT_DIR": str(copy),
        **files,
    }
    try:
        done = subprocess.run(
            [*command, "+refs/heads/*:refs/heads/*"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=FETCH_PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise StorageUnavailable(f"the storage took longer than {FETCH_PATIENCE:.0f} s to send a repository") from None
    except OSError as error:
        raise RepositoryUnreadable(f"git can't be started ({type(error).__name__})") from None
    if done.returncode:
        raise StorageUnavailable(f"git could not read the repository from the storage (exit {done.returncode})")
