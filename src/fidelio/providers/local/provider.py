"""The provider `local`: a very small language model on this machine, to try Fidelio without a key and a network.

It is not a useful worker: it writes fluent but unreliable text and calls no tools, except one that is forced. Each request runs
in a process of its own, which ends with the request.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec

from fidelio.providers.local.engine import INSTALL, bundled_model, describe_missing, has_engine
from fidelio.providers.local.process import CONTEXT_TOKENS, LocalLine, LocalTask
from fidelio.providers.model import (
    FREE,
    Block,
    Message,
    ModelInfo,
    ModelProblem,
    ModelReply,
    ModelRequest,
    OnText,
    TextBlock,
    TokenUsage,
    ToolResultBlock,
)
from fidelio.providers.tool_input import parse_tool_use

_MAX_OUTPUT = 1_024
# Reading a long prompt takes the engine minutes on a slow machine, and it prints nothing meanwhile.
_IDLE_SECONDS = 300.0
_LINE_BYTES = 1024 * 1024
# Keys of the environment are none of the engine's business.
_PASSED_ON = ("HOME", "LANG", "LD_LIBRARY_PATH", "PATH", "PYTHONPATH", "TMPDIR", "VIRTUAL_ENV")
_TOO_LONG = "context"


class LocalProvider:
    """The small model, or another model file that the id names."""

    name = "local"

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = {name: environment[name] for name in _PASSED_ON if name in environment}

    async def complete(self, request: ModelRequest, on_text: OnText) -> ModelReply:
        task = _make_task(request)
        texts: list[str] = []
        async with self._start() as process:
            async for line in _exchange(process, msgspec.json.encode(task) + b"\n"):
                if line.error:
                    raise _make_problem(line.error)
                if line.finish:
                    return _build_reply(request, "".join(texts), line)
                texts.append(line.text)
                if not request.force_tool:
                    on_text(line.text)
        raise ModelProblem("The process of the local model ended before its reply.", remedy="Try again.", retryable=True)

    def describe(self, model: str) -> ModelInfo:  # noqa: ARG002  # every file is opened with the same limits
        return ModelInfo(window=CONTEXT_TOKENS, max_output=_MAX_OUTPUT, price=FREE, images=False)

    async def close(self) -> None:
        pass

    @asynccontextmanager
    async def _start(self) -> AsyncIterator[asyncio.subprocess.Process]:
        process = await asyncio.create_subprocess_exec(
            # `-P`: a module in the working directory must not shadow ours.
            *(sys.executable, "-P", "-m", "fidelio.providers.local.process"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=self._environment,
            limit=_LINE_BYTES,
        )
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _exchange(process: asyncio.subprocess.Process, task: bytes) -> AsyncIterator[LocalLine]:
    """Send the task and read the lines. The input stays open, because the process ends with it."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(task)
        while True:
            async with asyncio.timeout(_IDLE_SECONDS):
                line = await process.stdout.readline()
            if not line:
                return
            yield msgspec.json.decode(line, type=LocalLine)
    except (TimeoutError, ValueError, ConnectionError, msgspec.DecodeError) as error:
        raise ModelProblem(
            f"The local model did not reply ({type(error).__name__}).", remedy="Try again.", retryable=True
        ) from error


def _make_task(request: ModelRequest) -> LocalTask:
    forced = next((tool for tool in request.tools if tool.name == request.force_tool), None)
    return LocalTask(
        model=str(_find_model(request.model)),
        messages=[
            *([{"role": "system", "content": request.system}] if request.system else ()),
            *({"role": message.role, "content": text} for message in request.messages if (text := _join_texts(message))),
        ],
        max_tokens=min(request.max_tokens, _MAX_OUTPUT),
        schema=forced.input_schema if forced is not None else None,
    )


def _find_model(name: str) -> Path:
    if not name:
        if why := describe_missing():
            raise ModelProblem(why.partition(" Run: ")[0], remedy=f"Run: {INSTALL}")
        return bundled_model() or Path()
    if not has_engine():
        raise ModelProblem("The engine of the local model is not installed.", remedy=f"Run: {INSTALL}")
    file = Path(name).expanduser()
    if not file.is_file():
        raise ModelProblem(f"The model file {name!r:.200} does not exist.", remedy="Name a GGUF file, or use local-model.")
    return file


def _join_texts(message: Message) -> str:
    """The texts of a message, with those of tool results; the small model knows nothing else."""
    return "\n".join(text for block in message.content for text in _find_texts(block))


def _find_texts(block: Block) -> list[str]:
    if isinstance(block, ToolResultBlock):
        return [inner.text for inner in block.content if isinstance(inner, TextBlock)]
    return [block.text] if isinstance(block, TextBlock) else []


def _build_reply(request: ModelRequest, text: str, end: LocalLine) -> ModelReply:
    usage = TokenUsage(end.input_tokens, end.output_tokens)
    if request.force_tool:
        call = parse_tool_use(f"call_{secrets.token_hex(8)}", request.force_tool, text)
        return ModelReply(content=(call,), stop_reason="tool_use", usage=usage, model=request.model)
    content = (TextBlock(text),) if text else ()
    return ModelReply(
        content=content, stop_reason="max_tokens" if end.finish == "length" else "end_turn", usage=usage, model=request.model
    )


def _make_problem(error: str) -> ModelProblem:
    sentence = f"The local model cannot do this: {error!s:.300}"
    if _TOO_LONG in error.lower():
        remedy = "Use a model with a larger window, or start a new session with less history."
        return ModelProblem(sentence, remedy=remedy, kind="context_too_long_error")
    return ModelProblem(sentence, remedy="Use another model.")
