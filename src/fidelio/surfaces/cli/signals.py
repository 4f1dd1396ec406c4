"""Signals that end a command: Ctrl-C, SIGTERM and SIGHUP cancel its task, so that it can clean up.

A person presses Ctrl-C twice, and a terminal that closes sends SIGHUP twice. `finish` is for what must happen all the same.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from time import monotonic
from typing import Any, TypeVar

T = TypeVar("T")
# A loop that has not noticed a Ctrl-C for so long is in a computation, which the next Ctrl-C ends.
_STUCK_SECONDS = 1.0


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP ended the command. It is handled like Ctrl-C, except for the exit code."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.exit_code = 128 + number


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine. Ctrl-C, SIGTERM and SIGHUP cancel it, so that cleanup code runs.

    SIGTERM and SIGHUP do not raise SIGINT for that: a process that a shell starts in the background ignores SIGINT.
    """
    received: list[int] = []
    try:
        return asyncio.run(_cancel_on_signals(work, received))
    except asyncio.CancelledError:
        if not received:
            raise
        raise (KeyboardInterrupt if received[0] == signal.SIGINT else Terminated(received[0])) from None


async def _cancel_on_signals(work: Coroutine[Any, Any, T], received: list[int]) -> T:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    unanswered: list[float] = []

    def deliver() -> None:
        unanswered.clear()
        task.cancel()

    def cancel(number: int, _: object) -> None:
        # asyncio raises at every second Ctrl-C, in whatever runs, and ends the tasks that `finish` waits for.
        if number == signal.SIGINT and unanswered and monotonic() - unanswered[0] > _STUCK_SECONDS:
            raise KeyboardInterrupt
        received.append(number)
        unanswered.append(monotonic())
        # A signal does not wake the loop; this call does.
        loop.call_soon_threadsafe(deliver)

    previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    # Not what is ignored: `nohup` makes a process ignore SIGHUP, and a shell its jobs in the background Ctrl-C.
    replaced = {number: handler for number, handler in previous.items() if handler not in (signal.SIG_IGN, None)}
    for number in replaced:
        signal.signal(number, cancel)
    try:
        return await work
    finally:
        for number, handler in replaced.items():
            signal.signal(number, handler)


async def finish(work: Coroutine[Any, Any, T]) -> T:
    """Carry out work that no signal may cut short. Afterwards the task is cancelled if a signal has arrived meanwhile."""
    task, is_cancelled = asyncio.ensure_future(work), False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            is_cancelled = True
    result = task.result()
    if is_cancelled:
        raise asyncio.CancelledError
    return result
