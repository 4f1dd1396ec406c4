"""Carries out the tool calls of a model's turn.

Which calls have no result yet is read from the record, so a round goes on after a pause or a crash as if nothing had happened.
Calls that only read run side by side, the others one after the other, in the order of the model.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

import msgspec

from fidelio.errors import RuntimeProblem, SandboxError, UsageProblem
from fidelio.providers.model import ToolUseBlock
from fidelio.retry import cancel_tasks
from fidelio.runtime.calls import CallOutcome, Calls
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.specs import build_spec
from fidelio.runtime.tools.meta import unwrap
from fidelio.runtime.tools.meta_definitions import CALL, OPEN
from fidelio.runtime.tools.model import CallOrigin, LoadedRuntime, RuntimeContext
from fidelio.runtime.wakes.model_calls import WakeInterrupted
from fidelio.runtime.wakes.preparation import Offer
from fidelio.runtime.wakes.record import OpenCall
from fidelio.runtime.wakes.rules import is_ready

MAX_PARALLEL = 8
# How long a command gets to end by itself after an interrupt, before its sandbox is stopped.
INTERRUPT_SECONDS = 0.5


class Rounds:
    """The tool calls of a wake."""

    def __init__(
        self, context: RuntimeContext, calls: Calls, offer: Offer, origin: CallOrigin, interrupt: asyncio.Event
    ) -> None:
        self._context, self._calls, self._offer = context, calls, offer
        self._origin, self._interrupt = origin, interrupt

    async def carry_out(self, session: LoadedRuntime, uses: Mapping[str, ToolUseBlock], *, deadline: float = inf) -> bool:
        """Carry out every open call that can go on. `uses` are the calls of the turn by id. Raises `WakeInterrupted`.

        True if the deadline, a time of the event loop, had passed before all were begun.
        """
        ready = find_ready(session.record, now=self._context.clock())
        for group in split_parallel([(call, uses[call.id]) for call in ready if call.id in uses], self._offer):
            if asyncio.get_running_loop().time() > deadline:
                return True
            tasks = [asyncio.create_task(self._carry_out(session.id, call, use)) for call, use in group]
            await self._wait(session, tasks, group)
        return False

    async def _carry_out(self, session: str, call: OpenCall, use: ToolUseBlock) -> CallOutcome:
        name, arguments = _unwrap(use, self._offer)
        is_repeat = call.state == "started" or call.is_unknown
        origin = msgspec.structs.replace(self._origin, tool_use=call.id, is_repeat=is_repeat, problem=use.problem)
        offer = self._offer
        return await self._calls.carry_out(
            session, name, arguments, tools=offer.tools, extra=offer.extra, waits=False, origin=origin
        )

    async def _wait(
        self,
        session: LoadedRuntime,
        tasks: Sequence[asyncio.Task[CallOutcome]],
        group: Sequence[tuple[OpenCall, ToolUseBlock]],
    ) -> None:
        """Wait for calls. After an interrupt, tools that can be cancelled are stopped, and the others finish."""
        watcher = asyncio.create_task(self._interrupt.wait())
        try:
            working: set[asyncio.Task[CallOutcome]] = set(tasks)
            while working and not watcher.done():
                done, _ = await asyncio.wait({*working, watcher}, return_when=asyncio.FIRST_COMPLETED)
                working -= done
            if working:
                await self._stop(session, working, can_cancel=all(_can_cancel(use, self._offer) for _, use in group))
        finally:
            await cancel_tasks(watcher, *tasks)
        for task in tasks:
            if not task.cancelled():
                task.result()
        if self._interrupt.is_set():
            raise WakeInterrupted

    async def _stop(self, session: LoadedRuntime, working: set[asyncio.Task[CallOutcome]], *, can_cancel: bool) -> None:
        """Stop what runs in the sandbox. The calls then return with what really happened, which is recorded."""
        if not can_cancel:
            await asyncio.wait(working)
            return
        # The sandbox itself is asked: it may have been started by the very call that is stopped.
        if await self._context.sandboxes.state(session.id) is not None:
            await self._interrupt_shell(session)
            _, working = await asyncio.wait(working, timeout=INTERRUPT_SECONDS)
            if working:
                await self._context.sandboxes.stop(session.id)
        if working:
            await asyncio.wait(working, timeout=INTERRUPT_SECONDS)

    async def _interrupt_shell(self, session: LoadedRuntime) -> None:
        try:
            spec = await build_spec(self._context, session)
            await self._context.sandboxes.call(spec, "interrupt_persistent_shell", {}, timeout=INTERRUPT_SECONDS)
        except (SandboxError, RuntimeProblem, UsageProblem):
            # There is no shell, it does not answer, or its environment is gone: the sandbox is stopped next.
            return


def find_ready(record: RuntimeRecord, *, now: int) -> tuple[OpenCall, ...]:
    return tuple(call for call in record.wakes.open_calls if is_ready(record, call, now=now))


def split_parallel(calls: Sequence[tuple[OpenCall, ToolUseBlock]], offer: Offer) -> list[list[tuple[OpenCall, ToolUseBlock]]]:
    """Groups of calls that may run side by side. A call that changes something is a group of its own."""
    groups: list[list[tuple[OpenCall, ToolUseBlock]]] = []
    for item in calls:
        if groups and len(groups[-1]) < MAX_PARALLEL and all(_only_reads(use, offer) for use in (item[1], groups[-1][0][1])):
            groups[-1].append(item)
        else:
            groups.append([item])
    return groups


def _unwrap(use: ToolUseBlock, offer: Offer) -> tuple[str, Mapping[str, Any]]:
    # Where there is nothing to open, a call of `tool_call` is a call of an unknown tool.
    return unwrap(use.name, use.input) if CALL in offer.tools or OPEN in offer.extra else (use.name, use.input)


def _only_reads(use: ToolUseBlock, offer: Offer) -> bool:
    definition = offer.find(_unwrap(use, offer)[0])
    return definition is not None and definition.read_only


def _can_cancel(use: ToolUseBlock, offer: Offer) -> bool:
    definition = offer.find(_unwrap(use, offer)[0])
    return definition is None or definition.interrupt == "cancel"
