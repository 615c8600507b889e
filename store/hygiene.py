"""Secrets that somebody put where only identifiers belong: found by the names of keys and by patterns.

A finding names the path (``payload.card.api_key``) and never the value. Patterns run on Rust's regex engine, whose time
is proportional to the text whatever the pattern and the text are; a pattern that wants more (a look-around, a reference
back) is refused at start.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from pydantic import Field, field_validator
from pydantic_core import SchemaError, SchemaValidator, core_schema

from store import payloads
from store.errors import SecretFound
from store.settings import Section

#: What stands where a secret was.
REDACTED: Final = "***REDACTED***"

#: Keys that are flagged: alone, or as the last words of a longer name (``db_password``, ``githubToken``).
DENY_KEYS: Final = (
    "api_key", "apikey", "authorization", "password", "passwd", "pwd", "passphrase", "token", "secret", "private_key",
    "secret_key", "access_key", "client_secret", "credentials", "cookie", "set_cookie", "dsn",
)  # fmt: skip

#: OpenAI keys, AWS access keys, GitHub tokens, JWTs, Google API keys, Slack tokens, private keys.
PATTERNS: Final = (
    r"\bsk-[A-Za-z0-9_-]{20,}",
    r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    r"\bgh[pousr]_[A-Za-z0-9]{36,}",
    r"\bgithub_pat_[A-Za-z0-9_]{22,}",
    r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
    r"\bAIza[0-9A-Za-z_-]{35}",
    r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}",
    r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----",
)

#: Patterns at most, characters of each, and findings that one error names.
PATTERNS_MOST, PATTERN_MOST, FINDINGS_SHOWN = 64, 500, 10

_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z0-9]+(?![a-z])|[^\W_]+")
_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,64}")

#: A key is looked at up to here: no secret's name is longer, and nobody's time is.
_KEY_MOST = 256


class HygieneSettings(Section):
    """Both are off unless they are asked for; what is refused is not redacted."""

    reject: bool = Field(default=False, validation_alias="JOBS_SECRET_REJECT")
    redact: bool = Field(default=False, validation_alias="JOBS_SECRET_REDACT")
    deny_keys: str | None = Field(default=None, validation_alias="JOBS_SECRET_DENY_KEYS")
    patterns: str | None = Field(default=None, validation_alias="JOBS_SECRET_PATTERNS")

    @field_validator("deny_keys")
    @classmethod
    def _names(cls, value: str | None) -> str | None:
        if value is not None and not all(_words(name) for name in _parted(value, ",")):
            raise ValueError("must be names of keys, parted by commas")
        return value

    @field_validator("patterns")
    @classmethod
    def _usable(cls, value: str | None) -> str | None:
        patterns = _parted(value or "", ";")
        if len(patterns) > PATTERNS_MOST:
            raise ValueError(f"has more than {PATTERNS_MOST} patterns")
        for number, pattern in enumerate(patterns, 1):
            if len(pattern) > PATTERN_MOST:
                raise ValueError(f"pattern {number} has more than {PATTERN_MOST} characters")
            try:
                found = _matcher(pattern).isinstance_python("")
            except SchemaError:
                raise ValueError(
                    f"pattern {number} can't be used: write it without look-around and references back, and without "
                    "semicolons, which part patterns"
                ) from None
            if found:
                raise ValueError(f"pattern {number} fits an empty text, and so every text")
        return value

    @property
    def hygiene(self) -> Hygiene:
        """The same, at work."""
        return Hygiene(
            reject=self.reject,
            redact=self.redact,
            deny_keys=_parted(self.deny_keys, ",") if self.deny_keys else DENY_KEYS,
            patterns=_parted(self.patterns, ";") if self.patterns else PATTERNS,
        )


class Hygiene:
    """What is looked for, and what is done about it."""

    def __init__(
        self,
        *,
        reject: bool = False,
        redact: bool = False,
        deny_keys: Sequence[str] = DENY_KEYS,
        patterns: Sequence[str] = PATTERNS,
    ) -> None:
        self.on = reject or redact
        self._reject = reject
        self._denied = {_words(name) for name in deny_keys}
        self._longest = max(map(len, self._denied), default=0)
        self._matchers = [_matcher(pattern) for pattern in patterns] if self.on else []

    def json(self, text: str, what: str, *, apart_from: Sequence[str | None] = ()) -> str:
        """JSON ``text`` without secrets. Raises SecretFound where they are refused, and where one of them stands in
        ``apart_from`` too, names of the job that can't be redacted."""
        found: list[str] = []
        values: list[str] = []
        clean = self._cleaned(json.loads(text), what, found, values)
        if not found:
            return text
        if self._reject:
            raise SecretFound(f"{_listed(found)}: pass the id of a secret, never a secret")
        if any(value in name for name in apart_from if name is not None for value in values):
            raise SecretFound(
                f"{_listed(found)}, and in the job's key or another of its names, which are never redacted"
            )
        return payloads.encode(clean, what=what, limit=len(text) * 8 + 1024)  # a number may grow into the mark

    def line(self, text: str, what: str) -> str:
        """A line of text without secrets. Raises SecretFound where they are refused."""
        if not self._matches(text):
            return text
        if self._reject:
            raise SecretFound(f"{_listed([what])}: leave it out")
        return REDACTED

    def name(self, value: str | None, what: str) -> None:
        """Raise SecretFound for a name of a job that is a secret: it identifies, so it can't be redacted."""
        if value is not None and self._matches(value):
            raise SecretFound(f"{_listed([what])}, which is never redacted: use an id")

    def _cleaned(self, value: Any, path: str, found: list[str], values: list[str]) -> Any:
        if isinstance(value, str):
            if value == REDACTED or not self._matches(value):
                return value
            found.append(path)
            values.append(value)
            return REDACTED
        if isinstance(value, list):
            return [self._cleaned(one, f"{path}[{place}]", found, values) for place, one in enumerate(value)]
        if isinstance(value, dict):
            return self._cleaned_object(value, path, found, values)
        return value

    def _cleaned_object(self, value: dict[str, Any], path: str, found: list[str], values: list[str]) -> dict[str, Any]:
        clean: dict[str, Any] = {}
        for key, one in value.items():
            secret = self._matches(key)
            inside = f"{path}.{key if not secret and _PLAIN.fullmatch(key) else '*'}"
            if secret:
                found.append(inside)
                values.append(key)
                key = _unused(clean, value)
            if self._is_denied(key) and _tells(one):
                found.append(inside)
                values += [leaf for leaf in _leaves(one) if len(leaf) > 3]
                clean[key] = REDACTED
            else:
                clean[key] = self._cleaned(one, inside, found, values)
        return clean

    def _matches(self, text: str) -> bool:
        return any(matcher.isinstance_python(text) for matcher in self._matchers)

    def _is_denied(self, key: str) -> bool:
        words = _words(key[-_KEY_MOST:])
        return any(words[-length:] in self._denied for length in range(1, min(self._longest, len(words)) + 1))


def _matcher(pattern: str) -> SchemaValidator:
    return SchemaValidator(core_schema.str_schema(strict=True, pattern=pattern, regex_engine="rust-regex"))


def _words(name: str) -> tuple[str, ...]:
    return tuple(word.lower() for word in _WORD.findall(name))


def _parted(text: str, by: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(by) if part.strip())


def _unused(clean: dict[str, Any], given: dict[str, Any]) -> str:
    number, key = 1, REDACTED
    while key in clean or key in given:
        number += 1
        key = f"{REDACTED}{number}"
    return key


def _tells(value: Any) -> bool:
    """Whether a value could be a secret: nothing, a yes or no, and what was redacted before could not."""
    return value is not None and not isinstance(value, bool) and value not in ("", REDACTED)


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for one in value.values():
            yield from _leaves(one)
    elif isinstance(value, list):
        for one in value:
            yield from _leaves(one)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


def _listed(found: list[str]) -> str:
    more = f" and {len(found) - FINDINGS_SHOWN} more" if len(found) > FINDINGS_SHOWN else ""
    shown = ", ".join(path[:200] for path in found[:FINDINGS_SHOWN])
    return f"what looks like a secret stands in {shown}{more}"
