"""Interpreter for a turn of a script. It runs the same in the host and in a process of its own."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec

from fidelio.errors import ExecutorFailure
from fidelio.mcp_client import McpServer
from fidelio.mcp_client.client import McpClient, extract_text, open_client
from fidelio.orchestrator.executors import line_protocol as lines
from fidelio.orchestrator.executors.contract import AgentQuestion, Reply, TurnResult
from fidelio.orchestrator.executors.scripted import script
from fidelio.orchestrator.record.model import Usage
from fidelio.validation import CheckUndecided, find_first_match

_PLACEHOLDER = re.compile(r"\{([a-z]+(?:\.[\w-]+)?)\}")
_NAMES = ("prompt", "turn", "run", "session", "directory", "answer", "returned", "saved")
_POLL_SECONDS = 0.02


class ScriptedTurn(msgspec.Struct, frozen=True, kw_only=True):
    """Input of the interpreter; encoded as JSON it is the first line of the process of a script."""

    script: Any
    number: int
    prompt: str
    run: str
    session: str
    directory: str
    servers: Mapping[str, McpServer]


class PlayerHooks(msgspec.Struct, frozen=True):
    """What differs between the host and a process: reporting a line, asking a person, and a crash."""

    report: Callable[[lines.Line], Awaitable[None]]
    ask: Callable[[AgentQuestion], Awaitable[Reply]]
    crash: Callable[[int], None]


class TurnState(msgspec.Struct):
    """State of a turn while its steps are played."""

    turn: ScriptedTurn
    hooks: PlayerHooks
    environment: Mapping[str, str]
    stack: AsyncExitStack
    values: dict[str, Any] = msgspec.field(default_factory=dict)
    clients: dict[str, McpClient] = msgspec.field(default_factory=dict)
    usage: Usage = msgspec.field(default_factory=Usage)
    text: str = ""
    data: Any = None
    step_number: int = 0
    calls: int = 0

    async def call_tool(
        self, tool: str, arguments: Mapping[str, Any], *, server: str = "", quiet: bool = False
    ) -> dict[str, Any]:
        """Call a tool of an MCP server of the blueprint and report the call, unless `quiet`."""
        client = await self._client(server)
        if quiet:
            return await client.call(tool, arguments)
        self.calls += 1
        call = f"{self.turn.number}.{self.calls}"
        await self.hooks.report(lines.ToolCallLine(call, tool, arguments))
        result = await client.call(tool, arguments)
        await self.hooks.report(lines.ToolResultLine(call, not result.get("isError"), extract_text(result)))
        return result

    def fill(self, value: Any) -> Any:
        """Replace placeholders by their values. A placeholder inside of a value is not replaced."""
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
            opening = open_client(self.turn.servers[chosen], directory=Path(self.turn.directory), environment=self.environment)
            self.clients[chosen] = await self.stack.enter_async_context(opening)
        return self.clients[chosen]


async def play_turn(turn: ScriptedTurn, hooks: PlayerHooks, environment: Mapping[str, str]) -> TurnResult:
    """Play all steps of the turn."""
    steps = script.parse_script(turn.script).turn(turn.number)
    async with AsyncExitStack() as stack:
        state = TurnState(turn, hooks, environment, stack)
        named = {"prompt": turn.prompt, "turn": turn.number, "run": turn.run, "session": turn.session}
        state.values = {**named, "directory": turn.directory}
        for state.step_number, step in enumerate(steps, 1):
            await _HANDLERS[type(step)](state, step)
            if isinstance(step, script.Result):
                break
        return TurnResult(text=state.text, data=state.data)


def extract_value(result: Mapping[str, Any], path: str) -> Any:
    """The value at a path in a tool result."""
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
    return ExecutorFailure(f"The script cannot continue: {why}.", reason="script", remedy=script.REMEDY)


def _select_root(result: Mapping[str, Any], name: str) -> Any:
    if name == "text":
        return extract_text(result)
    if name == "json":
        try:
            return msgspec.json.decode(extract_text(result))
        except msgspec.DecodeError:
            raise script_failure("the text of the result is not JSON") from None
    if name not in result:
        raise script_failure(f"the result has no {name}; it has {', '.join(result)}")
    return result[name]


def _is_name(name: str) -> bool:
    return name.partition(".")[0] in _NAMES


async def _play_say(state: TurnState, step: script.Say) -> None:
    state.text = state.fill_text(step.text)
    await state.hooks.report(lines.MessageLine(state.text))


async def _play_find(state: TurnState, step: script.Find) -> None:
    for name, pattern in step.patterns.items():
        try:
            found = await find_first_match(pattern, state.turn.prompt)
        except CheckUndecided as problem:
            raise script_failure(f"the prompt cannot be searched for {pattern}, because: {problem}") from problem
        if not found:
            raise script_failure(f"the prompt has nothing that matches {pattern}")
        state.values[f"saved.{name}"] = found[0]


async def _play_call(state: TurnState, step: script.Call) -> None:
    result = await state.call_tool(state.fill_text(step.tool), state.fill(step.arguments), server=step.server)
    state.values["returned"] = extract_text(result)
    if result.get("isError") and not step.may_fail:
        raise ExecutorFailure(f"{step.tool} failed: {extract_text(result)}", reason="tool-failed", partial=state.text)
    for name, path in step.save.items():
        state.values[f"saved.{name}"] = extract_value(result, path)


async def _play_pause(state: TurnState, step: script.Pause) -> None:
    if not step.until:
        await asyncio.sleep(step.seconds)
        return
    file = Path(state.turn.directory) / state.fill_text(step.until)
    try:
        async with asyncio.timeout(step.seconds):
            while not file.exists():  # noqa: ASYNC110  # another program creates the file and cannot notify us
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        raise script_failure(f"{file} did not appear within {step.seconds:g} s") from None


async def _play_ask(state: TurnState, step: script.Ask) -> None:
    question = AgentQuestion(
        key=step.key or f"{state.turn.number}.{state.step_number}",
        kind=step.kind,
        text=state.fill_text(step.text),
        options=tuple((id_, state.fill_text(label)) for id_, label in step.options.items()),
    )
    reply = await state.hooks.ask(question)
    answer = reply.option or reply.text
    state.values |= {"answer": answer, "answer.option": reply.option, "answer.text": reply.text}


async def _play_use(state: TurnState, step: script.Use) -> None:
    state.usage += Usage(**msgspec.structs.asdict(step))
    await state.hooks.report(lines.UsageLine(state.usage))


async def _play_write(state: TurnState, step: script.Write) -> None:
    file = _resolve_inside(Path(state.turn.directory), state.fill_text(step.path))
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(state.fill_text(step.text), "utf-8")
    except OSError as error:
        raise script_failure(f"{file} cannot be written: {error.strerror}") from error


def _resolve_inside(directory: Path, path: str) -> Path:
    file = (directory / path).resolve()
    if not file.is_relative_to(directory.resolve()):
        raise script_failure(f"{path} is outside of the project")
    return file


async def _play_data(state: TurnState, step: script.Data) -> None:
    state.data = state.fill(step.value)


async def _play_result(state: TurnState, step: script.Result) -> None:
    state.text = state.fill_text(step.text)


async def _play_fail(state: TurnState, step: script.Fail) -> None:
    raise ExecutorFailure(state.fill_text(step.text), reason=step.reason, partial=state.text)


async def _play_crash(state: TurnState, step: script.Crash) -> None:
    state.hooks.crash(step.code)


async def _play_work(state: TurnState, _: script.WorkActivity) -> None:
    from fidelio.orchestrator.executors.scripted.worker import carry_out_activity  # noqa: PLC0415  # brings pydantic, 100 ms

    state.data = await carry_out_activity(state.turn.prompt, state.call_tool)
    state.text = encode_text(state.data)


_HANDLERS: Mapping[type[script.ScriptStep], Callable[[TurnState, Any], Awaitable[None]]] = {
    script.Say: _play_say,
    script.Find: _play_find,
    script.Call: _play_call,
    script.Pause: _play_pause,
    script.Ask: _play_ask,
    script.Use: _play_use,
    script.Write: _play_write,
    script.Data: _play_data,
    script.Result: _play_result,
    script.Fail: _play_fail,
    script.Crash: _play_crash,
    script.WorkActivity: _play_work,
}
