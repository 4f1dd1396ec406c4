"""Checks of untrusted JSON Schemas and regular expressions, and the child process that runs them.

A short schema or pattern can keep a machine busy for years, so `pool` runs this file as a program, by its path. It reads one
question per line, prints one answer per line, and ends with its input. It imports nothing of ours, so that it starts quickly.
"""

from __future__ import annotations

import json
import math
import re
import resource
import select
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

SECONDS = 2
MAX_BYTES = 1 << 30
IDLE_SECONDS = 60.0
MAX_PROBLEMS = 5
MAX_VALUE_LENGTH = 120
READY = b"\n"

Schema = Mapping[str, Any]


def find_schema_problem(schema: Schema) -> str:
    """What is wrong with the schema itself; empty when it is valid."""
    from jsonschema import Draft202012Validator, SchemaError  # noqa: PLC0415  # slow to import

    try:
        if outside := next(_external_references(schema), None):
            return f"It refers to {outside!r:.80}, and nothing outside of it is read."
        Draft202012Validator.check_schema(schema)
    except SchemaError as problem:
        return _sentence(problem)
    except RecursionError:
        return "It is nested too deeply."
    return ""


def find_violations(schema: Schema, value: Any) -> tuple[str, str]:
    """Why the schema cannot be used, and how the value violates it; both empty when valid."""
    from jsonschema import Draft202012Validator  # noqa: PLC0415  # most blueprints have no schema, and it is slow to import
    from referencing import Registry, exceptions  # noqa: PLC0415  # most blueprints have no schema, and it is slow to import

    # The registry is empty on purpose: without it, the validator would fetch references to addresses.
    validator = Draft202012Validator(schema, registry=Registry())
    try:
        found = sorted((_path_of(problem), _sentence(problem)) for problem in validator.iter_errors(value))
    except (exceptions.Unresolvable, RecursionError) as problem:
        return f"It refers to what is not there, or to itself: {problem!s:.200}.", ""
    except OverflowError:
        return "", "A number is too large to be checked."
    shown = [sentence for _, sentence in found[:MAX_PROBLEMS]]
    return "", " ".join(shown) + (f" ({len(found) - MAX_PROBLEMS} more.)" if len(found) > MAX_PROBLEMS else "")


def find_pattern_problem(patterns: Iterable[str]) -> str:
    """What is wrong with the first invalid regular expression; empty when all are valid."""
    for pattern in patterns:
        try:
            re.compile(pattern)
        except (re.error, OverflowError, RecursionError) as problem:
            return f"{pattern!r:.80} is no regular expression: {problem}."
    return ""


def find_first_match(pattern: str, text: str) -> list[str | None]:
    """The first group of the first match, or the whole match if there is no group; an empty list where nothing matches."""
    match = re.search(pattern, text)
    return [] if match is None else [match[1] if match.re.groups else match[0]]


CHECKS: Mapping[str, Callable[..., Any]] = {
    "schema": find_schema_problem,
    "violations": find_violations,
    "patterns": find_pattern_problem,
    "first-match": find_first_match,
}


def answer(question: bytes) -> bytes:
    """Run a check. The question is JSON with the name of the check and its arguments, the answer is its result as JSON."""
    check, *arguments = json.loads(question)
    return json.dumps(CHECKS[check](*arguments)).encode()


def main() -> None:
    # Not every system can limit memory; the time is limited on all of them.
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))
    find_schema_problem({})  # imports what is slow to import, so that it counts against no question
    _print(READY)
    while select.select([sys.stdin.fileno()], [], [], IDLE_SECONDS)[0] and (question := sys.stdin.buffer.readline()):
        _limit_cpu()
        _print(answer(question) + b"\n")


def _limit_cpu() -> None:
    """Limit the CPU time of a check whose parent was killed, and so cannot end it."""
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    seconds = math.ceil(time.process_time()) + SECONDS + 1
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, most))


def _print(line: bytes) -> None:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


def _path_of(problem: Any) -> list[str]:
    return [str(step) for step in problem.absolute_path]


def _sentence(problem: Any) -> str:
    """A bounded sentence: the message of the validator contains the whole value, which may be a megabyte."""
    where = ".".join(_path_of(problem))
    message = problem.message if len(problem.message) <= MAX_VALUE_LENGTH else f"{problem.message[:MAX_VALUE_LENGTH]}…"
    return f"`{where}`: {message}." if where else f"{message}."


def _external_references(part: Any) -> Iterator[str]:
    if isinstance(part, Mapping):
        for key in ("$ref", "$dynamicRef"):
            if isinstance(part.get(key), str) and not part[key].startswith("#"):
                yield part[key]
    values = part.values() if isinstance(part, Mapping) else part if isinstance(part, list) else ()
    for value in values:
        yield from _external_references(value)


if __name__ == "__main__":
    main()
