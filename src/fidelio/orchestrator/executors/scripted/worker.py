"""The built-in script `workflow-worker`: carries out one activity of a workflow through the tools of the `sessions` dialect.

It shows what a worker owes whoever conducts a workflow, and does nothing besides: it has no mind and no hands. Its prompt holds
the token of a session that has entered the activity, as `session_token: TOKEN` or as JSON with that key. It loads the activity
and the skills of its steps, stops at every checkpoint that a step names or that the activity has besides, waits until somebody
has answered, takes note of the answer and goes on. A step or a checkpoint whose condition is known not to hold is passed
over, and no loop is entered. A line `steps: A, B` in the prompt says that only these are to be done, in a loop or not.

Its result, as text and as data, is what every worker finishes with:

    {"steps": [{"step_id": "look", "output": "Done: Look around."}, ...], "variables": {}}

`steps` is the manifest that `next_activity` takes for the activity that is left; `variables` are what was found out on the way
and is not known to the server yet. Answers are known to it, so this worker has none.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from fidelio.errors import ExecutorFailure
from fidelio.mcp_client.client import extract_text

if TYPE_CHECKING:
    from fidelio.definitions.models import Activity, Checkpoint, Step

_STEPS = re.compile(r"^steps: (.*)$", re.MULTILINE)
_TOKEN = re.compile(r"""session_token["']?\s*[:=]\s*["']?([^\s"',}]+)""")
# Whoever limits the run limits this wait, too; it is bounded here only so that no worker waits for ever.
_ANSWER_SECONDS = 24 * 3600.0
_SHORTEST, _LONGEST = 0.05, 1.0


class UseTool(Protocol):
    """Calls a tool; `quiet` for what is asked again and again."""

    async def __call__(self, tool: str, arguments: Mapping[str, Any], *, quiet: bool = False) -> dict[str, Any]: ...


async def work_activity(prompt: str, use: UseTool) -> dict[str, Any]:
    """The result of the whole activity."""
    found = _TOKEN.search(prompt)
    if found is None:
        raise ExecutorFailure(
            "The prompt holds no session token, so there is no activity to work on.",
            reason="no-token",
            remedy="Write a line `session_token: TOKEN` into it.",
        )
    listed = _STEPS.search(prompt)
    return await _Worker(found[1], use, None if listed is None else listed[1].split(", ")).work()


def activity_in(reply: str) -> Activity:
    """The activity that `get_activity` has answered with."""
    from fidelio.definitions.models import Activity  # noqa: PLC0415  # only workers need it, and it is slow to load
    from fidelio.definitions.reading.toon import parse  # noqa: PLC0415  # only workers need it

    return Activity.model_validate(parse(reply.partition("\n\n")[2], "get_activity"))


def applies(part: Step | Checkpoint, variables: Mapping[str, Any]) -> bool:
    """Whether a script does this: unless its condition is known not to hold."""
    from fidelio.definitions.conditions import holds  # noqa: PLC0415  # only workers need it

    return holds(part.condition, variables) is not False


class _Worker:
    """One activity, or the steps of it that are `listed`. `token` is always the newest."""

    def __init__(self, token: str, use: UseTool, listed: Collection[str] | None) -> None:
        self._token, self._use, self._listed = token, use, listed
        self._variables: dict[str, Any] = {}

    async def work(self) -> dict[str, Any]:
        # Whoever worked here before may have stopped at a question, and behind that nothing can be read.
        if (await self._status())["open_checkpoint"]:
            await self._pass_checkpoint()
        activity, unattached = await self._load()
        if activity.skills.primary:
            await self._call("get_skill")
        for checkpoint in unattached:
            await self._stop_at(activity, checkpoint)
        done = [await self._do(activity, step) for step in self._steps(activity) if self._applies(step)]
        return {"steps": done, "variables": {}}

    def _steps(self, activity: Activity) -> Iterable[Step]:
        if self._listed is None:
            return activity.steps
        every = (*activity.steps, *(step for loop in activity.loops for step in loop.steps))
        return [step for step in every if step.id in self._listed]

    async def _load(self) -> tuple[Activity, list[str]]:
        result = await self._call("get_activity")
        return activity_in(extract_text(result)), list((result.get("_meta") or {}).get("unattached_checkpoints", ()))

    async def _do(self, activity: Activity, step: Step) -> dict[str, str]:
        if step.checkpoint:
            await self._stop_at(activity, step.checkpoint)
        if step.skill:
            await self._call("get_skill", step_id=step.id)
        return {"step_id": step.id, "output": f"Done: {step.name}."}

    async def _stop_at(self, activity: Activity, checkpoint_id: str) -> None:
        definition = next((one for one in activity.checkpoints if one.id == checkpoint_id), None)
        if definition is None or not self._applies(definition):
            return
        reply = _json(await self._call("yield_checkpoint", checkpoint_id=checkpoint_id))
        if not reply.get("already_resolved"):
            await self._pass_checkpoint()

    async def _pass_checkpoint(self) -> None:
        pause = _SHORTEST
        deadline = asyncio.get_running_loop().time() + _ANSWER_SECONDS
        while waiting := (await self._status())["open_checkpoint"]:
            if asyncio.get_running_loop().time() > deadline:
                raise ExecutorFailure(f"Nobody has answered {waiting}.", reason="unanswered")
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, _LONGEST)
        await self._call("resume_checkpoint")

    async def _status(self) -> dict[str, Any]:
        status = _json(await self._call("get_workflow_status", quiet=True))
        self._variables = status["variables"]
        return status

    def _applies(self, part: Step | Checkpoint) -> bool:
        return applies(part, self._variables)

    async def _call(self, tool: str, *, quiet: bool = False, **arguments: Any) -> dict[str, Any]:
        result = await self._use(tool, {"session_token": self._token, **arguments}, quiet=quiet)
        if result.get("isError"):
            raise ExecutorFailure(f"{tool} failed: {extract_text(result)}", reason="tool-failed")
        self._token = (result.get("_meta") or {}).get("session_token", self._token)
        return result


def _json(result: Mapping[str, Any]) -> dict[str, Any]:
    return msgspec.json.decode(extract_text(result), type=dict[str, Any])
