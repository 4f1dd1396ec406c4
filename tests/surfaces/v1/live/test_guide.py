"""Every block of the guide to managed agents runs as it is printed, in its order; only the port is another one."""

from __future__ import annotations

import asyncio
import difflib
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conformance.node import HOW_TO_INSTALL, environment, is_installed, node, programs
from tests.support import proves
from tests.support.parts import require_part
from tests.surfaces.sandbox.local import require_commands
from tests.surfaces.v1.live.conftest import PINS
from tests.surfaces.v1.live.server import SECONDS, find_free_port

GUIDE = Path(__file__).parents[4] / "docs" / "guides" / "managed-agents.md"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A block of the guide."""

    language: str
    text: str


def read_blocks(port: int) -> list[Block]:
    text = GUIDE.read_text("utf-8").replace("7333", str(port))
    return [Block(*found) for found in _BLOCK.findall(text)]


class Reader:
    """Somebody who does what the guide says."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "project"
        self.directory.mkdir()
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("FIDELIO_", "ANTHROPIC_"))}
        path = os.pathsep.join([str(Path(sys.executable).parent), environment()["PATH"]])
        places = {"FIDELIO_HOME": str(directory / "home"), "XDG_DATA_HOME": str(directory / "data"), "COLUMNS": "200"}
        self._environ = {**inherited, **places, "PATH": path}
        self._exports = ""

    async def run(self, script: str) -> str:
        """Run a block in a shell that knows the variables of the blocks before it; returns what it prints."""
        self.note_exports(script)
        process = await self._start(script)
        try:
            async with asyncio.timeout(SECONDS):
                output, _ = await process.communicate()
        finally:
            end_group(process)
        assert process.returncode == 0, output.decode()
        return output.decode()

    async def serve(self, script: str, port: int) -> asyncio.subprocess.Process:
        """Run the block that starts the server, until the server says that it listens."""
        self.note_exports(script)
        process = await self._start(script.replace("fidelio up", f"exec fidelio up --port {port}"))
        assert process.stdout is not None
        async with asyncio.timeout(SECONDS):
            assert str(port).encode() in await process.stdout.readline()
        return process

    def note_exports(self, script: str) -> None:
        self._exports += "".join(f"{line}\n" for line in script.splitlines() if line.startswith("export "))

    async def _start(self, script: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *("bash", "-ec", self._exports + script),
            cwd=self.directory,
            env=self._environ,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )


def end_group(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        os.killpg(process.pid, signal.SIGTERM)


def of(blocks: list[Block], language: str) -> Iterator[str]:
    return (block.text for block in blocks if block.language == language)


@proves("v1.guide")
def test_a_program_changes_in_two_lines() -> None:
    before, after, _ = of(read_blocks(7333), "python")

    lines = difflib.ndiff(before.splitlines(), after.splitlines())
    changes = sorted(line.partition("=")[0].replace(" ", "") for line in lines if line.startswith(("- ", "+ ")))

    assert changes == ["+api_key", "+base_url", "-api_key", "-base_url"]


@pytest.mark.usefixtures("commands")
@proves("v1.guide")
async def test_every_block_runs_as_it_is_printed(tmp_path: Path) -> None:
    if not is_installed(PINS):
        require_part("The official SDK in JavaScript (with its node)", HOW_TO_INSTALL)
    port = find_free_port()
    blocks = read_blocks(port)
    start, variables, trial, record = of(blocks, "sh")
    _, program, resumption = of(blocks, "python")
    printed, listed = of(blocks, "text")
    (script,) = of(blocks, "js")
    reader = Reader(tmp_path)
    (reader.directory / "agent.py").write_text(program)
    (reader.directory / "resume.py").write_text(resumption)
    (reader.directory / "list.mjs").write_text(script)
    (reader.directory / "node_modules").symlink_to(programs(PINS) / "node_modules")

    server = await reader.serve(start, port)
    try:
        assert await reader.run(trial) == printed
        assert await reader.run(f"{node()} list.mjs") == listed
        resumed = (await reader.run("python resume.py")).splitlines()
        kept = await reader.run(record)
        known = "from anthropic import Anthropic; print(len(Anthropic().beta.agents.list().data))"
        assert int(await reader.run(f'{variables}\npython -c "{known}"')) >= 1
    finally:
        end_group(server)
        async with asyncio.timeout(SECONDS):
            await server.communicate()

    assert (resumed[0], resumed[-1], "agent.tool_result" in resumed) == ("session.status_running", "session.status_idle", True)
    assert "helper-" in kept
    assert "4 of 4 sessions hold." in kept
    assert len(blocks) == 10


@pytest.fixture
def commands() -> None:
    require_commands()
