"""Requests to the model: retried with backoff, stopped by an interrupt, and recorded with their usage and cost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec

from fidelio.clock import Clock
from fidelio.ids import new_id
from fidelio.ledger import Ledger
from fidelio.ledger.model import NewEvent
from fidelio.providers.model import ModelInfo, ModelProblem, ModelReply, ModelRequest, OnText, Provider, TokenUsage
from fidelio.retry import TRANSIENT, cancel_tasks
from fidelio.runtime import events as e

FIRST_SECONDS = 0.5
LONGEST_SECONDS = 30.0
MAX_ATTEMPTS = 8
MAX_RETRY_SECONDS = 240.0

# The pause before a session is followed again after the ledger could not be read.
_FOLLOW_SECONDS = 0.5

T = TypeVar("T")
Sleep = Callable[[float], Awaitable[None]]
# Records that a request failed and is repeated after some seconds.
OnRetry = Callable[[ModelProblem, float], Awaitable[None]]


class WakeInterrupted(Exception):
    """A person has interrupted the session while it worked."""


class Timing(msgspec.Struct, frozen=True):
    """How a process waits. `random` yields numbers from 0 to 1; a simulation replaces both."""

    sleep: Sleep
    random: Callable[[], float]


def compute_pause(attempt: int, problem: ModelProblem, random: Callable[[], float]) -> float:
    """Seconds before the attempt after number `attempt`: doubled each time, within 20 percent; the vendor's own wish wins."""
    if problem.retry_after is not None:
        return min(problem.retry_after, MAX_RETRY_SECONDS)
    whole: float = min(LONGEST_SECONDS, FIRST_SECONDS * 2 ** (attempt - 1))
    return whole * (0.8 + 0.4 * random())


async def request_reply(
    provider: Provider, request: ModelRequest, on_text: OnText, on_retry: OnRetry, timing: Timing, interrupt: asyncio.Event
) -> ModelReply:
    """Carry out a request. Raises the last `ModelProblem`, and `WakeInterrupted`."""
    waited = 0.0
    for attempt in range(1, MAX_ATTEMPTS + 1):
        try:
            return await until_interrupt(provider.complete(request, on_text), interrupt)
        except ModelProblem as problem:
            pause = compute_pause(attempt, problem, timing.random)
            if not problem.retryable or attempt == MAX_ATTEMPTS or waited + pause > MAX_RETRY_SECONDS:
                raise
            waited += pause
            await on_retry(problem, pause)
            await until_interrupt(timing.sleep(pause), interrupt)
    raise AssertionError("the last attempt returns or raises")


async def until_interrupt(work: Awaitable[T], interrupt: asyncio.Event) -> T:
    """Wait for work, but stop it as soon as the interrupt is set."""
    task: asyncio.Future[T] = asyncio.ensure_future(work)
    watcher = asyncio.ensure_future(interrupt.wait())
    both: set[asyncio.Future[Any]] = {task, watcher}
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise WakeInterrupted
    finally:
        await cancel_tasks(*(pending for pending in (task, watcher) if not pending.done()))


@asynccontextmanager
async def watch_interrupts(ledger: Ledger, session: str, *, after: int) -> AsyncIterator[asyncio.Event]:
    """Yield an event that is set when the session is interrupted or ended, by any process."""
    interrupt = asyncio.Event()

    async def follow() -> None:
        while not interrupt.is_set():
            try:
                await anext(ledger.follow(session, after=after, types=(e.USER_INTERRUPT, e.ENDED)))
            except TRANSIENT:
                # A person who interrupts must not be missed because the database was busy once.
                await asyncio.sleep(_FOLLOW_SECONDS)
            else:
                interrupt.set()

    task = asyncio.create_task(follow())
    try:
        yield interrupt
    finally:
        await cancel_tasks(task)


class RequestSpan:
    """The events of a request. Both are committed with what it brought; the first has the time at which it began."""

    def __init__(self, wake: str, model: str, purpose: str, clock: Clock) -> None:
        self._id, self._wake, self._model, self._purpose = new_id("evt_", 20), wake, model, purpose
        self._clock, self._began = clock, clock()

    def end(self, usage: TokenUsage, info: ModelInfo, *, is_error: bool = False) -> tuple[NewEvent, NewEvent]:
        cost = info.price.cost_micros(usage) if info.price is not None else 0
        common = {"wake_id": self._wake, "model": self._model, "purpose": self._purpose}
        body: dict[str, Any] = {
            **common,
            "model_request_start_id": self._id,
            "is_error": is_error,
            "model_usage": {
                "input_tokens": usage.input_tokens,
                "output_tokens": usage.output_tokens,
                "cache_read_input_tokens": usage.cache_read_tokens,
                "cache_creation_input_tokens": usage.cache_write_tokens,
            },
            "cost_micros": cost,
            # Only a turn of the agent says how much of the window the conversation takes.
            "context_tokens": usage.context_tokens + usage.output_tokens if self._purpose == "turn" else 0,
            "duration_ms": max(0, self._clock() - self._began),
        }
        started = NewEvent(type=e.MODEL_REQUEST_STARTED, body=common, actor="agent", id=self._id, time=self._began)
        return started, NewEvent(type=e.MODEL_REQUEST_ENDED, body=body, actor="agent")
