"""One embedded SurrealDB engine, served to many processes over the WebSocket protocol of SurrealDB's SDK.

``surreal.py`` runs this file as a program, under a keeper. Its standard input carries one line of JSON, ``Serving``.
Each connection gets an engine session of its own, anonymous until it signs in. Frames are passed on as they come, in
both directions: only the session's id is put into a query, by hand, because to decode and encode each one again would
cost more than most queries.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import uuid
from contextlib import suppress
from typing import Any, TypedDict

from surrealdb.data.cbor import decode, encode
from surrealdb_embedded import AsyncEmbeddedDB
from websockets import Subprotocol
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

#: How the SDK begins a query: a map of three, ``id`` (36 characters), ``method`` ("query"), then ``params``.
_MAP_OF_THREE = 0xA3
_ID_AT = slice(1, 6), b"\x62id\x78\x24"
_METHOD_AT = slice(42, 55), b"\x66method\x65query"

#: Sessions are ours to give: one for each connection.
_OURS = frozenset({"attach", "detach", "reset", "sessions"})

#: What the engine says of a commit that it could not write, and of one that met another (which is no trouble).
UNWRITTEN = b"There was a problem with a transaction"
_MET_ANOTHER = ("can be retried", "ransaction conflict")

_FAILED = {"code": -32000, "kind": "Internal"}


class Serving(TypedDict):
    """What to serve and where. ``ready`` is a file that appears, with our pid in it, once we listen."""

    engine: str  # surrealkv:///path or mem://
    port: int
    user: str
    password: str
    ready: str


class Host:
    """An engine and those who are connected to it."""

    def __init__(self, engine: AsyncEmbeddedDB) -> None:
        self._engine = engine

    async def call(self, method: str, *params: Any, **more: Any) -> Any:
        """One call of our own. Raises RuntimeError with the engine's words."""
        request = {"id": "host", "method": method, "params": list(params), **more}
        answer = decode(await self._engine.execute(encode(request)))
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["result"]

    async def connected(self, socket: ServerConnection) -> None:
        """Serve one connection until it ends; what it has asked for by then is still done."""
        session = uuid.uuid4()
        mark = encode({"session": session})[1:]
        await self.call("attach", session=session)
        tasks: set[asyncio.Task[None]] = set()
        try:
            async for frame in socket:
                task = asyncio.create_task(self._answer(socket, frame if isinstance(frame, bytes) else b"", mark))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
        except ConnectionClosed:
            pass
        finally:
            if tasks:
                await asyncio.wait(tasks)
            await self.call("detach", session=session)

    async def _answer(self, socket: ServerConnection, frame: bytes, mark: bytes) -> None:
        plain = frame[:1] == bytes([_MAP_OF_THREE]) and all(frame[at] == word for at, word in (_ID_AT, _METHOD_AT))
        reply = await self._engine.execute(_marked(frame, mark)) if plain else await self._checked(frame, mark)
        if UNWRITTEN in reply and _could_not_write(reply):
            end("the engine could not write: make room where its files are, and start it again")
        with suppress(ConnectionClosed):
            await socket.send(reply)

    async def _checked(self, frame: bytes, mark: bytes) -> bytes:
        """Anything but a plain query: looked at first."""
        try:
            request = decode(frame)
            id_, foreign = request.get("id"), "session" in request or request["method"] in _OURS
        except (AttributeError, KeyError, ValueError, BufferError):
            return encode({"error": {**_FAILED, "message": "the request can't be read"}})
        if foreign:
            return encode({"id": id_, "error": {**_FAILED, "message": "sessions of the client's own are not served"}})
        return await self._engine.execute(_marked(encode(request), mark))


def _could_not_write(reply: bytes) -> bool:
    """Whether a statement of this answer failed for that; the words alone may be anybody's data.

    Such a commit may be there after the next start, beside what was acknowledged after it, as if it were the newer one.
    So nothing is acknowledged after it: the engine ends, and whoever asked knows no more than after any crash.
    """
    answer = decode(reply)
    statements = answer.get("result") if isinstance(answer, dict) else None
    for statement in statements if isinstance(statements, list) else []:
        if isinstance(statement, dict) and statement.get("status") == "ERR":
            text = str(statement.get("result"))
            if UNWRITTEN.decode() in text and not any(words in text for words in _MET_ANOTHER):
                return True
    return False


def end(why: str) -> None:
    """Nothing more is answered."""
    sys.stderr.write(f"{why}\n")
    sys.stderr.flush()
    os._exit(1)


def _marked(frame: bytes, mark: bytes) -> bytes:
    """A map of a few with one pair more."""
    return bytes([frame[0] + 1]) + frame[1:] + mark


async def main(order: Serving) -> None:
    engine = AsyncEmbeddedDB(order["engine"])
    await engine.connect()
    host = Host(engine)
    word = json.dumps(order["password"])
    await host.call("query", f"DEFINE USER OVERWRITE {order['user']} ON ROOT PASSWORD {word} ROLES OWNER", {})
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with serve(
        host.connected,
        "127.0.0.1",
        order["port"],
        max_size=None,
        subprotocols=[Subprotocol("cbor")],
        compression=None,
        ping_interval=None,
        close_timeout=1.0,
    ):
        unfinished = order["ready"] + ".new"
        with open(unfinished, "w", encoding="utf-8") as file:
            file.write(str(os.getpid()))
        os.replace(unfinished, order["ready"])
        await stop.wait()
    await engine.close()


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.stdin.readline())))
    sys.stdout.flush()
    os._exit(0)  # an ordinary exit can abort in the engine's own threads
