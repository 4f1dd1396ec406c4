"""The world of a simulation: a model that does anything, sandboxes that count effects, and what both have seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import msgspec

from fidelio.errors import SandboxLost
from fidelio.providers.model import (
    FREE,
    ModelInfo,
    ModelProblem,
    ModelReply,
    ModelRequest,
    OnText,
    TextBlock,
    ThinkingBlock,
    TokenUsage,
    ToolUseBlock,
    estimate_usage,
)
from fidelio.providers.scripted.forced import answer_forced
from fidelio.sandbox.model import (
    ActionResult,
    ConnectionPage,
    LevelReport,
    SandboxSpec,
    SandboxState,
)
from fidelio.sandbox.port import Sandboxes
from tests.runtime.simulation.histories import find_conversation_problems, flatten
from tests.runtime.simulation.scheduler import Actor
from tests.runtime.support import fail
from tests.runtime.wakes.support import say

WINDOW = 8_000
_PROBLEMS: tuple[Callable[[], ModelProblem], ...] = (
    lambda: ModelProblem("Overloaded.", kind="model_overloaded_error", retryable=True, status=529),
    lambda: ModelProblem("Slow down.", kind="model_rate_limited_error", retryable=True, retry_after=7, status=429),
    lambda: ModelProblem("Internal error.", retryable=True, status=500),
    lambda: ModelProblem("The stream was cut off.", retryable=True),
    lambda: ModelProblem("Wrong key.", status=401),
    lambda: ModelProblem("Bad request.", status=400),
    lambda: ModelProblem("Too long.", kind="context_too_long_error", status=400),
)


class World:
    """What all actors share. `is_calm`: nothing fails any more, and the model comes to an end."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.is_calm = False
        # How often the effect of a token has happened, and in which session.
        self.effects: Counter[str] = Counter()
        self.sandboxes: dict[str, SandboxState] = {}
        self.problems: list[str] = []
        self.requests = 0
        # The newest request of each session.
        self.latest: dict[str, ModelRequest] = {}
        self._tokens = 0

    def new_token(self, kind: str) -> str:
        self._tokens += 1
        return f"{kind}-{self._tokens:04d}"

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def complain(self, problem: str) -> None:
        self.problems.append(problem)


class SimulatedSandboxes(Sandboxes):
    """Sandboxes of the host that all workers share. An effect is counted when it happens, not when it is reported."""

    def __init__(self, world: World, actor: Actor) -> None:
        self._world, self._actor = world, actor

    async def level(self) -> LevelReport:
        return LevelReport("bubblewrap", "simulated")

    async def start(self, spec: SandboxSpec) -> SandboxState:
        if spec.session not in self._world.sandboxes:
            name = self._world.new_token("box")
            self._world.sandboxes[spec.session] = SandboxState(spec.session, name, "bubblewrap", 1, is_new=True)
        return self._world.sandboxes[spec.session]

    async def call(
        self, spec: SandboxSpec, action: str, arguments: Mapping[str, Any], *, timeout: float = 60.0
    ) -> ActionResult:
        assert timeout > 0
        await self.start(spec)
        sent = msgspec.json.decode(msgspec.json.encode(arguments))

        async def act() -> ActionResult:
            return self._act(action, sent)

        return await self._actor.perform(f"sandbox {action}", act)

    def _act(self, action: str, sent: dict[str, Any]) -> ActionResult:
        world = self._world
        is_lost = not world.is_calm and world.chance(0.05)
        if is_lost and world.chance(0.5):
            raise SandboxLost("The sandbox ended before it replied.")
        if action == "write_text":
            world.effects[sent["content"]] += 1
        if action == "run_shell":
            world.effects[sent["command"].removeprefix("make ")] += 1
        if is_lost:
            raise SandboxLost("The sandbox ended before it replied.")
        if action not in _OUTPUTS:
            return fail("not_found", f"There is no {sent}.")
        return ActionResult(True, _OUTPUTS[action](sent))

    async def state(self, session: str) -> SandboxState | None:
        return self._world.sandboxes.get(session)

    async def connections(self, session: str, after: int = 0, log: str = "") -> ConnectionPage:
        return ConnectionPage(log or f"{session} {after}", ())

    async def stop(self, session: str) -> bool:
        return self._world.sandboxes.pop(session, None) is not None

    async def close(self) -> None:
        """Nothing is open."""


_OUTPUTS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "write_text": lambda sent: {"path": sent["path"], "bytes": len(sent["content"])},
    "read_text": lambda sent: {"path": sent["path"], "content": "A", "truncated": False},
    "run_shell": lambda sent: {"commandId": sent["commandId"], "status": "completed", "exitCode": 0, "stdout": "ok"},
    "interrupt_persistent_shell": lambda _: {"interrupted": False},
}


def is_summary(request: ModelRequest) -> bool:
    """Whether the model is asked to summarise the conversation."""
    return "about to be shortened" in str(request.messages[-1].content[-1])


class SimulatedModel:
    """A provider whose model does whatever the seed says, and complains about every request that a vendor would refuse."""

    name = "scripted"

    def __init__(self, world: World, actor: Actor) -> None:
        self._world, self._actor = world, actor

    async def complete(self, request: ModelRequest, on_text: OnText) -> ModelReply:
        self._check(request)

        async def reply() -> ModelReply:
            self._world.requests += 1
            return self._choose(request)

        made = await self._actor.perform("model", reply)
        on_text(made.text)
        usage = estimate_usage(request, made.content) if made.usage == TokenUsage() else made.usage
        return msgspec.structs.replace(made, usage=usage)

    def describe(self, model: str) -> ModelInfo:
        assert model
        return ModelInfo(window=WINDOW, price=FREE)

    async def close(self) -> None:
        pass

    def _check(self, request: ModelRequest) -> None:
        for problem in find_conversation_problems(request.messages):
            self._world.complain(f"a request of {request.conversation}: {problem}")
        if request.messages[-1].role != "user":
            self._world.complain(f"a request of {request.conversation} does not end with the user")
        if not request.force_tool and not is_summary(request):
            self._compare(request)

    def _compare(self, request: ModelRequest) -> None:
        """A request begins with the one before, unless the conversation was shortened; a slow worker may send an older one."""
        before = self._world.latest.get(request.conversation, request)
        if (before.system, before.tools) != (request.system, request.tools):
            self._world.complain(f"the system text or the tools of {request.conversation} have changed")
        old, new = flatten(before.messages), flatten(request.messages)
        length = min(len(old), len(new))
        if old[:1] == new[:1] and old[:length] != new[:length]:
            self._world.complain(f"a request of {request.conversation} does not begin with the one before")
        self._world.latest[request.conversation] = request

    def _choose(self, request: ModelRequest) -> ModelReply:
        world = self._world
        if request.force_tool:
            return answer_forced(request)
        if is_summary(request):
            return say(world.new_token("summary"))
        if world.is_calm:
            return say("Done.", {"outcome": "sleep"})
        if world.chance(0.15):
            problem = world.random.choice(_PROBLEMS)()
            raise problem
        return self._use_tools() if world.chance(0.55) else self._answer()

    def _use_tools(self) -> ModelReply:
        world = self._world
        calls = [self._make_call() for _ in range(world.random.choice((1, 1, 2, 3)))]
        text = (TextBlock(world.new_token("word")),) if world.chance(0.5) else ()
        thinking = (ThinkingBlock(world.new_token("thought"), "signed"),) if world.chance(0.2) else ()
        return ModelReply(content=(*thinking, *text, *calls), stop_reason="tool_use")

    def _make_call(self) -> ToolUseBlock:
        name, arguments, problem = self._world.random.choice(_CALLS)(self._world)
        return ToolUseBlock("ignored", name, arguments, problem)

    def _answer(self) -> ModelReply:
        world = self._world
        if world.chance(0.05):
            return ModelReply(content=(), stop_reason=world.random.choice(("refusal", "end_turn", "max_tokens")))
        text = world.new_token("answer") + " x" * world.random.choice((1, 1, 4_000))
        if world.chance(0.2):
            return say(text)
        if world.chance(0.1):
            return say(f"{text} <fidelio-loop>{{broken</fidelio-loop>")
        return say(text, self._make_directive())

    def _make_directive(self) -> dict[str, Any]:
        world, random = self._world, self._world.random
        directive: dict[str, Any] = {"outcome": random.choice(("sleep", "sleep", "continue")), "summary": "A summary."}
        if world.chance(0.3):
            directive["followUpSeconds"] = random.choice((1, 30, 4_000, "soon"))
        if world.chance(0.3):
            directive["queuedWakes"] = [self._make_wake() for _ in range(random.randint(1, 4))]
        if world.chance(0.15):
            directive["learnings"] = [{"title": world.new_token("lesson"), "detail": "Look twice."}]
        if world.chance(0.1):
            directive["customToolRequest"] = {"name": "weather", "input": {}}
        return directive

    def _make_wake(self) -> dict[str, Any]:
        random = self._world.random
        return {
            "reason": random.choice(("look", "", "again")),
            "delaySeconds": random.choice((1, 60, 3_600, 86_400, 0)),
            "priority": random.choice(("low", "normal", "high", "wrong")),
            "dedupeKey": random.choice(("", "one", "two")),
        }


WorldCall = tuple[str, dict[str, Any], str]
_CALLS: tuple[Callable[[World], WorldCall], ...] = (
    lambda world: ("write", {"path": "a.txt", "content": world.new_token("effect")}, ""),
    lambda world: ("write", {"path": "a.txt", "content": world.new_token("effect")}, ""),
    lambda world: ("shell_run", {"command": f"make {world.new_token('effect')}"}, ""),
    lambda world: ("shell_run", {"command": f"make {world.new_token('effect')}"}, ""),
    lambda _: ("shell_run", {"command": "make the-same"}, ""),
    lambda _: ("read", {"path": "a.txt"}, ""),
    lambda _: ("read", {"path": "b.txt"}, ""),
    lambda _: ("shell_set_cwd", {"path": "/workspace"}, ""),
    lambda _: ("permissions_describe", {}, ""),
    lambda _: ("weather", {"city": "Bonn"}, ""),
    lambda world: ("session_delegate", {"message": world.new_token("task")}, ""),
    lambda world: ("tool_call", {"name": "write", "arguments": {"path": "b", "content": world.new_token("effect")}}, ""),
    lambda world: ("write", {"path": "a.txt", "content": world.new_token("broken")}, "The JSON is cut off."),
    lambda _: ("write", {"path": 7}, ""),
    lambda _: ("nothing", {"a": 1}, ""),
)
