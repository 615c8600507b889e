"""A client that was used before a fork shares no socket with the children."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ops.torture.proxy import Proxy
from store.engines.valkey import Valkey
from store.errors import ValkeyUnavailable
from store.valkey.client import connect
from store.valkey.entries import Offer
from store.valkey.leases import Leases
from tests.leases.inside import Inside

CHILDREN, CLAIMS = 4, 50


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of localhost, signed by itself, key and all in one file."""
    folder = tmp_path_factory.mktemp("tls")
    made = folder / "localhost.pem"
    wanted = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    wanted += " -addext subjectAltName=DNS:localhost -keyout key.pem -out cert.pem"
    subprocess.run(["openssl", *wanted.split()], check=True, capture_output=True, cwd=folder)
    made.write_bytes((folder / "key.pem").read_bytes() + (folder / "cert.pem").read_bytes())
    return made


@pytest.fixture
def tls_port(valkey_server: Valkey, certificate: Path, tmp_path: Path) -> Iterator[int]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with Proxy(valkey_server.socket, tls=context) as proxy:
        yield proxy.port


def fork_and_claim(url: str, leases: Leases, queue: str) -> None:
    total = CHILDREN * CLAIMS + 1
    leases.offer(queue, [Offer(f"j:{n}", "5") for n in range(total)], watermark=total)
    program = [sys.executable, "-m", "tests.leases.forking", url, queue, str(CHILDREN), str(CLAIMS)]
    run = subprocess.run(program, check=False, capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stderr) == (0, "")
    taken = [line.split() for line in run.stdout.splitlines()]
    assert Counter(int(number) for number, _, _ in taken) == {**dict.fromkeys(range(CHILDREN), CLAIMS), CHILDREN: 1}
    assert {member for _, member, _ in taken} == {f"j:{n}" for n in range(total)}
    assert len({token for _, _, token in taken}) == total


def test_children_of_a_fork_talk_over_connections_of_their_own(
    url: str, leases: Leases, queue: str, inside: Inside
) -> None:
    fork_and_claim(url, leases, queue)
    assert inside.left() == set()


@pytest.mark.parametrize("way", ["server"], indirect=True)
def test_so_they_do_over_tls(leases: Leases, queue: str, tls_port: int, certificate: Path) -> None:
    fork_and_claim(f"rediss://localhost:{tls_port}?ssl_ca_certs={certificate}", leases, queue)


def test_a_certificate_of_somebody_unknown_is_refused(tls_port: int) -> None:
    client = connect(f"rediss://localhost:{tls_port}")
    with pytest.raises(ValkeyUnavailable, match="'ping'"):
        client.ping()


def test_a_certificate_of_another_name_is_refused_unless_told_otherwise(tls_port: int, certificate: Path) -> None:
    url = f"rediss://127.0.0.1:{tls_port}?ssl_ca_certs={certificate}"
    with pytest.raises(ValkeyUnavailable, match="'ping'"):
        connect(url).ping()
    client = connect(f"{url}&ssl_check_hostname=false")
    client.ping()
    client.close()


def test_a_child_does_not_wait_for_a_connection_that_its_parent_was_making() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute, ThreadPoolExecutor(1) as pool:
        client = connect(f"redis+cluster://127.0.0.1:{mute.getsockname()[1]}")
        parent = pool.submit(client.ping)
        connection, _ = mute.accept()
        with connection:
            pid = os.fork()
            if pid == 0:
                signal.alarm(10)  # ends this child if it waits
                client.close()
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
        mute.close()
        with pytest.raises(ValkeyUnavailable):
            parent.result(timeout=10.0)
