"""Carries out one turn of a script, in the host or in a process of its own: neither can be seen from here."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from fidelio.errors import ExecutorFailure
from fidelio.mcp_client import McpServer
from fidelio.mcp_client.client import McpClient, connected, text_of
from fidelio.orchestrator.executors.contract import AgentQuestion, Reply, Reporter, TurnResult
from fidelio.orchestrator.executors.scripted import script
from fidelio.orchestrator.executors.scripted.worker import carry_out_activity
from fidelio.orchestrator.record.model import Usage
from fidelio.validation import Undecided, first_match

_PLACEHOLDER = re.compile(r"\{([a-z]+(?:\.[\w-]+)?)\}")
_NAMES = ("prompt", "turn", "run", "session", "directory", "answer", "returned", "saved")
_POLL_SECONDS = 0.02


class ScriptedTurn(msgspec.Struct, frozen=True, kw_only=True):
    """What a turn is carried out with. It can be written down, so that a process of its own can be given it."""

    script: Any
    number: int
    prompt: str
    run: str
    session: str
    directory: str
    servers: Mapping[str, McpServer]


@dataclass(slots=True)
class TurnState:
    """What has come of the turn so far."""

    turn: ScriptedTurn
    reporter: Reporter
    crash: Callable[[int], None]
    environment: Mapping[str, str]
    stack: AsyncExitStack
    values: dict[str, Any] = field(default_factory=dict)
    clients: dict[str, McpClient] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)
    text: str = ""
    data: Any = None
    step_number: int = 0
    calls: int = 0

    async def call_tool(
        self, tool: str, arguments: Mapping[str, Any], *, server: str = "", quiet: bool = False
    ) -> dict[str, Any]:
        """Calls a tool of a server of the blueprint, and tells so, unless nobody wants to know."""
        client = await self._client(server)
        if quiet:
            return await client.call(tool, arguments)
        self.calls += 1
        call = f"{self.turn.number}.{self.calls}"
        await self.reporter.report_tool_call(call, tool, arguments)
        result = await client.call(tool, arguments)
        await self.reporter.report_tool_result(call, ok=not result.get("isError"), text=text_of(result))
        return result

    def fill(self, value: Any) -> Any:
        """Puts the values in the places that name them. Nothing in a value is ever read as a placeholder itself."""
        if isinstance(value, Mapping):
            return {key: self.fill(part) for key, part in value.items()}
        if isinstance(value, list | tuple):
            return [self.fill(part) for part in value]
        if not isinstance(value, str):
            return value
        alone = _PLACEHOLDER.fullmatch(value)
        if alone and _is_name(alone[1]):
            return self._value(alone[1])
        return _PLACEHOLDER.sub(lambda found: encode_text(self._value(found[1])) if _is_name(found[1]) else found[0], value)

    def fill_text(self, value: str) -> str:
        return encode_text(self.fill(value))

    def _value(self, name: str) -> Any:
        if name not in self.values:
            raise script_failure(f"{{{name}}} has no value at this point")
        return self.values[name]

    async def _client(self, name: str) -> McpClient:
        chosen = name or next(iter(self.turn.servers), "")
        if chosen not in self.turn.servers:
            raise script_failure(
                f"there is no MCP server {chosen!r}; the blueprint names {', '.join(self.turn.servers) or 'none'}"
            )
        if chosen not in self.clients:
            opening = connected(self.turn.servers[chosen], directory=Path(self.turn.directory), environment=self.environment)
            self.clients[chosen] = await self.stack.enter_async_context(opening)
        return self.clients[chosen]


async def play_turn(
    scene: ScriptedTurn, reporter: Reporter, *, crash: Callable[[int], None], environment: Mapping[str, str]
) -> TurnResult:
    """The whole turn."""
    steps = script.parse_script(scene.script).turn(scene.number)
    async with AsyncExitStack() as stack:
        stage = TurnState(scene, reporter, crash, environment, stack)
        named = {"prompt": scene.prompt, "turn": scene.number, "run": scene.run, "session": scene.session}
        stage.values = {**named, "directory": scene.directory}
        for stage.step_number, step in enumerate(steps, 1):
            await _PLAYERS[type(step)](stage, step)
            if isinstance(step, script.Result):
                break
        return TurnResult(text=stage.text, data=stage.data)


def extract_value(result: Mapping[str, Any], path: str) -> Any:
    """The part of a tool's result that a path leads to."""
    first, *rest = path.split(".")
    value: Any = _select_root(result, first)
    for part in rest:
        try:
            value = value[int(part)] if isinstance(value, list) else value[part]
        except (KeyError, IndexError, ValueError, TypeError):
            raise script_failure(f"the result has nothing at {path}") from None
    return value


def encode_text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def script_failure(why: str) -> ExecutorFailure:
    return ExecutorFailure(f"The script cannot go on: {why}.", reason="script", remedy=script.REMEDY)


def _select_root(result: Mapping[str, Any], name: str) -> Any:
    if name == "text":
        return text_of(result)
    if name == "json":
        try:
            return msgspec.json.decode(text_of(result))
        except msgspec.DecodeError:
            raise script_failure("the text of the result is not JSON") from None
    if name not in result:
        raise script_failure(f"the result has no {name}; it has {', '.join(result)}")
    return result[name]


def _is_name(name: str) -> bool:
    return name.partition(".")[0] in _NAMES


async def _say(stage: TurnState, step: script.Say) -> None:
    stage.text = stage.fill_text(step.text)
    await stage.reporter.report_message(stage.text)


async def _find(stage: TurnState, step: script.Find) -> None:
    for name, pattern in step.patterns.items():
        try:
            found = await first_match(pattern, stage.turn.prompt)
        except Undecided as problem:
            raise script_failure(f"the prompt cannot be searched for {pattern}, because: {problem}") from problem
        if not found:
            raise script_failure(f"the prompt has nothing that matches {pattern}")
        stage.values[f"saved.{name}"] = found[0]


async def _call(stage: TurnState, step: script.Call) -> None:
    result = await stage.call_tool(stage.fill_text(step.tool), stage.fill(step.arguments), server=step.server)
    stage.values["returned"] = text_of(result)
    if result.get("isError") and not step.may_fail:
        raise ExecutorFailure(f"{step.tool} failed: {text_of(result)}", reason="tool-failed", partial=stage.text)
    for name, path in step.save.items():
        stage.values[f"saved.{name}"] = extract_value(result, path)


async def _pause(stage: TurnState, step: script.Pause) -> None:
    if not step.until:
        await asyncio.sleep(step.seconds)
        return
    file = Path(stage.turn.directory) / stage.fill_text(step.until)
    try:
        async with asyncio.timeout(step.seconds):
            while not file.exists():  # noqa: ASYNC110  # whoever makes the file knows nothing of us
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        raise script_failure(f"{file} did not appear within {step.seconds:g} s") from None


async def _ask(stage: TurnState, step: script.Ask) -> None:
    question = AgentQuestion(
        key=step.key or f"{stage.turn.number}.{stage.step_number}",
        kind=step.kind,
        text=stage.fill_text(step.text),
        options=tuple((id_, stage.fill_text(label)) for id_, label in step.options.items()),
    )
    reply: Reply = await stage.reporter.ask(question)
    answer = reply.option or reply.text
    stage.values |= {"answer": answer, "answer.option": reply.option, "answer.text": reply.text}


async def _use(stage: TurnState, step: script.Use) -> None:
    now = msgspec.structs.asdict(stage.usage)
    stage.usage = Usage(**{name: value + getattr(step, name) for name, value in now.items()})
    await stage.reporter.report_usage(stage.usage)


async def _write(stage: TurnState, step: script.Write) -> None:
    file = _resolve_inside(Path(stage.turn.directory), stage.fill_text(step.path))
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(stage.fill_text(step.text), "utf-8")
    except OSError as error:
        raise script_failure(f"{file} cannot be written: {error.strerror}") from error


def _resolve_inside(directory: Path, path: str) -> Path:
    file = (directory / path).resolve()
    if not file.is_relative_to(directory.resolve()):
        raise script_failure(f"{path} is outside of the project")
    return file


async def _data(stage: TurnState, step: script.Data) -> None:
    stage.data = stage.fill(step.value)


async def _result(stage: TurnState, step: script.Result) -> None:
    stage.text = stage.fill_text(step.text)


async def _fail(stage: TurnState, step: script.Fail) -> None:
    raise ExecutorFailure(stage.fill_text(step.text), reason=step.reason, partial=stage.text)


async def _crash(stage: TurnState, step: script.Crash) -> None:
    stage.crash(step.code)


async def _work(stage: TurnState, _: script.WorkActivity) -> None:
    stage.data = await carry_out_activity(stage.turn.prompt, stage.call_tool)
    stage.text = encode_text(stage.data)


_PLAYERS: Mapping[type[script.ScriptStep], Callable[[TurnState, Any], Awaitable[None]]] = {
    script.Say: _say,
    script.Find: _find,
    script.Call: _call,
    script.Pause: _pause,
    script.Ask: _ask,
    script.Use: _use,
    script.Write: _write,
    script.Data: _data,
    script.Result: _result,
    script.Fail: _fail,
    script.Crash: _crash,
    script.WorkActivity: _work,
}
