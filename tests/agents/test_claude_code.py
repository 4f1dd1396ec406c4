"""Claude Code carries out a workflow: all is real except the model, which sees only what the agent sends."""

from __future__ import annotations

import json
from typing import Any

from tests.agents.agent import PROMPT
from tests.agents.conftest import Work
from tests.agents.model import Model
from tests.support import proves
from tests.surfaces.conftest import Fidelio

TOOLS = 16
STEPS = {"greet": ("look", "ask"), "compose": ("read-advice", "write"), "farewell": ("tell", "show-record")}
CALLS = [
    *("start_session", "next_activity", "get_activity", "yield_checkpoint", "next_activity refused", "resume_checkpoint"),
    *("next_activity", "get_activity", "next_activity", "get_activity", "next_activity"),
]


async def to_the_question(model: Model) -> dict[str, Any]:
    started = await model.call("start_session", workflow_id="hello", agent_id="claude")
    entered = await model.call("next_activity", session_token=started.token, activity_id="greet")
    await model.call("get_activity", session_token=entered.token)
    yielded = await model.call("yield_checkpoint", session_token=entered.token, checkpoint_id="choose-tone")
    return dict(yielded.json)


async def to_the_end(model: Model, token: str) -> None:
    ways = {"greet": "compose", "compose": "farewell", "farewell": "__terminal__"}
    for activity, following in ways.items():
        manifest = [{"step_id": step, "output": "Done."} for step in STEPS[activity]]
        moved = await model.call("next_activity", session_token=token, activity_id=following, step_manifest=manifest)
        token = moved.token
        if following != "__terminal__":
            await model.call("get_activity", session_token=token)


def report_of(fidelio: Fidelio) -> dict[str, Any]:
    (session,) = json.loads(fidelio("sessions", "--json").stdout)["items"]
    assert session["status"] == "completed"
    return dict(json.loads(fidelio("report", session["id"], "--json").stdout))


def calls_of(fidelio: Fidelio, session: str) -> list[str]:
    calls = json.loads(fidelio("trace", session, "--json").stdout)["items"]
    return [call["name"] if call["s"] == "ok" else f"{call['name']} refused" for call in calls]


@proves("agents.walk", "agents.offline")
async def test_the_agent_carries_hello_to_its_end_and_a_person_answers_from_the_command_line(
    work: Work, fidelio: Fidelio
) -> None:
    async with work() as (model, agent):
        assert PROMPT in await model.prompt()
        asked = await to_the_question(model)
        held = await model.call("next_activity", session_token=asked["checkpoint_handle"], activity_id="compose")
        assert fidelio("answer", asked["request_id"], "warm").returncode == 0
        resumed = await model.call("resume_checkpoint", session_token=asked["checkpoint_handle"])
        await to_the_end(model, asked["checkpoint_handle"])
        model.say("The note is written.")
        result = await agent.end()

    assert (held.is_error, resumed.json["option_id"]) == (True, "warm")
    assert "Active checkpoint" in held.text
    assert (result["result"], result["permission_denials"], len(model.tools)) == ("The note is written.", [], TOOLS)
    assert model.strays == []
    check_record(fidelio)


def check_record(fidelio: Fidelio) -> None:
    report = report_of(fidelio)
    assert [visit["activity"] for visit in report["visits"]] == ["greet", "compose", "farewell"]
    assert (report["agents"], report["differences"]) == (["claude"], [])
    (answer,) = report["visits"][0]["answers"]
    assert (answer["option"], answer["channel"], answer["assurance"]) == ("warm", "cli", "local")
    assert answer["by"].startswith("person:")
    assert report["chain"]["holds"]
    assert calls_of(fidelio, report["session"]) == CALLS


@proves("agents.person")
async def test_where_a_person_must_answer_the_agent_is_asked_and_the_model_reads_that_no_person_answered(
    work: Work, fidelio: Fidelio
) -> None:
    async with work("--person") as (model, _):
        await model.prompt()
        asked = await to_the_question(model)
        relayed = await model.call("respond_checkpoint", checkpoint_handle=asked["checkpoint_handle"], option_id="warm")

    assert relayed.is_error
    assert "has to be answered by a person" in relayed.text
    # It is the agent that says so: run without a terminal, it has nobody to show the question to.
    assert "The person closed the question without an answer." in relayed.text
    assert [one["id"] for one in json.loads(fidelio("inbox", "--json").stdout)["items"]] == [asked["request_id"]]


@proves("agents.documents")
async def test_what_the_model_reads_of_a_document_is_the_document(work: Work) -> None:
    async with work() as (model, _):
        await model.prompt()
        token = (await model.call("start_session", workflow_id="hello")).token
        token = (await model.call("next_activity", session_token=token, activity_id="greet")).token
        activity = await model.call("get_activity", session_token=token)
        skill = await model.call("get_skill", session_token=token, step_id="look")

    assert activity.text.startswith("session_token: ")
    assert "Read what the skill names, and set project_name." in activity.text
    assert "Look for a README and read its first screen." in skill.text
