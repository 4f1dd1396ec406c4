"""Asks `judge` in a process of its own, so that no schema and no regular expression can hold up the agents of others.

A thread could not be interrupted, and would hold up all the others while it matches. What cannot take long is judged here: most
schemas are small and plain, and a process costs a sixth of a second.
"""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import msgspec

from fidelio.orchestrator.blueprints import judge
from fidelio.orchestrator.blueprints.judge import Schema

# Only for a machine that is overloaded: the process itself ends when it has computed for much less.
_WAIT_SECONDS = 60.0
# How much a plain schema and a value may weigh together, and a schema alone, to be judged in a fraction of a second.
_LIGHT, _LIGHT_SCHEMA = 500_000, 4_000
# The keywords that make the work grow faster than the schema times the value. A property of that name costs a process.
_HEAVY = re.compile(rb'"(?:pattern|\$ref|\$dynamicRef|\$recursiveRef|uniqueItems|unevaluated)')
# What the encoder says of a value that no client could have sent, and of one without an end.
_NO_JSON = (TypeError, UnicodeEncodeError, RecursionError)
_PROGRAM = (sys.executable, "-P", judge.__file__)
# Each of them has a process, so these are few; and their own, so that they never wait for the long calls of agents.
_WAITERS = ThreadPoolExecutor(2, thread_name_prefix="judge")


class Unjudged(Exception):
    """There is no answer. It is a sentence that says why."""


class TooMuch(Unjudged):
    """There never will be one: it takes too long, or too much."""


def schema_fault(schema: Schema) -> str:
    """What is wrong with a schema; an empty text when it can be used."""
    try:
        return _schema_fault(msgspec.json.encode(schema))
    except Unjudged as problem:
        return str(problem)
    except _NO_JSON as problem:
        return f"It is not JSON: {problem!s:.100}."


def patterns_fault(patterns: tuple[str, ...]) -> str:
    """What is wrong with one of these regular expressions; an empty text when they can be used."""
    try:
        return _patterns_fault(patterns)
    except Unjudged as problem:
        return str(problem)


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


@lru_cache(maxsize=100)
def _patterns_fault(patterns: tuple[str, ...]) -> str:
    return _lasting("patterns", patterns)


@lru_cache(maxsize=100)
def _schema_fault(text: bytes) -> str:
    if len(text) <= _LIGHT_SCHEMA and b'"pattern' not in text:
        return judge.schema_fault(msgspec.json.decode(text))
    return _lasting("schema", msgspec.Raw(text))


def _lasting(question: str, about: Any) -> str:
    """An answer that may be remembered: that there will never be one is an answer, too."""
    try:
        return str(_answer(question, about))
    except TooMuch as problem:
        return str(problem)


async def _waiting(question: str, *about: Any) -> Any:
    return await asyncio.get_running_loop().run_in_executor(_WAITERS, _answer, question, *about)


def _answer(question: str, *about: Any) -> Any:
    try:
        asked = msgspec.json.encode((question, *about))
        done = subprocess.run(  # noqa: S603  # a program of our own
            _PROGRAM, input=asked, capture_output=True, timeout=_WAIT_SECONDS, check=False
        )
    except (*_NO_JSON, OSError, subprocess.TimeoutExpired) as problem:
        raise Unjudged(f"It could not be checked: {problem!s:.200}.") from problem
    if done.returncode in (-signal.SIGKILL, -signal.SIGXCPU):
        raise TooMuch(f"It takes more than {judge.SECONDS} seconds to check.")
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise TooMuch(f"It could not be checked: {last:.200}.")
    return msgspec.json.decode(done.stdout)
