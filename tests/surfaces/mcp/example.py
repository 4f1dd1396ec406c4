"""ExampleTools tools that exercise a transport, and a server for them: `python -m tests.surfaces.mcp.example`."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import msgspec

from fidelio.errors import UsageProblem
from fidelio.surfaces.mcp.endpoint import Identity, RequestStates, ServedTools, list_schema_resources
from fidelio.surfaces.mcp.protocol import Protocol
from fidelio.surfaces.mcp.stdio import loop as stdio
from fidelio.tokens.keyring import FixedKeys
from fidelio.toolkit import AnswerOption, AskPerson, CallContext, Done, Outcome, Tool, ToolHandlers, ToolTable

IDENTITY = Identity("example", "1.2.3")
REQUEST = "r_000000000001"
OPTIONS = (AnswerOption("warm", "Warm", "With a joke"), AnswerOption("cool", "Cool"))
LENGTH = {"type": "object", "properties": {"length": {"type": "integer"}}, "required": ["length"]}


def example_states() -> RequestStates:
    return RequestStates(lambda: FixedKeys(b"k" * 32))


class Nothing(msgspec.Struct):
    """No parameters."""


class Echo(msgspec.Struct):
    """What echo takes."""

    text: Annotated[str, msgspec.Meta(description="What to say.", max_length=2_000_000)]
    times: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 1


class Steps(msgspec.Struct):
    """What count takes."""

    steps: int


class Seconds(msgspec.Struct):
    """What later takes."""

    seconds: float


class SingleHandler(ToolHandlers):
    """Handlers for a table with one tool."""

    def __init__(self, tool: str, handler: Callable[[Any, CallContext], Awaitable[Outcome]]) -> None:
        setattr(self, tool, handler)


class ExampleTools(ToolHandlers):
    """The tools, and what they have seen."""

    def __init__(self) -> None:
        self.answers: list[tuple[str, str]] = []
        self.answered = asyncio.Event()
        self.asked = 0
        self.started = 0
        self.cancelled = 0

    def tools(self) -> ServedTools:
        table = ToolTable(
            [
                Tool("echo", "Echo", "Says it again.", Echo, read_only=True, idempotent=True, output_schema=LENGTH),
                Tool("choose", "Choose", "Asks a person.", Nothing),
                Tool("crash", "Crash", "Has a bug.", Nothing, destructive=True),
                Tool("refuse", "Refuse", "Says no.", Nothing),
                Tool("count", "Count", "Reports progress.", Steps),
                Tool("hang", "Hang", "Never ends.", Nothing),
                Tool("later", "Later", "Takes a while.", Seconds),
                Tool("tally", "Tally", "Counts the hanging calls.", Nothing, read_only=True),
                Tool("chatter", "Chatter", "Prints where it should not.", Nothing),
                Tool("strange", "Strange", "Replies with what is no JSON.", Nothing),
            ],
            lambda: self,
        )
        return ServedTools(table, instructions="Tools for tests.", resources=list_schema_resources())

    async def echo(self, asked: Echo, _: CallContext) -> Done:
        said = asked.text * asked.times
        return Done(said, {"said": asked.times}, structured={"length": len(said)})

    async def choose(self, _: Nothing, __: CallContext) -> Outcome:
        self.asked += 1
        if self.answers:
            return Done(json.dumps(self.answers[-1]))
        return AskPerson(REQUEST, "How shall it sound?", OPTIONS, self._record, wait_until_answered=self._elsewhere)

    async def _record(self, option: str, who: str) -> None:
        self.answers.append((option, who))

    async def _elsewhere(self) -> None:
        await self.answered.wait()

    def answer_elsewhere(self, option: str) -> None:
        self.answers.append((option, "person:somebody"))
        self.answered.set()

    async def crash(self, _: Nothing, __: CallContext) -> Done:
        raise RuntimeError("a secret of the server")

    async def refuse(self, _: Nothing, __: CallContext) -> Done:
        raise UsageProblem("This is refused.", remedy="Ask for something else.")

    async def count(self, asked: Steps, context: CallContext) -> Done:
        for step in range(1, asked.steps + 1):
            await context.report(step, asked.steps, f"step {step}")
        return Done("counted")

    async def hang(self, _: Nothing, __: CallContext) -> Done:
        self.started += 1
        try:
            return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]  # the future is never resolved, so the type of its result does not matter
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    async def later(self, asked: Seconds, _: CallContext) -> Done:
        await asyncio.sleep(asked.seconds)
        return Done("late")

    async def tally(self, _: Nothing, __: CallContext) -> Done:
        return Done(json.dumps({"started": self.started, "cancelled": self.cancelled}))

    async def chatter(self, _: Nothing, __: CallContext) -> Done:
        print("noise")  # noqa: T201  # noise is the point
        os.write(1, b"raw noise\n")
        child = subprocess.run(["sh", "-c", "echo child noise; cat"], check=True, timeout=30)  # noqa: ASYNC221  # short
        return Done(f"{sys.stdin.read()!r} {child.returncode}")

    async def strange(self, _: Nothing, __: CallContext) -> Done:
        return Done("strange", {"what": object()})


def protocol(example: ExampleTools) -> Protocol:
    return Protocol(IDENTITY, example.tools(), example_states())


async def main() -> int:
    stdio.DRAIN_SECONDS = 1.0  # so that a test need not wait for the whole bound
    return await stdio.serve_stdio(protocol(ExampleTools()))


def as_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
