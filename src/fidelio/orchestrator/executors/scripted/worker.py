"""The built-in script `workflow-worker`: carries out an activity of a workflow through the tools of the `sessions` dialect.

It shows what the conductor expects of a worker and does no real work. Its prompt holds the token of a session that has entered
the activity, as `session_token: TOKEN` or as JSON with that key. It loads the activity and the skills of its steps, yields at
every checkpoint of a step and at the unattached checkpoints of the activity, waits for the answer and continues. A step or a
checkpoint whose condition is known to be false is skipped. A loop is repeated for each item of its list or while its condition
is known to hold, and its entries have the number of their `iteration`. A line `steps: A, B` in the prompt limits the work to
these steps, inside of a loop or not.

Its result, as text and as data, is what every worker finishes with:

    {"steps": [{"step_id": "look", "output": "Done: Look around."}, ...], "variables": {}}

`steps` is the manifest that `next_activity` expects for the activity; `variables` are values that the worker has found and that
the server does not know yet. The server knows the answers to checkpoints, so this worker has none.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Protocol

import msgspec

from fidelio.definitions.conditions import holds, look_up
from fidelio.definitions.models import Activity, Checkpoint, Loop, Step
from fidelio.definitions.reading.toon import parse
from fidelio.errors import ExecutorFailure
from fidelio.mcp_client.client import extract_text

_STEPS = re.compile(r"^steps: (.*)$", re.MULTILINE)
_TOKEN = re.compile(r"""session_token["']?\s*[:=]\s*["']?([^\s"',}]+)""")
# The limits of the run bound this wait, too; this bound is for a worker without limits.
_ANSWER_SECONDS = 24 * 3600.0
# The server replies as soon as there is an answer; this is below the limit of clients for a call.
_WAIT_SECONDS = 45


class CallTool(Protocol):
    """Calls a tool; `quiet` calls are not reported, for polling."""

    async def __call__(self, tool: str, arguments: Mapping[str, Any], *, quiet: bool = False) -> dict[str, Any]: ...


async def carry_out_activity(prompt: str, call_tool: CallTool) -> dict[str, Any]:
    """Carry out the activity of the session in the prompt; return its result."""
    found = _TOKEN.search(prompt)
    if found is None:
        raise ExecutorFailure(
            "The prompt holds no session token, so there is no activity to work on.",
            reason="no-token",
            remedy="Write a line `session_token: TOKEN` into it.",
        )
    listed = _STEPS.search(prompt)
    return await _Worker(found[1], call_tool, None if listed is None else listed[1].split(", ")).work()


def parse_activity(reply: str) -> Activity:
    """Parse the activity in the reply of `get_activity`."""
    return Activity.model_validate(parse(reply.partition("\n\n")[2], "get_activity"))


def applies(part: Step | Checkpoint, variables: Mapping[str, Any]) -> bool:
    """Whether the worker does this step or checkpoint: unless its condition is known to be false."""
    return holds(part.condition, variables) is not False


class _Worker:
    """Work on an activity, or on its `listed` steps. The newest token is used for every call."""

    def __init__(self, token: str, call_tool: CallTool, listed: Collection[str] | None) -> None:
        self._token, self._call_tool, self._listed = token, call_tool, listed
        self._variables: dict[str, Any] = {}

    async def work(self) -> dict[str, Any]:
        # An earlier worker may have stopped at a checkpoint, and the activity cannot be loaded while it is open.
        if (await self._status())["open_checkpoint"]:
            await self._wait_for_answer()
        activity, unattached = await self._load()
        if activity.skills.primary:
            await self._call("get_skill")
        for checkpoint in unattached:
            await self._stop_at(activity, checkpoint)
        done = [await self._do(activity, step) for step in self._steps(activity) if self._applies(step)]
        for loop in activity.loops if self._listed is None else ():
            done += await self._repeat(activity, loop)
        return {"steps": done, "variables": {}}

    async def _repeat(self, activity: Activity, loop: Loop) -> list[dict[str, Any]]:
        done, iteration = list[dict[str, Any]](), 0
        while iteration < loop.max_iterations and (item := self._next_item(loop, iteration)) is not None:
            iteration += 1
            for step in loop.steps:
                if applies(step, {**self._variables, **item}):
                    done.append({**await self._do(activity, step), "iteration": iteration})
            if loop.break_condition is not None and holds(loop.break_condition, {**self._variables, **item}):
                break
        return done

    def _next_item(self, loop: Loop, done: int) -> dict[str, Any] | None:
        """The item of the next iteration by the name of the loop's variable; None if the loop is finished."""
        if loop.type == "forEach":
            items = look_up(loop.over or "", self._variables)
            more = isinstance(items, list) and done < len(items)
            return None if not more else {loop.variable: items[done]} if loop.variable else {}
        first = loop.type == "doWhile" and not done
        return {} if first or (loop.condition is not None and holds(loop.condition, self._variables)) else None

    def _steps(self, activity: Activity) -> Iterable[Step]:
        if self._listed is None:
            return activity.steps
        every = (*activity.steps, *(step for loop in activity.loops for step in loop.steps))
        return [step for step in every if step.id in self._listed]

    async def _load(self) -> tuple[Activity, list[str]]:
        result = await self._call("get_activity")
        return parse_activity(extract_text(result)), list((result.get("_meta") or {}).get("unattached_checkpoints", ()))

    async def _do(self, activity: Activity, step: Step) -> dict[str, Any]:
        if step.checkpoint:
            await self._stop_at(activity, step.checkpoint)
        if step.skill:
            await self._call("get_skill", step_id=step.id)
        return {"step_id": step.id, "output": f"Done: {step.name}."}

    async def _stop_at(self, activity: Activity, checkpoint_id: str) -> None:
        definition = next((checkpoint for checkpoint in activity.checkpoints if checkpoint.id == checkpoint_id), None)
        if definition is None or not self._applies(definition):
            return
        reply = _parse_json(await self._call("yield_checkpoint", checkpoint_id=checkpoint_id))
        if not reply.get("already_resolved"):
            await self._wait_for_answer()

    async def _wait_for_answer(self) -> None:
        deadline = asyncio.get_running_loop().time() + _ANSWER_SECONDS
        while waiting := (await self._status(wait_seconds=_WAIT_SECONDS))["open_checkpoint"]:
            if asyncio.get_running_loop().time() > deadline:
                raise ExecutorFailure(f"Nobody has answered {waiting}.", reason="unanswered")
        await self._call("resume_checkpoint")

    async def _status(self, **waiting: int) -> dict[str, Any]:
        status = _parse_json(await self._call("get_workflow_status", quiet=True, **waiting))
        self._variables = status["variables"]
        return status

    def _applies(self, part: Step | Checkpoint) -> bool:
        return applies(part, self._variables)

    async def _call(self, tool: str, *, quiet: bool = False, **arguments: Any) -> dict[str, Any]:
        result = await self._call_tool(tool, {"session_token": self._token, **arguments}, quiet=quiet)
        if result.get("isError"):
            raise ExecutorFailure(f"{tool} failed: {extract_text(result)}", reason="tool-failed")
        self._token = (result.get("_meta") or {}).get("session_token", self._token)
        return result


def _parse_json(result: Mapping[str, Any]) -> dict[str, Any]:
    return msgspec.json.decode(extract_text(result), type=dict[str, Any])
