"""What a test sees and changes behind the scripts' back: the raw keys of one queue."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import redis

from store.valkey.keys import PARTS, keys_of

LONG_AGO = 1  # ms since 1970

# Of every key: its kind, then its members and scores, fields and values, or length.
_EVERYTHING = """
local answer = {}
for n, key in ipairs(KEYS) do
  local kind = redis.call('TYPE', key).ok
  answer[n * 2 - 1] = kind
  answer[n * 2] = kind == 'zset' and redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
    or kind == 'hash' and redis.call('HGETALL', key)
    or kind == 'list' and {'length', redis.call('LLEN', key)}
    or {}
end
return answer
"""


def raw(url: str) -> Any:
    """redis-py's own client for one of our urls."""
    if urlsplit(url).scheme.endswith("+cluster"):
        return redis.RedisCluster.from_url(url.replace("+cluster", "", 1))
    return redis.Redis.from_url(url)


class Inside:
    """Instead of waiting for a lease to run out or a delay to be over, a test dates it back."""

    def __init__(self, bare: Any, queue: str) -> None:
        self._keys = dict(zip(PARTS, keys_of(queue), strict=True))
        self._redis = bare

    def command(self, name: str, part: str, *arguments: str | int) -> Any:
        """Any command on one of the queue's keys."""
        return self._redis.execute_command(name, self._keys[part], *arguments)

    def lapse(self, member: str) -> None:
        """The lease of ``member`` ran out long ago."""
        assert self.command("ZADD", "leases", "XX", "CH", LONG_AGO, member) == 1

    def mature(self, member: str) -> None:
        """The delay of ``member`` was over long ago."""
        assert self.command("ZADD", "delayed", "XX", "CH", LONG_AGO, member) == 1

    def scores(self, part: str) -> dict[str, int]:
        """A sorted set, member by member."""
        pairs = self.command("ZRANGE", part, 0, -1, "WITHSCORES")
        return {member.decode(): int(float(score)) for member, score in pairs}

    def spelled(self, part: str, member: str) -> str:
        """A score in a sorted set, as the server writes it."""
        script = "return redis.call('ZSCORE', KEYS[1], ARGV[1])"
        return bytes(self._redis.eval(script, 1, self._keys[part], member)).decode()

    def values(self, part: str) -> dict[str, bytes]:
        """A hash, field by field."""
        return {field.decode(): value for field, value in self.command("HGETALL", part).items()}

    def everything(self) -> dict[str, dict[str, Any]]:
        """All keys at one moment: scores as numbers, values as bytes, the bell as its ``length``."""
        answer = self._redis.eval(_EVERYTHING, len(PARTS), *self._keys.values())
        found: dict[str, dict[str, Any]] = {}
        for part, kind, flat in zip(PARTS, answer[::2], answer[1::2], strict=True):
            pairs = zip(flat[::2], flat[1::2], strict=True)
            found[part] = {key.decode(): int(float(value)) if kind == b"zset" else value for key, value in pairs}
        return found

    def bell(self) -> int:
        """How many elements the doorbell has."""
        length: int = self.command("LLEN", "bell")
        return length

    def left(self) -> set[str]:
        """The keys that exist."""
        return {part for part in PARTS if self.command("EXISTS", part)}

    def millis(self) -> int:
        """Valkey's clock, of the server that has this queue."""
        script = "local t = redis.call('TIME') return t[1] .. string.format('%06d', t[2])"
        return int(self._redis.eval(script, 1, self._keys["ready"])) // 1000
