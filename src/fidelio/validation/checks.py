"""Checks of schemas, values and regular expressions: in this process where that is safe, otherwise in a child process.

Most schemas are small and plain and are checked in this process. The cache holds results, also failed ones, by the digest of
the question: a list of blueprints checks the same schemas each time, a check takes up to 2 seconds, and 10,000 results of up
to 1,000 bytes take at most 10 MB.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import re
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any

import msgspec

from fidelio.validation import child
from fidelio.validation.child import Schema
from fidelio.validation.pool import WAIT_SECONDS, Ask, CheckUndecided, ChildPool, LimitExceeded

# A check that failed on an overloaded machine is not repeated before this time: a list of blueprints would repeat all of them.
_RETRY_SECONDS = 60.0
_CACHE_SIZE, _MAX_CACHED_BYTES = 10_000, 1_000
# The product of the sizes of a plain schema and a value, and the size of a schema alone, that take a fraction of a second.
_LIGHT, _LIGHT_SCHEMA = 500_000, 4_000
# Keywords whose cost grows faster than schema size times value size. A property with such a name is only checked in a child.
_HEAVY = re.compile(rb'"(?:pattern|\$ref|\$dynamicRef|\$recursiveRef|uniqueItems|unevaluated)')
# What the encoder raises for a value that is not JSON, and for a value that contains itself.
_NOT_JSON = (TypeError, UnicodeEncodeError, RecursionError)
_POOL = ChildPool(2)
CheckAnswer = bytes | CheckUndecided
# By the digest of the question: the answer, or the error, and when the entry expires. A lookup takes 5 microseconds, a check in
# a child 200, and up to half a second if the child has to start; a list of blueprints repeats all checks.
_CACHE: dict[bytes, tuple[CheckAnswer, float]] = {}


def find_schema_problem(schema: Schema) -> str:
    """What is wrong with a schema; empty when it is valid, or when the check is undecided."""
    try:
        text = msgspec.json.encode(schema)
    except _NOT_JSON as problem:
        return f"It is not JSON: {problem!s:.100}."
    is_light = len(text) <= _LIGHT_SCHEMA and b'"pattern' not in text
    return _find_problem("schema", msgspec.Raw(text), find=_check_here if is_light else _wait_for_child)


def find_pattern_problem(patterns: tuple[str, ...]) -> str:
    """What is wrong with the first invalid regular expression; empty when all are valid, or when the check is undecided."""
    return _find_problem("patterns", patterns, find=_wait_for_child)


async def find_violations(schema: Schema, value: Any) -> tuple[str, str]:
    """Why the schema cannot be used, and how the value violates it; both empty when valid. Raises `CheckUndecided`."""
    rule = msgspec.json.encode(schema)
    try:
        data = msgspec.json.encode(value)
    except _NOT_JSON as problem:
        return "", f"It is not JSON: {problem!s:.100}."
    if len(rule) * len(data) <= _LIGHT and not _HEAVY.search(rule):
        return child.find_violations(msgspec.json.decode(rule), msgspec.json.decode(data))
    unusable, violated = await _ask_child("violations", msgspec.Raw(rule), msgspec.Raw(data))
    return unusable, violated


async def find_first_match(pattern: str, text: str) -> list[str | None]:
    """The first match of a regular expression, or an empty list. Raises `CheckUndecided`."""
    return list(await _ask_child("first-match", pattern, text))


def _find_problem(check: str, about: Any, *, find: Callable[[bytes], CheckAnswer]) -> str:
    """Run a check. A check that exceeds its limits is a problem of its input; an overloaded machine is not."""
    try:
        question = _encode(check, about)
        return str(_decode(_lookup(question) or find(question)))
    except LimitExceeded as problem:
        return str(problem)
    except CheckUndecided:
        return ""


async def _ask_child(check: str, *about: Any) -> Any:
    question = _encode(check, *about)
    found = _lookup(question)
    if found is None:
        found = await asyncio.wrap_future(_POOL.submit(partial(_find_and_cache, question)))
    return _decode(found)


def _check_here(question: bytes) -> CheckAnswer:
    try:
        return _find_and_cache(question, child.answer)
    except RecursionError:
        return LimitExceeded("It could not be checked: it is nested too deeply.")


def _wait_for_child(question: bytes) -> CheckAnswer:
    waiting = _POOL.submit(partial(_find_and_cache, question))
    try:
        return waiting.result(WAIT_SECONDS)
    except TimeoutError:
        # Still queued behind other checks. The pool itself ends a check that has begun.
        return CheckUndecided("It could not be checked: too many checks are waiting.") if waiting.cancel() else waiting.result()


def _find_and_cache(question: bytes, ask: Ask) -> CheckAnswer:
    """The answer of `ask`, which is cached. Another thread may have cached it since the question was submitted."""
    if (found := _lookup(question)) is not None:
        return found
    seconds = math.inf
    try:
        found = ask(question)
    except LimitExceeded as problem:
        found = problem
    except CheckUndecided as problem:
        found, seconds = problem, _RETRY_SECONDS
    if len(_CACHE) >= _CACHE_SIZE:
        _CACHE.clear()
    if isinstance(found, CheckUndecided) or len(found) <= _MAX_CACHED_BYTES:
        _CACHE[_key(question)] = found, monotonic() + seconds
    return found


def _lookup(question: bytes) -> CheckAnswer | None:
    found, until = _CACHE.get(_key(question), (None, 0.0))
    return found if monotonic() <= until else None


def _key(question: bytes) -> bytes:
    return hashlib.sha256(question).digest()


def _encode(*question: Any) -> bytes:
    try:
        return msgspec.json.encode(question)
    except _NOT_JSON as problem:
        raise LimitExceeded(f"It could not be checked: {problem!s:.200}.") from problem


def _decode(found: CheckAnswer) -> Any:
    if isinstance(found, LimitExceeded):
        # A new exception each time: raising the cached object would add to its traceback.
        raise LimitExceeded(str(found))
    if isinstance(found, CheckUndecided):
        raise CheckUndecided(str(found))
    return msgspec.json.decode(found)
