"""Ids: random ids of sessions and requests, and ids of runs, which consist of a session id and a number.

People can read them out and they never collide: 32 letters and digits without look-alikes, five bits each. Twelve
of them are the 60 random bits that a session handle promises.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import NamedTuple

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
SESSION_PREFIX = "s_"
# The letter of every byte: each stands for eight of them, so all are equally likely.
_LETTERS = ALPHABET.encode() * 8
_SHORT_HANDLE = re.compile(rf"s_[{ALPHABET}]{{12}}")
_SHORT_TOKEN = re.compile(
    rf"({_SHORT_HANDLE.pattern})\.([1-9][0-9]{{0,3}})\.(0|[1-9][0-9]{{0,8}})(?:\.(r_[{ALPHABET}]{{12}}))?"
)


def new_id(prefix: str, characters: int = 12) -> str:
    return prefix + secrets.token_bytes(characters).translate(_LETTERS).decode()


def derive_id(prefix: str, text: str, characters: int = 12) -> str:
    """The same id for the same text; from another text nobody can choose to get it."""
    return prefix + hashlib.sha256(text.encode()).digest()[:characters].translate(_LETTERS).decode()


def new_session_id() -> str:
    return new_id(SESSION_PREFIX)


def is_short_handle(text: str) -> bool:
    return _SHORT_HANDLE.fullmatch(text) is not None


class ShortToken(NamedTuple):
    """The short form of a token: a session, the number of an agent in it, a visit, and perhaps a request."""

    session: str
    agent: int
    visit: int
    request: str = ""

    def __str__(self) -> str:
        return ".".join(str(part) for part in self if part != "")


def parse_short_token(text: str) -> ShortToken | None:
    """Parse the short form of a token, such as `s_0123456789ab.2.3`; None for any other text."""
    match = _SHORT_TOKEN.fullmatch(text)
    return ShortToken(match[1], int(match[2]), int(match[3]), match[4] or "") if match else None


def run_id(session: str, number: int) -> str:
    """A run is named after its session, so that a process that carries the id of its run also names its session."""
    return f"{session}.{number}"


def session_of_run(run: str) -> str:
    """The session in the id of a run; empty where there is none."""
    return run.rpartition(".")[0]
