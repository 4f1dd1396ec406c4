"""Asks `judge` in a process of its own, so that no schema and no regular expression can hold up the agents of others.

A thread could not be interrupted, and would hold up all the others while it matches. What cannot take long is judged here: most
schemas are small and plain, and a process costs a sixth of a second. What has been found out is remembered, also that there is
no answer: nobody waits for the same thing twice.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from time import monotonic
from typing import Any, ParamSpec, TypeVar

import msgspec

from fidelio.validation import child as judge
from fidelio.validation.child import Schema

# Only for a machine that is overloaded: the process itself ends when it has computed for much less.
_WAIT_SECONDS = 20.0
# An overloaded machine is asked again after this time, and not before: a list of blueprints asks for all of them.
_AGAIN_SECONDS = 60.0
# Questions are remembered by digest and answers when they are short, so this many take little room.
_MOST_REMEMBERED, _SHORT = 10_000, 1_000
# How much a plain schema and a value may weigh together, and a schema alone, to be judged in a fraction of a second.
_LIGHT, _LIGHT_SCHEMA = 500_000, 4_000
# The keywords that make the work grow faster than the schema times the value. A property of that name costs a process.
_HEAVY = re.compile(rb'"(?:pattern|\$ref|\$dynamicRef|\$recursiveRef|uniqueItems|unevaluated)')
# What the encoder says of a value that no client could have sent, and of one without an end.
_NO_JSON = (TypeError, UnicodeEncodeError, RecursionError)
_PROGRAM = (sys.executable, "-P", judge.__file__)
# Each of them has a process, so these are few; and their own, so that they never wait for the long calls of agents.
_WAITERS = ThreadPoolExecutor(2, thread_name_prefix="judge")
# Reading blueprints means judging their schemas. One thread for each way to read, because readers share what they remember; two
# ways, because a list reads everything and a start only what it names.
_LISTING = ThreadPoolExecutor(1, thread_name_prefix="blueprints")
_GETTING = ThreadPoolExecutor(1, thread_name_prefix="blueprint")
# What was asked, by digest: the answer as it was given, or why there is none, and until when that holds.
_MEMORY: dict[bytes, tuple[bytes | Unjudged, float]] = {}

P = ParamSpec("P")
T = TypeVar("T")


class Unjudged(Exception):
    """There is no answer. It is a sentence that says why."""


class TooMuch(Unjudged):
    """There never will be one: it takes too long or too much, or cannot even be asked."""


async def listing_aside(read: Callable[P, T], *args: P.args, **more: P.kwargs) -> T:
    """Calls what lists blueprints where it holds up nobody but other lists."""
    return await asyncio.get_running_loop().run_in_executor(_LISTING, lambda: read(*args, **more))


async def getting_aside(read: Callable[P, T], *args: P.args, **more: P.kwargs) -> T:
    """Calls what reads one blueprint where it holds up nobody but other readers."""
    return await asyncio.get_running_loop().run_in_executor(_GETTING, lambda: read(*args, **more))


def schema_fault(schema: Schema) -> str:
    """What is wrong with a schema; an empty text when it can be used, or when nobody can tell now."""
    try:
        text = msgspec.json.encode(schema)
    except _NO_JSON as problem:
        return f"It is not JSON: {problem!s:.100}."
    if len(text) <= _LIGHT_SCHEMA and b'"pattern' not in text:
        return _light_fault(text)
    return _fault("schema", msgspec.Raw(text))


@lru_cache(maxsize=1_000)
def _light_fault(text: bytes) -> str:
    return judge.schema_fault(msgspec.json.decode(text))


def patterns_fault(patterns: tuple[str, ...]) -> str:
    """What is wrong with one of these regular expressions; an empty text when they can be used, or when nobody can tell now."""
    return _fault("patterns", patterns)


async def misfit(schema: Schema, value: Any) -> tuple[str, str]:
    """Why the schema cannot be used, and how the value does not fit it; both empty when all is well. Raises `Unjudged`."""
    rule = msgspec.json.encode(schema)
    try:
        given = msgspec.json.encode(value)
    except _NO_JSON as problem:
        return "", f"It is not JSON: {problem!s:.100}."
    if len(rule) * len(given) <= _LIGHT and not _HEAVY.search(rule):
        return judge.misfit(msgspec.json.decode(rule), msgspec.json.decode(given))
    broken, misfits = await _waiting("misfit", msgspec.Raw(rule), msgspec.Raw(given))
    return broken, misfits


async def first_match(pattern: str, text: str) -> list[str | None]:
    """What a regular expression finds first, or nothing. Raises `Unjudged`."""
    return list(await _waiting("first-match", pattern, text))


def _fault(question: str, about: Any) -> str:
    """That it takes too much is a fault of whoever wrote it; that the machine is overloaded is not."""
    try:
        return str(_answer(question, about))
    except TooMuch as problem:
        return str(problem)
    except Unjudged:
        return ""


async def _waiting(question: str, *about: Any) -> Any:
    return await asyncio.get_running_loop().run_in_executor(_WAITERS, _answer, question, *about)


def _answer(question: str, *about: Any) -> Any:
    try:
        asked = msgspec.json.encode((question, *about))
    except _NO_JSON as problem:
        raise TooMuch(f"It could not be checked: {problem!s:.200}.") from problem
    key = hashlib.sha256(asked).digest()
    found, until = _MEMORY.get(key, (None, 0.0))
    if found is None or monotonic() > until:
        found = _remembered(key, asked)
    if isinstance(found, Unjudged):
        # Another one each time, because raising adds to what it carries.
        raise type(found)(str(found))
    return msgspec.json.decode(found)


def _remembered(key: bytes, asked: bytes) -> bytes | Unjudged:
    found: bytes | Unjudged
    try:
        found, seconds = _said(asked), math.inf
    except TooMuch as problem:
        found, seconds = TooMuch(str(problem)), math.inf
    except Unjudged as problem:
        found, seconds = Unjudged(str(problem)), _AGAIN_SECONDS
    if len(_MEMORY) >= _MOST_REMEMBERED:
        _MEMORY.clear()
    if isinstance(found, Unjudged) or len(found) <= _SHORT:
        _MEMORY[key] = found, monotonic() + seconds
    return found


def _said(asked: bytes) -> bytes:
    try:
        done = subprocess.run(  # noqa: S603  # a program of our own
            _PROGRAM, input=asked, capture_output=True, timeout=_WAIT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise Unjudged(f"It could not be checked: {problem!s:.200}.") from problem
    if done.returncode in (-signal.SIGKILL, -signal.SIGXCPU):
        raise TooMuch(f"It takes more than {judge.SECONDS} seconds to check.")
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise TooMuch(f"It could not be checked: {last:.200}.")
    return done.stdout
