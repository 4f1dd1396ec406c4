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
from fidelio.mcp_client.client import McpClient, extract_text, open_client
from fidelio.orchestrator.executors.contract import Finished, Question, Reply, Reporter
from fidelio.orchestrator.executors.scripted import script
from fidelio.orchestrator.executors.scripted.worker import work_activity
from fidelio.orchestrator.record.model import Usage
from fidelio.validation import CheckUndecided, find_first_match

_PLACEHOLDER = re.compile(r"\{([a-z]+(?:\.[\w-]+)?)\}")
_NAMES = ("prompt", "turn", "run", "session", "directory", "answer", "returned", "saved")
_POLL_SECONDS = 0.02


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """What a turn is carried out with. It can be written down, so that a process of its own can be given it."""

    script: Any
    number: int
    prompt: str
    run: str
    session: str
    directory: str
    servers: Mapping[str, McpServer]


@dataclass(slots=True)
class Stage:
    """What has come of the turn so far."""

    scene: Scene
    reporter: Reporter
    crash: Callable[[int], None]
    environment: Mapping[str, str]
    stack: AsyncExitStack
    values: dict[str, Any] = field(default_factory=dict)
    clients: dict[str, McpClient] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)
    text: str = ""
    data: Any = None
    place: int = 0
    calls: int = 0

    async def use_tool(
        self, tool: str, arguments: Mapping[str, Any], *, server: str = "", quiet: bool = False
    ) -> dict[str, Any]:
        """Calls a tool of a server of the blueprint, and tells so, unless nobody wants to know."""
        client = await self._client(server)
        if quiet:
            return await client.call(tool, arguments)
        self.calls += 1
        call = f"{self.scene.number}.{self.calls}"
        await self.reporter.called(call, tool, arguments)
        result = await client.call(tool, arguments)
        await self.reporter.returned(call, ok=not result.get("isError"), text=extract_text(result))
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
        return _PLACEHOLDER.sub(lambda found: as_text(self._value(found[1])) if _is_name(found[1]) else found[0], value)

    def fill_text(self, value: str) -> str:
        return as_text(self.fill(value))

    def _value(self, name: str) -> Any:
        if name not in self.values:
            raise broken(f"{{{name}}} has no value at this point")
        return self.values[name]

    async def _client(self, name: str) -> McpClient:
        chosen = name or next(iter(self.scene.servers), "")
        if chosen not in self.scene.servers:
            raise broken(f"there is no MCP server {chosen!r}; the blueprint names {', '.join(self.scene.servers) or 'none'}")
        if chosen not in self.clients:
            opening = open_client(
                self.scene.servers[chosen], directory=Path(self.scene.directory), environment=self.environment
            )
            self.clients[chosen] = await self.stack.enter_async_context(opening)
        return self.clients[chosen]


async def play(scene: Scene, reporter: Reporter, *, crash: Callable[[int], None], environment: Mapping[str, str]) -> Finished:
    """The whole turn."""
    steps = script.read_script(scene.script).turn(scene.number)
    async with AsyncExitStack() as stack:
        stage = Stage(scene, reporter, crash, environment, stack)
        named = {"prompt": scene.prompt, "turn": scene.number, "run": scene.run, "session": scene.session}
        stage.values = {**named, "directory": scene.directory}
        for stage.place, step in enumerate(steps, 1):
            await _PLAYERS[type(step)](stage, step)
            if isinstance(step, script.Result):
                break
        return Finished(text=stage.text, data=stage.data)


def dig(result: Mapping[str, Any], path: str) -> Any:
    """The part of a tool's result that a path leads to."""
    first, *rest = path.split(".")
    value: Any = _root(result, first)
    for part in rest:
        try:
            value = value[int(part)] if isinstance(value, list) else value[part]
        except (KeyError, IndexError, ValueError, TypeError):
            raise broken(f"the result has nothing at {path}") from None
    return value


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def broken(why: str) -> ExecutorFailure:
    return ExecutorFailure(f"The script cannot go on: {why}.", reason="script", remedy=script.REMEDY)


def _root(result: Mapping[str, Any], name: str) -> Any:
    if name == "text":
        return extract_text(result)
    if name == "json":
        try:
            return msgspec.json.decode(extract_text(result))
        except msgspec.DecodeError:
            raise broken("the text of the result is not JSON") from None
    if name not in result:
        raise broken(f"the result has no {name}; it has {', '.join(result)}")
    return result[name]


def _is_name(name: str) -> bool:
    return name.partition(".")[0] in _NAMES


async def _say(stage: Stage, step: script.Say) -> None:
    stage.text = stage.fill_text(step.text)
    await stage.reporter.said(stage.text)


async def _find(stage: Stage, step: script.Find) -> None:
    for name, pattern in step.patterns.items():
        try:
            found = await find_first_match(pattern, stage.scene.prompt)
        except CheckUndecided as problem:
            raise broken(f"the prompt cannot be searched for {pattern}, because: {problem}") from problem
        if not found:
            raise broken(f"the prompt has nothing that matches {pattern}")
        stage.values[f"saved.{name}"] = found[0]


async def _call(stage: Stage, step: script.Call) -> None:
    result = await stage.use_tool(stage.fill_text(step.tool), stage.fill(step.arguments), server=step.server)
    stage.values["returned"] = extract_text(result)
    if result.get("isError") and not step.may_fail:
        raise ExecutorFailure(f"{step.tool} failed: {extract_text(result)}", reason="tool-failed", partial=stage.text)
    for name, path in step.save.items():
        stage.values[f"saved.{name}"] = dig(result, path)


async def _pause(stage: Stage, step: script.Pause) -> None:
    if not step.until:
        await asyncio.sleep(step.seconds)
        return
    file = Path(stage.scene.directory) / stage.fill_text(step.until)
    try:
        async with asyncio.timeout(step.seconds):
            while not file.exists():  # noqa: ASYNC110  # whoever makes the file knows nothing of us
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        raise broken(f"{file} did not appear within {step.seconds:g} s") from None


async def _ask(stage: Stage, step: script.Ask) -> None:
    question = Question(
        key=step.key or f"{stage.scene.number}.{stage.place}",
        kind=step.kind,
        text=stage.fill_text(step.text),
        options=tuple((id_, stage.fill_text(label)) for id_, label in step.options.items()),
    )
    reply: Reply = await stage.reporter.ask(question)
    answer = reply.option or reply.text
    stage.values |= {"answer": answer, "answer.option": reply.option, "answer.text": reply.text}


async def _use(stage: Stage, step: script.Use) -> None:
    now = msgspec.structs.asdict(stage.usage)
    stage.usage = Usage(**{name: value + getattr(step, name) for name, value in now.items()})
    await stage.reporter.used(stage.usage)


async def _write(stage: Stage, step: script.Write) -> None:
    file = _inside(Path(stage.scene.directory), stage.fill_text(step.path))
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(stage.fill_text(step.text), "utf-8")
    except OSError as error:
        raise broken(f"{file} cannot be written: {error.strerror}") from error


def _inside(directory: Path, path: str) -> Path:
    file = (directory / path).resolve()
    if not file.is_relative_to(directory.resolve()):
        raise broken(f"{path} is outside of the project")
    return file


async def _data(stage: Stage, step: script.Data) -> None:
    stage.data = stage.fill(step.value)


async def _result(stage: Stage, step: script.Result) -> None:
    stage.text = stage.fill_text(step.text)


async def _fail(stage: Stage, step: script.Fail) -> None:
    raise ExecutorFailure(stage.fill_text(step.text), reason=step.reason, partial=stage.text)


async def _crash(stage: Stage, step: script.Crash) -> None:
    stage.crash(step.code)


async def _work(stage: Stage, _: script.WorkActivity) -> None:
    stage.data = await work_activity(stage.scene.prompt, stage.use_tool)
    stage.text = as_text(stage.data)


_PLAYERS: Mapping[type[script.Step], Callable[[Stage, Any], Awaitable[None]]] = {
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
