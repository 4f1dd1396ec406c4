"""Claude Code with `tools: sandbox`: everything is real but the model, which hears which tools it has."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from fidelio.app.application import Application
from fidelio.orchestrator.blueprints.servers import add_sandbox_server
from fidelio.settings import load_settings
from tests.agents.bench import bench
from tests.agents.harness_claude import ClaudeHarness
from tests.agents.model import ModelCall, ModelText
from tests.orchestrator.executors.recording import RecordingReporter
from tests.support import proves
from tests.surfaces.sandbox.local import require_commands


@proves("blueprints.sandbox-tools")
@pytest.mark.parametrize("schema", [None, {"type": "object", "properties": {"ok": {"type": "boolean"}}}])
async def test_the_model_hears_of_the_tools_of_the_sandbox_and_of_none_of_claude_code(
    tmp_path: Path, schema: dict[str, object] | None
) -> None:
    require_commands()
    fidelio_home = tmp_path / "fidelio"
    script = [ModelCall("write", {"path": "/workspace/project/note.txt", "content": "hello\n"}), ModelText("Written.")]
    reporter = RecordingReporter()
    async with (
        bench(ClaudeHarness(), tmp_path, script) as place,
        Application(load_settings(environ={"FIDELIO_HOME": str(fidelio_home)})) as app,
    ):
        await app.host_sandboxes()
        turn = place.turn("Write a note.", mode="ask", tools="sandbox", mcp_servers={}, output_schema=schema)
        closed = add_sandbox_server(turn.blueprint, home=str(fidelio_home), project=str(place.project), session="agent-s_1")
        await place.carry_out(replace(turn, blueprint=closed), reporter)
        written = list((fidelio_home / "sandboxes").rglob("note.txt"))

    offered = {tool.label for heard in place.model.heard for tool in heard.tools}
    assert "mcp__sandbox__shell_run" in offered
    # The tool of a structured result is none by which an agent touches a machine.
    assert [name for name in offered if not name.startswith("mcp__sandbox__") and name != "StructuredOutput"] == []
    # No permission was asked in Claude Code: the gate of the session decides.
    assert reporter.questions == []
    assert len(written) == 1
    assert not (place.project / "note.txt").exists()
