"""A runtime whose agent has `agent_toolset_20260401` over a real sandbox, and a scripted model that calls its tools."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from fidelio.providers.model import ImageBlock, TextBlock, ToolResultBlock
from fidelio.runtime.record import RuntimeRecord
from fidelio.sandbox.host.client import LocalSandboxes
from fidelio.sandbox.host.pool import LaunchedProcess, SandboxPool
from fidelio.sandbox.model import LevelReport, SandboxSpec
from fidelio.sandbox.process import SandboxProcess
from tests.runtime.wakes.support import Runtime, open_runtime, replies, results_of, say, use
from tests.sandbox.inside.launching import find_level

TOOLSET = {"toolset": "agent_toolset_20260401"}


class Bench:
    """Calls of a model in one session, each a turn of its own."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime, self.session = runtime, ""

    async def begin(self, **tools: Any) -> None:
        self.session = await self.runtime.begin(tools={**TOOLSET, **tools})

    async def call(self, tool: str, **arguments: Any) -> ToolResultBlock:
        """The result that the model got."""
        (result,) = await self.call_all((tool, arguments))
        return result

    async def call_all(self, *calls: tuple[str, Mapping[str, Any]]) -> list[ToolResultBlock]:
        if not self.session:
            await self.begin()
        self.runtime.script(replies(use(*calls), say("Done.")))
        await self.runtime.tell(self.session, "Go on.")
        await self.runtime.work()
        return results_of(self.runtime.requests[-1])[-len(calls) :]

    async def read(self, tool: str, **arguments: Any) -> str:
        """The text of a call that must work."""
        result = await self.call(tool, **arguments)
        assert not result.is_error, result
        return text_of(result)

    async def refuse(self, tool: str, **arguments: Any) -> str:
        """The text of a call that must be refused."""
        result = await self.call(tool, **arguments)
        assert result.is_error, result
        return text_of(result)

    async def record(self) -> RuntimeRecord:
        return await self.runtime.record(self.session)


def text_of(result: ToolResultBlock) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, TextBlock))


def images_of(result: ToolResultBlock) -> list[ImageBlock]:
    return [block for block in result.content if isinstance(block, ImageBlock)]


async def _start(spec: SandboxSpec, _: AsyncExitStack) -> LaunchedProcess:
    process = await SandboxProcess.start(spec, find_level())
    return LaunchedProcess(process, find_level().level, process.pid)


async def _read_level() -> LevelReport:
    return find_level()


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory that the user of a sandbox can enter."""
    with tempfile.TemporaryDirectory(prefix="fidelio-open-") as name:
        Path(name).chmod(0o777)
        yield Path(name)


@pytest.fixture
async def bench(open_directory: Path) -> AsyncIterator[Bench]:
    find_level()
    pool = SandboxPool(_start)
    async with open_runtime(open_directory, sandboxes=LocalSandboxes(pool, _read_level)) as runtime:
        try:
            yield Bench(runtime)
        finally:
            await pool.close()
