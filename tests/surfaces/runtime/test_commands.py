"""The commands of `fidelio runtime`."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fidelio.surfaces.text import measure
from tests.runtime.wakes.support import replies, say, texts_of, use
from tests.support import proves
from tests.surfaces.runtime.conftest import FILES, STARTED_WORKERS, ModelBehaviour, RunFidelio

DEMO = ("--model", "scripted:demo")
PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")


def run_json(fidelio: RunFidelio, *arguments: str) -> Any:
    done = fidelio(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def begin_demo(fidelio: RunFidelio) -> str:
    """A session that waits for a yes to its command."""
    sent = run_json(fidelio, "runtime", "send", "default", "Write hello.", *DEMO)
    fidelio("runtime", "follow", "default", "--until-rest")
    session: str = sent["sessionId"]
    return session


@proves("runtime-cli.define")
def test_an_agent_is_defined_by_a_file_and_each_content_is_a_version(fidelio: RunFidelio, project: Path) -> None:
    (project / "bob.yaml").write_text("model: scripted:echo\nsystem: One.\n")
    first = fidelio("runtime", "define", "bob.yaml")
    (project / "bob.yaml").write_text("model: scripted:demo\ndescription: Demonstrates.\n")
    second = run_json(fidelio, "runtime", "define", "bob.yaml")
    piped = fidelio("runtime", "define", "-", "--name", "al", text="model: scripted:quiet\n")

    listed = fidelio("runtime", "agents").stdout
    shown = fidelio("runtime", "agents", "bob", "--version", "1").stdout
    assert first.stdout.startswith("Agent bob has version 1:")
    assert (second["version"], second["agent"]["model"]) == (2, "scripted:demo")
    assert piped.returncode == 0, piped.stderr
    assert [line.split()[0] for line in listed.splitlines()[1:]] == ["al", "bob"]
    assert "2        scripted:demo" in listed
    assert "│ system: One." in shown
    assert [entry["version"] for entry in run_json(fidelio, "runtime", "agents", "bob")["versions"]] == [2, 1]


@proves("runtime-cli.define")
def test_a_definition_that_cannot_be_used_is_refused_with_the_key(fidelio: RunFidelio, project: Path) -> None:
    (project / "bob.yaml").write_text("modell: x\n")

    wrong = fidelio("runtime", "define", "bob.yaml")
    missing = fidelio("runtime", "define", "nothing.yaml")
    unnamed = fidelio("runtime", "define", "-", text="model: scripted:echo\n")
    unknown = fidelio("runtime", "define", "nobody")

    assert "modell" in wrong.stderr
    assert "nothing.yaml cannot be read" in missing.stderr
    assert "--name NAME" in unnamed.stderr
    assert "There is no agent nobody." in unknown.stderr
    assert "fidelio runtime define nobody.yaml" in unknown.stderr
    assert all(done.returncode for done in (wrong, missing, unnamed, unknown))


@proves("runtime-cli.define", "agents.files")
def test_a_file_of_the_project_is_shown_by_trust_and_used_only_after_it(fidelio: RunFidelio, project: Path) -> None:
    directory = project / ".fidelio" / "agents"
    directory.mkdir(parents=True)
    (directory / "bob.yaml").write_text("model: scripted:demo\ntools: {policies: {shell_run: always_allow}}\n")
    (directory / "broken.yaml").write_text("model: [\n")

    before = fidelio("runtime", "define", "bob")
    listed = run_json(fidelio, "runtime", "agents")["files"]
    trusted = fidelio("trust", ".", "--yes")
    after = fidelio("runtime", "define", "bob")

    assert before.returncode == 4
    assert "fidelio trust" in before.stderr
    assert [(file["name"], file["used"]) for file in listed] == [("bob", False), ("broken", False)]
    assert "  agent:       bob has model scripted:demo, environment default, does not ask for shell_run" in trusted.stdout
    assert "  agent:       broken is broken: " in trusted.stdout
    assert "Agent bob has version 1" in after.stdout
    assert run_json(fidelio, "trust", ".", "--yes")["agents"][0]["has"].startswith("model scripted:demo")


@proves("runtime-cli.send")
def test_a_message_begins_a_session_of_the_agent_and_the_next_one_continues_it(fidelio: RunFidelio) -> None:
    first = run_json(fidelio, "runtime", "send", "default", "Hi", *DEMO)
    second = run_json(fidelio, "runtime", "send", "default", "Again")
    by_id = run_json(fidelio, "runtime", "send", first["sessionId"], "And again")
    other = run_json(fidelio, "runtime", "send", "default", "Hi", "--new", "--name", "work")
    by_name = run_json(fidelio, "runtime", "send", "work", "Hi")
    changed = fidelio("runtime", "send", "work", "Hi", *DEMO)

    assert first["sessionId"] == second["sessionId"] == by_id["sessionId"]
    assert other["sessionId"] == by_name["sessionId"] != first["sessionId"]
    assert len(STARTED_WORKERS) == 5
    assert changed.returncode == 2
    assert "keeps what it began with" in changed.stderr


@proves("runtime-cli.send", "runtime-cli.streaming")
def test_with_follow_the_work_is_done_and_shown_here(fidelio: RunFidelio) -> None:
    done = fidelio("runtime", "send", "default", "-", *DEMO, "--follow", text="Write hello.\n")
    nothing = fidelio("runtime", "send", "default", " ")

    assert done.returncode == 0, done.stderr
    assert "│ I write /workspace/hello.txt.\n- write /workspace/hello.txt: done" in done.stdout
    assert "It waits for you: shell_run." in done.stdout
    assert nothing.returncode == 2
    assert "There is nothing to send." in nothing.stderr


@proves("runtime-cli.send")
def test_an_error_of_the_model_is_shown_and_is_the_exit_code(fidelio: RunFidelio) -> None:
    done = fidelio("runtime", "send", "default", "Hi", "--model", "scripted:nothing", "--follow")

    assert done.returncode == 1
    assert "! There is no scripted model 'nothing'." in done.stdout
    assert "The next message starts it again." in done.stdout.replace("\n↳ ", " ")


@proves("runtime-cli.files")
def test_images_go_to_the_model_and_other_files_into_the_workspace_and_back(
    fidelio: RunFidelio, project: Path, script: Callable[[ModelBehaviour], None]
) -> None:
    seen: list[Any] = []

    def look(request: Any) -> Any:
        seen.append(request)
        return say("Seen.")

    script(look)
    (project / "dot.png").write_bytes(PNG)
    (project / "my data.csv").write_bytes(b"a,b\n\xff")
    files = ("--file", "dot.png", "--file", "my data.csv")
    done = fidelio("runtime", "send", "default", "Look.", *files, "--model", "scripted:test", "--follow")
    back = fidelio("runtime", "download", "default", "uploads/my_data.csv")
    again = fidelio("runtime", "download", "default", "uploads/my_data.csv")

    assert done.returncode == 0, done.stderr
    blocks = [block for message in seen[0].messages for block in message.content]
    assert [block.media_type for block in blocks if hasattr(block, "media_type")] == ["image/png"]
    assert "The file my data.csv (5 bytes) is at /workspace/uploads/my_data.csv." in texts_of(seen[0])
    assert base64.b64decode(FILES["/workspace/uploads/my_data.csv"]) == b"a,b\n\xff"
    assert back.returncode == 0, back.stderr
    assert (project / "my_data.csv").read_bytes() == b"a,b\n\xff"
    assert again.returncode == 2
    assert "--force" in again.stderr
    assert fidelio("runtime", "download", "default", "uploads/my_data.csv", "--force").returncode == 0
    assert "cannot be read" in fidelio("runtime", "send", "default", "x", "--file", "none").stderr


@proves("runtime-cli.answers")
def test_a_person_confirms_what_waits_and_the_session_goes_on(fidelio: RunFidelio) -> None:
    session = begin_demo(fidelio)
    waiting = run_json(fidelio, "runtime", "status", session)["waiting"]

    wrong = fidelio("runtime", "confirm", "default", "toolu_nothing")
    confirmed = fidelio("runtime", "confirm", "default", waiting[0]["toolUseId"])
    followed = fidelio("runtime", "follow", "default", "--until-rest")
    late = fidelio("runtime", "confirm", "default")

    assert (waiting[0]["tool"], waiting[0]["kind"]) == ("shell_run", "tool_confirmation")
    assert "does not wait for the request or call 'toolu_nothing'" in wrong.stderr
    assert confirmed.returncode == 0, confirmed.stderr
    assert '- shell_run "wc -c hello.txt": exit code 0' in followed.stdout
    assert late.returncode == 2
    assert "does not wait for anything" in late.stderr


@proves("runtime-cli.answers")
def test_a_denial_reaches_the_agent_with_its_message(fidelio: RunFidelio, script: Callable[[ModelBehaviour], None]) -> None:
    asked: list[str] = []

    def answer(request: Any) -> Any:
        asked.append(json.dumps([str(block) for message in request.messages for block in message.content]))
        return use(("shell_run", {"command": "make"})) if len(asked) == 1 else say("As you wish.")

    script(answer)
    fidelio("runtime", "send", "default", "Go.", "--model", "scripted:test", "--follow")

    denied = fidelio("runtime", "deny", "default", "--message", "Never on Fridays")
    fidelio("runtime", "follow", "default", "--until-rest")

    assert denied.returncode == 0, denied.stderr
    assert "Never on Fridays" in asked[1]


@proves("runtime-cli.answers")
def test_the_result_of_a_custom_tool_is_given_by_command(
    fidelio: RunFidelio, project: Path, script: Callable[[ModelBehaviour], None]
) -> None:
    (project / "ops.yaml").write_text("model: scripted:test\ntools: {custom: [{name: deploy, description: Deploys.}]}\n")
    fidelio("runtime", "define", "ops.yaml")
    script(replies(use(("deploy", {"to": "test"})), say("Deployed.")))
    waiting = fidelio("runtime", "send", "ops", "Go.", "--follow")

    no_approval = fidelio("runtime", "confirm", "ops")
    given = fidelio("runtime", "result", "ops", "It is live.")
    followed = fidelio("runtime", "follow", "ops", "--until-rest")
    nothing = fidelio("runtime", "result", "ops", "Again.")

    assert "fidelio runtime result" in " ".join(waiting.stdout.split())
    assert no_approval.returncode == 2
    assert given.returncode == 0, given.stderr
    assert "│ Deployed." in followed.stdout
    assert nothing.returncode == 2


@proves("runtime-cli.answers")
def test_an_interrupt_withdraws_the_request_and_goes_on_with_what_is_said(fidelio: RunFidelio) -> None:
    begin_demo(fidelio)

    done = fidelio("runtime", "interrupt", "default", "What can you do?")
    followed = fidelio("runtime", "follow", "default", "--until-rest")

    assert done.returncode == 0, done.stderr
    assert '! shell_run "wc -c' in followed.stdout
    assert "│ I was not allowed to count the bytes." in followed.stdout
    assert json.loads(fidelio("inbox", "--json").stdout)["items"] == []


@proves("runtime-cli.follow")
def test_follow_prints_events_with_their_texts_as_json(fidelio: RunFidelio) -> None:
    fidelio("runtime", "send", "default", "Hi", *DEMO)

    done = fidelio("runtime", "follow", "default", "--until-rest", "--after", "0", "--json")

    printed = [json.loads(line) for line in done.stdout.splitlines()]
    assert [event["seq"] for event in printed] == list(range(1, len(printed) + 1))
    (message,) = [event for event in printed if event["type"] == "agent.message"]
    assert message["body"]["content"][0]["text"].startswith("I am a scripted model.")
    assert fidelio("runtime", "follow", "nobody").returncode == 4


@proves("runtime-cli.status")
def test_status_shows_state_usage_cost_and_what_it_waits_for(fidelio: RunFidelio) -> None:
    session = begin_demo(fidelio)

    shown = fidelio("runtime", "status", "default").stdout
    told = run_json(fidelio, "runtime", "status", "default")

    assert shown.startswith(f"Session {session}: idle, it waits for an answer")
    assert " of 1,000,000 tokens in 3 requests, $0.0000 of $5, 1 wakes" in shown
    assert "waits for your yes to shell_run: call toolu_" in shown
    assert all(measure(line) <= 80 for line in shown.splitlines())
    assert (told["status"], told["stopReason"], told["costUsd"]) == ("idle", "requires_action", 0)


@proves("runtime-cli.status")
def test_sessions_are_listed_archived_and_ended(fidelio: RunFidelio) -> None:
    first = run_json(fidelio, "runtime", "send", "default", "Hi", *DEMO)["sessionId"]
    second = run_json(fidelio, "runtime", "send", "default", "Hi", *DEMO, "--new", "--title", "The second")["sessionId"]
    fidelio("runtime", "follow", second, "--until-rest")

    listed = fidelio("runtime", "sessions")
    archived = fidelio("runtime", "archive", second)
    ended = fidelio("runtime", "end", first)
    refused = fidelio("runtime", "send", second, "More")

    assert [word for word in listed.stdout.split() if word.startswith("s_")] == [second, first]
    assert "The second" in listed.stdout
    assert archived.returncode == ended.returncode == 0, archived.stderr + ended.stderr
    assert run_json(fidelio, "runtime", "sessions") == {"items": [], "next": None}
    assert len(run_json(fidelio, "runtime", "sessions", "--all")["items"]) == 2
    assert "is archived" in refused.stderr
    assert "No sessions in this project." in fidelio("runtime", "sessions").stdout


@proves("runtime-cli.outcomes")
def test_an_outcome_is_defined_by_options_or_a_file_and_decided_by_a_person(fidelio: RunFidelio, project: Path) -> None:
    fidelio("chat", *DEMO, text="Hi\n")
    (project / "goal.yaml").write_text("title: The file is there\nsuccessCriteria: [It says hello]\n")

    by_options = fidelio("runtime", "outcome", "define", "default", "--title", "Tests pass", "--check", "make test")
    by_file = fidelio("runtime", "outcome", "define", "default", "goal.yaml")
    neither = fidelio("runtime", "outcome", "define", "default")
    shown = run_json(fidelio, "runtime", "outcome", "show", "default")["items"]
    several = fidelio("runtime", "outcome", "decide", "default", "pass")
    decided = fidelio("runtime", "outcome", "decide", "default", "pass", "--outcome", shown[0]["id"], "--note", "Looked at it")

    assert by_options.returncode == by_file.returncode == 0, by_options.stderr + by_file.stderr
    assert neither.returncode == several.returncode == 2
    assert [outcome["title"] for outcome in shown] == ["Tests pass", "The file is there"]
    assert shown[0]["criteria"][0]["check"] == {"type": "command", "command": "make test"}
    assert decided.returncode == 0, decided.stderr
    assert "decided by person:" in fidelio("runtime", "outcome", "show", "default").stdout.replace("\n↳", "")
    assert fidelio("runtime", "outcome", "override", "default", "--note", "Once").returncode == 0


@proves("runtime-cli.memory")
def test_memory_is_listed_and_read(fidelio: RunFidelio) -> None:
    fidelio("chat", *DEMO, text="Write hello.\ny\n")

    listed = fidelio("runtime", "memory", "list", "default")
    empty = fidelio("runtime", "memory", "read", "default", "session_state")
    checkpoint = run_json(fidelio, "runtime", "memory", "read", "default", "checkpoint")

    assert listed.returncode == 0, listed.stderr
    assert "session_state: " in listed.stdout
    assert 'Learned: "Commands need approval"' in listed.stdout
    assert "│ lastSummary: " in fidelio("runtime", "memory", "read", "default", "checkpoint").stdout
    assert empty.returncode == 0, empty.stderr
    assert checkpoint["target"] == "checkpoint"
    assert fidelio("runtime", "memory", "read", "default", "nothing").returncode == 2


@proves("runtime-cli.wakes")
def test_wakes_that_the_agent_has_queued_are_listed(fidelio: RunFidelio, script: Callable[[ModelBehaviour], None]) -> None:
    later = {"outcome": "sleep", "queuedWakes": [{"reason": "look again", "delaySeconds": 3600, "note": "in an hour"}]}
    script(replies(say("Later.", later)))
    done = fidelio("runtime", "send", "default", "Go.", "--model", "scripted:test", "--follow")

    wakes = fidelio("runtime", "wakes", "default")
    told = run_json(fidelio, "runtime", "wakes", "default")

    assert "It wakes at " in done.stdout
    assert "look again" in wakes.stdout
    assert told["queuedWakes"][0]["reason"] == "look again"
    assert told["nextWakeAt"] == told["queuedWakes"][0]["due"]


@proves("runtime-cli.status")
@pytest.mark.parametrize("command", ["status", "wakes", "follow", "confirm", "archive", "end"])
def test_an_unknown_session_is_named_with_the_command_that_lists_them(fidelio: RunFidelio, command: str) -> None:
    fidelio("chat", text="Hi\n")

    done = fidelio("runtime", command, "nobody")

    assert done.returncode == 4
    assert "There is no session and no agent with a session 'nobody' here." in done.stderr
    assert "fidelio runtime sessions" in done.stderr
