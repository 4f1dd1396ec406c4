"""Programs that other processes run on the same file. Start: `python -m tests.ledger.sqlite.programs NAME ARGS`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen

import apsw

from fidelio.errors import SequenceConflict
from fidelio.ledger.model import NewEvent
from fidelio.ledger.sqlite import open_sqlite

ROOT = Path(__file__).parents[3]


@contextmanager
def running(program: str, *arguments: object) -> Iterator[Popen[str]]:
    """Start the program in a process and wait until it is ready."""
    command = [sys.executable, "-m", __name__, program, *map(str, arguments)]
    with Popen(command, cwd=ROOT, stdin=PIPE, stdout=PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def finish(process: Popen[str], timeout: float = 60) -> list[str]:
    """Start the work of the program, wait for its end and return its output lines."""
    out, _ = process.communicate("go\n", timeout=timeout)
    assert process.returncode == 0
    return out.splitlines()


def send(what: object) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


def ready() -> None:
    send("ready")
    sys.stdin.readline()


async def append(path: str, session: str, count: str) -> None:
    """Append `count` events without an expected sequence number."""
    async with await open_sqlite(path) as ledger:
        ready()
        for number in range(int(count)):
            done = await ledger.append(session, NewEvent(type="note", body={"by": sys.argv[-1], "n": number}))
            send(done.events[0].id)


async def compete(path: str, session: str, rounds: str) -> None:
    """Append with an expected sequence number, read again after each conflict, and print the numbers appended."""
    async with await open_sqlite(path) as ledger:
        ready()
        for _ in range(int(rounds)):
            expected = (await ledger.session(session)).last_seq
            try:
                done = await ledger.append(session, NewEvent(type="won"), expect=expected)
            except SequenceConflict:
                continue
            send(done.events[0].seq)


async def hold(path: str) -> None:
    """Hold the write lock until a line arrives on stdin."""
    connection = apsw.Connection(path)
    connection.execute("BEGIN IMMEDIATE")
    ready()
    connection.execute("ROLLBACK")


if __name__ == "__main__":
    PROGRAMS: dict[str, Callable[..., Coroutine[None, None, None]]] = {"append": append, "compete": compete, "hold": hold}
    asyncio.run(PROGRAMS[sys.argv[1]](*sys.argv[2:5]))
