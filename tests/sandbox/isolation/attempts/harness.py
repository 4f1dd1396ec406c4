"""Runs the attempts to leave a sandbox, as its process 1. The text of these files is passed to Python inside.

Standard library only. An attempt returns what it has got out, or None; an OSError means that the kernel has refused it. Any
other error is a mistake of the attempt and never counts as stopped.
"""

# The system calls are what is tried.
# ruff: noqa: PTH123
from __future__ import annotations

import ctypes
import errno
import json
import os
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

AttemptOutcome = dict[str, str]
SECONDS = 20
_MISTAKES = (errno.EINVAL, errno.EFAULT, errno.EBADF, errno.ENOTTY, errno.E2BIG)


class Attempt(NamedTuple):
    """One way out. `without_commands`: a file tool could try it too, so it is also tried where no commands are offered.

    `outside`: it succeeds for an ordinary user without a sandbox, which shows that the attempt itself works.
    """

    name: str
    title: str
    run: Callable[[dict[str, Any]], object]
    without_commands: bool
    outside: bool


ATTEMPTS: dict[str, Attempt] = {}
libc = ctypes.CDLL(None, use_errno=True)


def attempt(
    title: str, *, without_commands: bool = False, outside: bool = False
) -> Callable[[Callable[[dict[str, Any]], object]], Callable[[dict[str, Any]], object]]:
    def register(run: Callable[[dict[str, Any]], object]) -> Callable[[dict[str, Any]], object]:
        name = run.__name__.replace("_", "-")
        ATTEMPTS[name] = Attempt(name, title, run, without_commands, outside)
        return run

    return register


def call(number: int, *arguments: Any) -> int:
    """A system call, by number. Raises OSError."""
    return check(libc.syscall(ctypes.c_long(number), *arguments))


def read(path: str, limit: int = 65536) -> str:
    with open(path, "rb") as file:
        return file.read(limit).decode("utf-8", "replace")


def check(result: int) -> int:
    """The result of a function of the C library. Raises OSError."""
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def expect_refusal(error: OSError) -> None:
    """A call that fails because its arguments are wrong shows nothing about the boundary."""
    if error.errno in _MISTAKES:
        raise AssertionError("the attempt itself is wrong") from error


def first_success(*tries: Callable[[], object]) -> str | None:
    """Which of the calls is not refused, and its result."""
    for index, change in enumerate(tries):
        try:
            return f"{index}: {change()}"
        except OSError as error:
            expect_refusal(error)
    return None


def find_canary(context: dict[str, Any], paths: list[str]) -> str | None:
    """The first of the paths that gives the secret away. Refused paths are skipped."""
    for path in paths:
        try:
            if context["canary"] in read(path):
                return path
        except OSError:
            continue
    return None


def shell(command: str, **environment: str) -> str:
    """All output of a shell command."""
    variables = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/tmp", **environment}
    done = subprocess.run(
        ["/bin/bash", "-c", command],
        env=variables,
        capture_output=True,
        timeout=SECONDS / 2,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    return (done.stdout + done.stderr).decode("utf-8", "replace")


def run_one(tried: Attempt, context: dict[str, Any]) -> str:
    """Run an attempt in a child process. Returns its evidence, "" if it was stopped, or a text that begins with `error:`."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.write(writing, judge(tried, context).encode()[:4096])
        os._exit(0)
    os.close(writing)
    ready = select.select([reading], [], [], SECONDS)[0]
    if not ready:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    text = os.read(reading, 4096).decode("utf-8", "replace") if ready else "error: no answer"
    os.close(reading)
    return text


def judge(tried: Attempt, context: dict[str, Any]) -> str:
    try:
        found = tried.run(context)
    except OSError as error:
        return f"error: {traceback.format_exc()}" if error.errno in _MISTAKES else ""
    except BaseException:  # noqa: BLE001  # it is reported, and fails the test
        return "error: " + traceback.format_exc()
    return "" if found is None or found is False else f"escaped: {found}"


def run_all(context: dict[str, Any]) -> AttemptOutcome:
    chosen = [tried for tried in ATTEMPTS.values() if tried.name in context["names"]]
    return {tried.name: run_one(tried, context) for tried in chosen}


def main() -> None:
    # As the server inside: commands must not open its memory.
    libc.prctl(4, 0, 0, 0, 0)
    context = json.load(sys.stdin)
    sys.stdout.write(json.dumps(run_all(context)))
    sys.stdout.flush()
