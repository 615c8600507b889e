"""Valkey's answers, checked before they are believed: a malformed one is a ValkeyUnavailable, not a crash elsewhere."""

from __future__ import annotations

from collections.abc import Collection

from store.clock import from_micros
from store.errors import ValkeyUnavailable
from store.valkey.entries import Claimed, Claims, DeadLetter


def counts(operation: str, reply: object, expected: int) -> list[int]:
    """A list of that many numbers, none below 0."""
    if not isinstance(reply, list) or len(reply) != expected:
        raise _malformed(operation)
    return [_count(operation, value) for value in reply]


def answers(operation: str, reply: object, expected: int) -> list[bool]:
    """A list of that many 0 and 1."""
    numbers = counts(operation, reply, expected)
    if any(number > 1 for number in numbers):
        raise _malformed(operation)
    return [number == 1 for number in numbers]


def count(operation: str, reply: object) -> int:
    """A number, not below 0."""
    return _count(operation, reply)


def claims(reply: object, tokens: Collection[str]) -> Claims:
    """What ``lua/claim.lua`` answers. Every token at most once, and none that nobody asked with."""
    if not isinstance(reply, list) or len(reply) % 4 != 2 or type(reply[0]) is not int or reply[0] < -1:
        raise _malformed("claim")
    unused = set(tokens)
    taken = []
    for place in range(2, len(reply), 4):
        member, token, envelope, lost = reply[place : place + 4]
        owner = _text("claim", token)
        if owner not in unused or not isinstance(envelope, bytes):
            raise _malformed("claim")
        unused.remove(owner)
        taken.append(Claimed(_text("claim", member), owner, envelope, _count("claim", lost)))
    return Claims(taken, None if reply[0] < 0 else reply[0], _count("claim", reply[1]))


def dead_letters(reply: object) -> list[DeadLetter]:
    """What ``lua/letters.lua`` answers."""
    if not isinstance(reply, list) or len(reply) % 3:
        raise _malformed("letters")
    found = []
    for place in range(0, len(reply), 3):
        member, buried, envelope = reply[place : place + 3]
        if not isinstance(buried, bytes) or not buried.isdigit() or len(buried) > 14 or not isinstance(envelope, bytes):
            raise _malformed("letters")
        found.append(DeadLetter(_text("letters", member), from_micros(int(buried) * 1000), envelope))
    return found


def _malformed(operation: str) -> ValkeyUnavailable:
    return ValkeyUnavailable(
        f"Valkey's answer to '{operation}' can't be read: see that it is Valkey that listens there, and that no "
        "other program uses this prefix"
    )


def _count(operation: str, value: object) -> int:
    if type(value) is not int or value < 0:
        raise _malformed(operation)
    return value


def _text(operation: str, value: object) -> str:
    try:
        if isinstance(value, bytes) and value:
            return value.decode()
    except UnicodeDecodeError:
        pass
    raise _malformed(operation)
