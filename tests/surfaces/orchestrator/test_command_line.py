"""`fidelio agents`, as a person at a prompt uses it."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import pytest
import yaml

from fidelio.orchestrator.service.service import AgentService
from fidelio.surfaces.cli.main import run
from tests.support import proves
from tests.support.command_line import run_fidelio


class Shell:
    """Runs commands in one project with one home."""

    def __init__(self, place: Path) -> None:
        self.project = place / "project"
        self.home = place / "home"
        (self.home / "agents").mkdir(parents=True)
        self.project.mkdir()

    def __call__(self, *arguments: str, text: str = "", code: int = 0) -> str:
        environ = {**os.environ, "FIDELIO_HOME": str(self.home)}
        done = run_fidelio(["agents", *arguments], environ=environ, directory=self.project, text=text)
        assert done.returncode == code, (done.stdout, done.stderr)
        return done.stdout + (done.stderr if code else "")

    def script(self, name: str, *turns: list[dict[str, object]]) -> None:
        options = {"script": {"turns": list(turns)}}
        head = {"name": name, "description": "For tests.", "executor": "scripted", "options": options}
        (self.home / "agents" / f"{name}.md").write_text(f"---\n{yaml.safe_dump(head)}---\n")


@pytest.fixture
def agents(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@proves("orchestrator-tools.command-line")
def test_a_session_is_started_resumed_read_and_deleted(agents: Shell) -> None:
    assert "echo" in agents("blueprints")
    assert agents("start", "one", "Hello.", "-b", "echo") == "Hello.\n"
    assert agents("resume", "one", "-", text="From a pipe.") == "From a pipe.\n"
    assert json.loads(agents("list", "--json"))["items"][0]["name"] == "one"
    assert agents("result", "one", "--run", "1") == "Hello.\n"
    assert json.loads(agents("status", "one", "--json"))["status"] == "finished"
    assert "succeeded after" in agents("events", "one")
    assert "one is deleted." in agents("delete", "--yes", "one")
    assert "No agent sessions." in agents("list")


@proves("cli.hyphen-names")
@pytest.mark.parametrize("name", ["--help", "-x", "-", "--json", "--", "---"])
def test_a_session_whose_name_looks_like_an_option_is_reached_behind_two_hyphens(agents: Shell, name: str) -> None:
    assert agents("start", "-b", "echo", "--", name, "Hello.") == "Hello.\n"
    assert agents("resume", "--", name, "Again.") == "Again.\n"
    assert json.loads(agents("list", "--json"))["items"][0]["name"] == name
    assert agents("result", "--run", "1", "--", name) == "Hello.\n"
    assert json.loads(agents("status", "--json", "--", name))["session_name"] == name
    assert "succeeded after" in agents("events", "--", name)
    assert "succeeded" in agents("wait", "--timeout", "50", "--", name)
    agents("send", "--", name, "More.")
    agents("stop", "--", name)
    assert f"{name} is deleted." in agents("delete", "--yes", "--", name)


@proves("cli.hyphen-names")
def test_the_printed_command_works_for_such_a_name(agents: Shell) -> None:
    printed = agents("start", "--detach", "-b", "echo", "--", "--help", "Hello.")
    command = shlex.split(printed.partition("Watch it with: ")[2])
    watched = agents(*command[command.index("agents") + 1 :])

    assert "succeeded after" in watched


@proves("cli.hyphen-names")
def test_a_name_that_was_taken_for_an_option_is_answered_with_the_way_to_write_it(agents: Shell) -> None:
    assert "Put -- before a name that begins with a hyphen." in agents("status", "-x", code=2)


@proves("orchestrator-tools.command-line")
def test_a_detached_agent_works_on_when_the_command_has_returned(agents: Shell) -> None:
    gate = agents.project / "gate"
    agents.script("slow", [{"pause": {"until": str(gate), "seconds": 50}}, {"result": "At last."}], [{"result": "{prompt}"}])
    assert "agents events later --follow" in agents("start", "later", "Go.", "-b", "slow", "--detach")
    assert "still running" in agents("wait", "later", "--timeout", "0.2", code=5)
    agents("send", "later", "And then this.")
    gate.write_text("")
    assert "succeeded" in agents("wait", "later", "--timeout", "50")
    assert "And then this." in agents("result", "later")


@proves("orchestrator-tools.command-line")
def test_a_stopped_agent_says_so_and_a_failed_one_shows_what_it_said(agents: Shell) -> None:
    agents.script("slow", [{"pause": {"until": str(agents.project / "never"), "seconds": 50}}, {"result": "Never."}])
    agents.script("clumsy", [{"say": "I tried."}, {"fail": "It broke."}])
    agents("start", "task", "Go.", "-b", "slow", "--detach")
    assert "stopped" in agents("stop", "task")
    failed = agents("start", "other", "Go.", "-b", "clumsy", code=1)
    assert "I tried." in failed
    assert "It broke." in failed


@proves("orchestrator-tools.command-line")
def test_what_cannot_be_done_is_said_with_the_way_out(agents: Shell) -> None:
    assert "list_agent_blueprints" in agents("start", "one", "x", "-b", "nobody", code=4)
    assert "does not exist" in agents("result", "ghost", code=4)
    assert "--all" in agents("delete", code=2)
    assert "No sessions to remove" in agents("delete", "--all", "--yes")


@proves("orchestrator-tools.children")
def test_an_agent_at_the_command_line_starts_children(agents: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = agents.project / "gate"
    agents.script("slow", [{"pause": {"until": str(gate), "seconds": 50}}, {"result": "Done."}])
    agents("start", "parent", "Hello.", "-b", "slow", "--detach")
    parent = json.loads(agents("list", "--json"))["items"][0]["session_id"]
    monkeypatch.setenv("FIDELIO_AGENT", f"{parent}.1")
    agents("start", "child", "Hello.", "-b", "echo", "--detach")
    gate.touch()
    (created,) = (json.loads(line) for line in agents("events", "child", "--json").splitlines() if "session.created" in line)
    assert created["body"]["parent"] == parent


@proves("orchestrator-tools.command-line", "orchestrator-tools.waiting")
@pytest.mark.parametrize("how", [["--any"], []])
def test_who_waits_for_a_session_that_is_deleted_is_told(
    agents: Shell, how: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gate = agents.project / "gate"
    agents.script("slow", [{"pause": {"until": str(gate), "seconds": 50}}, {"result": "Never."}])
    agents("start", "task", "Go.", "-b", "slow", "--detach")

    async def deleted_meanwhile(service: AgentService, names: list[str], **_: object) -> tuple[()]:
        await service.context.ledger.erase(names, actor="cli", reason="deleted")
        return ()

    monkeypatch.setattr(AgentService, "wait", deleted_meanwhile)
    monkeypatch.setenv("FIDELIO_HOME", str(agents.home))
    monkeypatch.chdir(agents.project)
    assert run(["agents", "wait", "task", *how]) == 4
    assert "task was deleted." in capsys.readouterr().err
    gate.write_text("")


@proves("orchestrator-tools.command-line")
def test_a_person_is_told_commands_and_not_tools(agents: Shell) -> None:
    agents.script("slow", [{"pause": {"until": str(agents.project / "never"), "seconds": 50}}, {"result": "Never."}])
    agents.script("polite", [{"ask": {"text": "May I?", "options": {"yes": "Go on"}}}, {"result": "Thanks."}])
    agents("start", "task", "Go.", "-b", "slow", "--detach")
    agents("start", "asks", "Go.", "-b", "polite", "--detach")
    said = [
        agents("start", "task", "Go.", "-b", "slow", code=1),
        agents("resume", "task", "Go.", code=1),
        agents("result", "task", code=1),
        agents("result", "ghost", code=4),
    ]
    for text, command, name in zip(said, ("resume", "send", "wait", "start"), ("task", "task", "task", "ghost"), strict=True):
        assert f" agents {command} {name}" in text
    while "waits for you" not in (status := agents("status", "asks")):
        agents("wait", "asks", "--timeout", "0.2", code=5)
    assert ["│ May I?" in status, "Option yes\n      │ Go on" in status, "fidelio answer r_" in status] == [True, True, True]
    assert "_agent_" not in "".join([*said, status])
    # Whoever carries them out waits for as long as one of them does.
    for name in ("task", "asks"):
        agents("stop", name)


@proves("orchestrator-tools.authors")
def test_the_record_says_who_gave_an_agent_more_to_do(agents: Shell) -> None:
    agents("start", "one", "Hello.", "-b", "echo")
    agents("resume", "one", "Again.")
    agents("send", "one", "And again.")
    agents("wait", "one", "--timeout", "40")
    environ = {**os.environ, "FIDELIO_HOME": str(agents.home)}
    session = json.loads(agents("list", "--json"))["items"][0]["session_id"]
    told = run_fidelio(["events", session, "--type", "run.queued", "--json"], environ=environ, directory=agents.project)
    assert told.stdout.count('"actor": "cli"') == 2
