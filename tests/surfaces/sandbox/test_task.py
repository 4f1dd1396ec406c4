"""The official client carries out a whole task in a sandbox, while a person approves from the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from mcp.types import ElicitResult

from fidelio.surfaces.mcp.dialects import SandboxSession
from tests.support import proves
from tests.surfaces.conftest import Fidelio
from tests.surfaces.sandbox.conftest import Serve, ToolError, ToolsetClient

# Without -B the second run could take the bytecode of the first: the edit keeps the size, and times are compared by seconds.
TEST = {"command": "python3 -B check.py", "cwd": "/workspace/project"}
REQUEST = re.compile(r"^(r_\w+)", re.MULTILINE)


class Person:
    """Answers what waits in the inbox, with the commands that a person types."""

    def __init__(self, fidelio: Fidelio) -> None:
        self._fidelio = fidelio

    def read_inbox(self) -> str:
        listed = self._fidelio("inbox")
        assert listed.returncode == 0, listed.stderr
        return listed.stdout

    def answer(self, option: str, *more: str) -> str:
        """Answer the only request; returns what the inbox showed."""
        shown = self.read_inbox()
        (request,) = REQUEST.findall(shown)
        answered = self._fidelio("answer", request, option, *more)
        assert answered.returncode == 0, answered.stderr
        return shown


@pytest.fixture
def person(fidelio: Fidelio) -> Person:
    return Person(fidelio)


async def allow(sandbox: ToolsetClient, person: Person, tool: str, **arguments: Any) -> dict[str, Any]:
    """Call a tool that asks, allow it from the command line, and call it again."""
    waiting = await sandbox(tool, **arguments)
    assert waiting["status"] == "waiting"
    assert waiting["requestId"] in person.answer("allow")
    return await sandbox(tool, **arguments)


@proves("sandbox-tools.task", "sandbox-tools.waiting")
async def test_a_whole_task_with_a_person_at_the_command_line(
    sandbox: ToolsetClient, person: Person, project: Path, fidelio: Fidelio
) -> None:
    # A first shared file, so that there is something to stage.
    await sandbox("write", path="/workspace/NOTES.md", content="# Notes\n")
    await allow(sandbox, person, "resources_promote_to_substrate", sourcePath="/workspace/NOTES.md")

    failed = await allow(sandbox, person, "shell_run", **TEST)
    await sandbox("edit", path="/workspace/project/adder.py", oldText="a - b", newText="a + b")
    passed = await allow(sandbox, person, "shell_run", **TEST)

    staged = await sandbox("resources_stage_from_substrate", sourcePath="NOTES.md", targetPath="/workspace/drafts/NOTES.md")
    await sandbox("edit", path="/workspace/drafts/NOTES.md", oldText="# Notes\n", newText="# Notes\n\nadd() subtracted.\n")
    compared = await sandbox(
        "resources_compare_with_substrate", sessionPath="/workspace/drafts/NOTES.md", substratePath="NOTES.md"
    )
    precondition = {key: value for key, value in compared["promotePrecondition"].items() if key.startswith("expected")}
    promotion = {"sourcePath": "/workspace/drafts/NOTES.md", "targetPath": "NOTES.md", "overwrite": True, **precondition}
    await allow(sandbox, person, "resources_promote_to_substrate", **promotion)
    shared = await sandbox("read", path="/workspace/agent/NOTES.md")

    assert (failed["output"]["exitCode"], passed["output"]["exitCode"]) == (1, 0)
    assert "wrong sum" in failed["output"]["stderr"]
    assert passed["output"]["stdout"] == "ok\n"
    assert staged
    assert shared["output"]["content"] == "# Notes\n\nadd() subtracted.\n"
    assert (project / "adder.py").read_text() == "def add(a, b):\n    return a - b\n", "only the copy was changed"
    report = json.loads(fidelio("report", "default", "--json").stdout)
    assert [(entry["state"], entry["used"]) for entry in report["approvals"]] == [("allow", True)] * 4
    assert report["promoted"] == ["NOTES.md", "NOTES.md"]
    assert report["differences"] == []
    assert fidelio("verify", "default").returncode == 0


@proves("sandbox-cli.inbox")
async def test_the_inbox_shows_the_exact_command_its_directory_and_what_it_may_touch(
    sandbox: ToolsetClient, person: Person
) -> None:
    lines = [f"echo {number}" for number in range(100)]
    await sandbox("shell_run", command="\n".join(lines), cwd="/workspace/project")

    shown = person.read_inbox()

    assert all(re.search(rf"│ (\d+: )?{line}\n", shown) for line in lines), "the whole command is shown, however long it is"
    assert "Directory: /workspace/project" in shown
    assert "It can write to: /workspace, /workspace/project. Network: none." in shown
    assert "Only a person may answer." in shown
    assert 'A comment for the agent is added with --text "...".' in shown


@proves("sandbox-tools.waiting")
async def test_an_approval_covers_exactly_one_execution_of_exactly_that_call(sandbox: ToolsetClient, person: Person) -> None:
    command = {"command": "echo once >> /workspace/count"}
    first = await sandbox("shell_run", **command)
    person.answer("allow")

    other = await sandbox("shell_run", command="echo twice >> /workspace/count")
    done = await sandbox("shell_run", **command)
    again = await sandbox("shell_run", **command)

    assert done["output"]["exitCode"] == 0
    assert {other["status"], again["status"]} == {"waiting"}
    assert len({first["requestId"], other["requestId"], again["requestId"]}) == 3
    assert (await sandbox("read", path="/workspace/count"))["output"]["content"] == "once\n"


@proves("sandbox-tools.waiting")
async def test_a_denial_reaches_the_model_with_the_comment_of_the_person(sandbox: ToolsetClient, person: Person) -> None:
    await sandbox("shell_run", command="rm -rf project")
    person.answer("deny", "--text", "Keep the project.")

    with pytest.raises(ToolError, match="Keep the project") as refused:
        await sandbox("shell_run", command="rm -rf project")

    assert refused.value.code == "permission_denied"
    assert (await sandbox("read", path="project/adder.py"))["ok"]


@proves("sandbox-tools.elicitation")
async def test_a_client_that_can_ask_shows_the_question_and_the_call_goes_on(serve: Serve, fidelio: Fidelio) -> None:
    asked: list[str] = []

    async def ask(_: Any, params: Any) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={"answer": "allow"})

    async with serve(SandboxSession(mount="."), elicitation_callback=ask) as sandbox:
        done = await sandbox("shell_run", command="echo hello")

    assert done["output"]["stdout"] == "hello\n"
    assert "echo hello" in asked[0]
    approvals = json.loads(fidelio("report", "default", "--json").stdout)["approvals"]
    assert [(entry["channel"], entry["assurance"], entry["used"]) for entry in approvals] == [("elicited", "elicited", True)]


@proves("sandbox-tools.session")
async def test_a_session_is_found_again_by_its_name_and_others_are_apart(serve: Serve) -> None:
    async with serve(address="/mcp/sandbox?session=work") as sandbox:
        await sandbox("write", path="/workspace/a.txt", content="mine\n")
        await sandbox("shell_set_cwd", path="/workspace")
    async with serve(address="/mcp/sandbox?session=work") as sandbox:
        found = await sandbox("read", path="a.txt")
    async with serve(address="/mcp/sandbox") as sandbox:
        with pytest.raises(ToolError):
            await sandbox("read", path="a.txt")

    assert found["output"]["content"] == "mine\n"
