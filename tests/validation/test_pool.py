"""Child processes that check: warm, at most two, killed when they take too long, and never left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from fidelio.processes.ending import wait_until_ended
from fidelio.processes.table import AGENT_MARKER, find_identity, is_alive, iterate_processes
from fidelio.validation import child
from fidelio.validation.pool import ChildPool, LimitExceeded
from tests.support import proves

EVIL, VICTIM = r"^(a+)+$", "a" * 60 + "!"
SECONDS = 60.0
REPOSITORY = Path(__file__).parents[2]
# A parent that asks one question, says who answered, and goes on as it is told.
PARENT = """
import sys
from fidelio.validation.pool import ChildPool
pool = ChildPool(2)
assert pool.submit(lambda ask: ask(b'["first-match", "b", "abc"]')).result(60) == b'["b"]'
print(*pool.pids(), flush=True)
if sys.argv[1] == "busy":
    pool.submit(lambda ask: ask(b'["first-match", "^(a+)+$", "' + b"a" * 60 + b'!"]'))
if sys.argv[1] != "end":
    sys.stdin.read()
"""


@pytest.fixture
def pool() -> Iterator[ChildPool]:
    pool = ChildPool(2)
    yield pool
    pool.close()


def ask(pool: ChildPool, *question: object) -> object:
    return msgspec.json.decode(pool.submit(lambda ask: ask(msgspec.json.encode(question))).result(SECONDS))


@proves("validation.warm-children")
def test_two_questions_are_answered_by_the_same_process(pool: ChildPool) -> None:
    answers = [ask(pool, "first-match", "b", "abc")]
    first = pool.pids()
    answers.append(ask(pool, "violations", {"type": "string"}, 1))

    assert answers == [["b"], ["", "1 is not of type 'string'."]]
    assert (len(first), pool.pids()) == (1, first)


@proves("validation.warm-children")
def test_a_check_that_takes_too_long_is_killed_and_the_next_question_is_answered(pool: ChildPool) -> None:
    ask(pool, "first-match", "b", "abc")
    (pid,) = pool.pids()
    runaway = find_identity(pid)
    assert runaway is not None

    with pytest.raises(LimitExceeded, match="takes more than 2 seconds to check"):
        ask(pool, "first-match", EVIL, VICTIM)
    assert not is_alive(runaway)

    assert ask(pool, "first-match", "b", "abc") == ["b"]
    assert len(pool.pids()) == 1


@proves("validation.warm-children")
async def test_many_questions_at_once_have_two_processes(pool: ChildPool) -> None:
    async def follow() -> int:
        most = 0
        while True:
            # Samples the number of children until the test cancels it; nothing is waited for.
            most = max(most, len(_children()))
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                return most

    before = len(_children())
    following = asyncio.create_task(follow())
    async with asyncio.timeout(SECONDS):
        answers = await asyncio.gather(
            *(asyncio.to_thread(ask, pool, "first-match", "b", f"{number}b") for number in range(200))
        )
    following.cancel()

    assert answers == [["b"]] * 200
    assert (await following) - before <= 2
    assert 1 <= len(pool.pids()) <= 2


@proves("validation.warm-children")
@pytest.mark.parametrize("how", ["end", "killed", "busy"])
async def test_no_process_is_left_when_the_parent_ends(how: str) -> None:
    parent = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PARENT, how),
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert parent.stdout is not None
    async with asyncio.timeout(SECONDS):
        identity = find_identity(int(await parent.stdout.readline()))
        if how != "end":
            assert identity is not None
            parent.send_signal(signal.SIGKILL)
        await parent.communicate()
        if identity is not None:
            await wait_until_ended([identity], SECONDS)
            assert not is_alive(identity)


@proves("validation.warm-children")
def test_a_child_is_none_of_the_processes_of_the_agent_above(pool: ChildPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(AGENT_MARKER, "s_000000000000.1")
    ask(pool, "first-match", "b", "abc")

    (found,) = [entry for entry in iterate_processes() if entry.identity.pid in pool.pids()]
    assert (found.is_unmarked, found.session) == (True, found.identity.pid)


@proves("validation.warm-children")
def test_a_killed_child_is_replaced(pool: ChildPool) -> None:
    ask(pool, "first-match", "b", "abc")
    (pid,) = pool.pids()
    os.kill(pid, signal.SIGKILL)

    assert ask(pool, "first-match", "b", "abc") == ["b"]
    assert pool.pids() != {pid}


@proves("validation.warm-children")
def test_a_question_that_needs_too_much_memory_has_no_answer(pool: ChildPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fidelio.validation.pool._PROGRAM", _program(MAX_BYTES=1 << 27))
    with pytest.raises(LimitExceeded, match="It could not be checked: MemoryError"):
        ask(pool, "schema", {"enum": ["x" * (1 << 26)]})

    assert ask(pool, "first-match", "b", "abc") == ["b"]


@proves("validation.warm-children")
def test_an_idle_child_ends_by_itself_and_is_replaced(pool: ChildPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fidelio.validation.pool._PROGRAM", _program(IDLE_SECONDS=1.0))
    assert ask(pool, "first-match", "b", "abc") == ["b"]
    (pid,) = pool.pids()
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

    assert ask(pool, "first-match", "b", "abc") == ["b"]
    assert pid not in pool.pids()


def _program(**changes: float) -> tuple[str, ...]:
    """The program of the child with other limits."""
    change = f"import runpy; main = runpy.run_path({child.__file__!r})['main']; main.__globals__.update({changes!r}); main()"
    return sys.executable, "-c", change


def _children() -> set[int]:
    return {entry.identity.pid for entry in iterate_processes() if entry.parent == os.getpid()}
