"""`fidelio chat` with lines of a script."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fidelio.errors import Command, Hint, UsageProblem
from fidelio.processes.table import AGENT_MARKER
from fidelio.providers.model import ModelReply, ModelRequest
from fidelio.runtime.service import RuntimeService
from fidelio.surfaces.text import measure
from tests.runtime.wakes.support import replies, say, texts_of, use
from tests.support import proves
from tests.surfaces.runtime.conftest import STARTED_WORKERS, ModelBehaviour, RunFidelio

DEMO = ("chat", "--model", "scripted:demo", "--new")


def events(fidelio: RunFidelio, *types: str, session: str = "default") -> list[dict[str, Any]]:
    listed = json.loads(fidelio("runtime", "sessions", "--json").stdout)["items"]
    options = [word for type_ in types for word in ("--type", type_)]
    done = fidelio("events", listed[0]["sessionId"], "--json", *options)
    return [json.loads(line) for line in done.stdout.splitlines()]


@proves("runtime-cli.chat", "runtime-cli.streaming", "runtime-cli.events")
def test_a_task_is_done_shown_and_allowed_in_place(fidelio: RunFidelio) -> None:
    done = fidelio(*DEMO, text="Write hello.\ny\n")

    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[1] == "│ I write /workspace/hello.txt."
    assert lines[2].startswith("- write /workspace/hello.txt: done")
    assert lines[3:5] == ["│ I read the file back.", lines[4]]
    assert lines[4].startswith("- read /workspace/hello.txt: done")
    assert "│ wc -c hello.txt" in lines
    assert any(line.startswith('- shell_run "wc -c hello.txt": exit code 0') for line in lines)
    assert "│ The file /workspace/hello.txt is there, and its bytes are counted." in lines
    assert all(measure(line) <= 80 for line in lines)
    # Streamed and recorded, but shown once.
    assert done.stdout.count("I read the file back.") == 1
    assert "fidelio-loop" not in done.stdout
    assert "\x1b" not in done.stdout


@proves("runtime-cli.chat")
def test_another_text_than_yes_denies_with_a_comment_for_the_agent(fidelio: RunFidelio) -> None:
    done = fidelio(*DEMO, text="Write hello.\nnot in this directory\n")

    (confirmation,) = events(fidelio, "user.tool_confirmation")
    assert confirmation["body"]["result"] == "deny"
    assert confirmation["body"]["deny_message"] == "not in this directory"
    assert confirmation["actor"].startswith("person:")
    assert '! shell_run "wc -c hello.txt": failed.' in done.stdout
    assert "│ I was not allowed to count the bytes." in done.stdout


@proves("runtime-cli.chat")
def test_an_empty_answer_leaves_the_request_open_and_says_how_to_answer_later(fidelio: RunFidelio) -> None:
    done = fidelio(*DEMO, text="Write hello.\n\n")

    assert "It stays open" in done.stdout
    assert "answer r_" in done.stdout
    assert json.loads(fidelio("inbox", "--json").stdout)["items"][0]["state"] == "open"


@proves("runtime-cli.chat")
def test_the_last_session_of_the_agent_is_continued_and_new_begins_another(fidelio: RunFidelio) -> None:
    first = fidelio(*DEMO, text="Hi\n").stdout.split()[1]
    again = fidelio("chat", text="Hi again\n").stdout
    named = fidelio("chat", "--session", first, text="").stdout
    other = fidelio(*DEMO, text="").stdout.split()[1]

    assert again.startswith(f"Session {first} continues: default, version 1, with scripted:demo.")
    assert f"chat --session {first}` continues it." in " ".join(again.split()).replace("↳ ", "")
    assert named.split()[1] == first
    assert other != first
    assert len(STARTED_WORKERS) == 4


@proves("runtime-cli.chat")
def test_what_a_session_keeps_is_not_changed_by_an_option(fidelio: RunFidelio) -> None:
    first = fidelio(*DEMO, text="").stdout.split()[1]

    other_model = fidelio("chat", "--model", "scripted:echo", text="Hi\n")
    both = fidelio("chat", "--session", first, "--new")
    unknown = fidelio("chat", "--session", "nobody")
    fidelio("sandbox", "run", "--session", "box", "true")
    without_model = fidelio("chat", "--session", "box")

    assert (other_model.returncode, both.returncode, unknown.returncode) == (2, 2, 4)
    assert "has no model to talk to" in without_model.stderr
    assert "Pass --new" in other_model.stderr
    assert fidelio("chat", "--model", "scripted:demo", text="").returncode == 0


@proves("runtime-cli.chat")
def test_the_default_agent_answers_without_any_definition_and_without_a_key(fidelio: RunFidelio) -> None:
    done = fidelio("chat", text="Anybody there?\n")

    assert done.returncode == 0, done.stderr
    assert "Anybody there?" in done.stdout
    assert "begins: default, version 1, with scripted:echo." in done.stdout


@proves("runtime-cli.chat")
def test_an_error_of_a_message_does_not_end_the_conversation(fidelio: RunFidelio, monkeypatch: pytest.MonkeyPatch) -> None:
    send = RuntimeService.send

    async def refuse_one(self: RuntimeService, session: str, events: Any, **more: Any) -> Any:
        if "refuse" in str(events):
            raise UsageProblem("This cannot be sent.", remedy=Hint(Command("inbox"), "."))
        return await send(self, session, events, **more)

    monkeypatch.setattr(RuntimeService, "send", refuse_one)
    done = fidelio("chat", text="refuse me\nHello\n")

    assert "! This cannot be sent. `fidelio inbox`" in done.stdout
    assert "│ Hello" in done.stdout


@proves("runtime-cli.chat")
def test_a_session_that_has_stopped_at_a_limit_does_not_keep_the_script_waiting(fidelio: RunFidelio) -> None:
    fidelio("runtime", "send", "default", "Hi", "--model", "scripted:demo", "--tokens", "10")

    done = fidelio("chat", text="One.\nTwo.\n")

    assert done.returncode == 0, done.stderr
    assert "It has stopped: a limit is reached." in done.stdout


@proves("runtime-cli.chat")
def test_a_person_carries_out_a_custom_tool(
    fidelio: RunFidelio, project: Path, script: Callable[[ModelBehaviour], None]
) -> None:
    (project / "ops.yaml").write_text(
        "model: scripted:test\ntools: {custom: [{name: deploy, description: Deploys., input_schema: {type: object}}]}\n"
    )
    script(replies(use(("deploy", {"version": "1.2"})), say("Deployed.")))
    assert fidelio("runtime", "define", "ops.yaml").returncode == 0

    done = fidelio("chat", "ops", text="Deploy it.\nIt is live.\n")

    (result,) = events(fidelio, "user.custom_tool_result")
    assert result["body"]["content"][0]["text"] == "It is live."
    assert "custom tool deploy" in done.stdout
    assert "│ Deployed." in done.stdout


@proves("runtime-cli.person")
@pytest.mark.parametrize(
    "arguments",
    [
        ("chat",),
        ("runtime", "send", "default", "x"),
        ("runtime", "confirm", "default"),
        ("runtime", "deny", "default"),
        ("runtime", "result", "default", "x"),
        ("runtime", "interrupt", "default"),
        ("runtime", "define", "default"),
        ("runtime", "end", "default"),
        ("runtime", "archive", "default"),
        ("runtime", "outcome", "define", "default", "--title", "x"),
        ("runtime", "outcome", "decide", "default", "pass"),
        ("runtime", "outcome", "override", "default"),
        ("runtime", "download", "default", "x"),
        ("runtime", "worker"),
    ],
)
def test_an_agent_does_nothing_of_this_for_a_person(fidelio: RunFidelio, arguments: tuple[str, ...]) -> None:
    fidelio("chat", text="Hi\n")

    refused = fidelio(*arguments, **{AGENT_MARKER: "r_" + "a" * 20})

    assert refused.returncode == 2
    assert "only a person may do this" in refused.stderr


@proves("runtime-cli.interrupt")
def test_ctrl_c_interrupts_the_agent_and_the_conversation_goes_on(
    fidelio: RunFidelio, script: Callable[[ModelBehaviour], None]
) -> None:
    asked: list[str] = []

    async def hang_once(request: ModelRequest) -> ModelReply:
        asked.append(texts_of(request))
        if len(asked) == 1:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()
        return say("Now this.")

    script(hang_once)
    done = fidelio("chat", "--model", "scripted:test", text="Do that.\nNo, do this.\n")

    assert done.returncode == 0, done.stderr
    assert "Interrupting. Ctrl-C again leaves." in done.stdout
    assert "│ Now this." in done.stdout
    assert len(events(fidelio, "user.interrupt")) == 1


@proves("runtime-cli.interrupt")
def test_a_second_ctrl_c_leaves_and_the_session_stays(fidelio: RunFidelio, script: Callable[[ModelBehaviour], None]) -> None:
    async def hang(request: ModelRequest) -> ModelReply:
        os.kill(os.getpid(), signal.SIGINT)
        try:
            await asyncio.Event().wait()
        finally:
            os.kill(os.getpid(), signal.SIGINT)
        return say("Never.")

    script(hang)
    done = fidelio("chat", "--model", "scripted:test", text="Do that.\nMore.\nMore.\nMore.\n")
    script(replies(say("Back again.")))
    again = fidelio("chat", text="Hello\n")

    assert done.returncode == 0, done.stderr
    assert "The session stays." in done.stdout
    assert "│ Back again." in again.stdout
    assert STARTED_WORKERS, "what is left is carried out in the background"


@proves("runtime-cli.chat-json")
def test_with_json_every_event_of_a_chat_is_a_line(fidelio: RunFidelio) -> None:
    done = fidelio(*DEMO, "--json", text="Write hello.\ny\n")
    events = [json.loads(line) for line in done.stdout.splitlines()]

    types = [event["type"] for event in events]
    assert (done.returncode, done.stderr) == (0, "")
    assert [event["seq"] for event in events] == sorted(event["seq"] for event in events)
    assert {"user.message", "approval.requested", "request.answered", "agent.message", "session.status_idle"} <= set(types)
