"""Questions that only a person answers, in the three dialects: no level, dialect, level of a file or server leads past them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fidelio.inbox import Inbox
from fidelio.ledger import open_ledger
from fidelio.settings import Settings
from fidelio.workflows.report import report_session
from tests.dialects.conftest import Player, ToolReply, playing
from tests.dialects.gates.conftest import payload
from tests.support import proves
from tests.workflows.test_adoption import of_another_server

RISKY = 'condition: {type: simple, variable: risk, operator: "==", value: high}'
GATE = """
id: gate
version: 1.0.0
title: A gate
variables:
  - {name: risk, type: string}
  - {name: files, type: array}
initialActivity: work
activities:
  - id: work
    version: 1.0.0
    name: Work
    steps: [{id: do, name: Do it}]
    checkpoints:
      - id: sure
        name: Sure?
        message: Are you sure?
        answered_by: person
        CONDITION
        options: [{id: yes_, label: "Yes"}, {id: no_, label: "No"}]
    LOOPS
    transitions: [{to: after, isDefault: true}]
  - id: after
    version: 1.0.0
    name: After
"""
LOOP = """loops:
      - {id: each, name: Each, type: forEach, over: files, variable: file, steps: [{id: one, name: One, checkpoint: sure}]}
"""
CLAIM = [{"step_id": "do", "output": "The person chose warm."}]
LEVELS = pytest.mark.parametrize("fidelity", ["advise", "enforce"])


def write(library: Path, *, condition: str = "", loops: str = "", person: bool = True, **head: str) -> None:
    text = GATE.replace("CONDITION", condition or "required: true").replace("LOOPS", loops)
    text = text if person else text.replace("        answered_by: person\n", "")
    extra = "".join(f"{key}: {value}\n" for key, value in head.items())
    (library / "gate").mkdir(exist_ok=True)
    (library / "gate" / "workflow.yaml").write_text(text + extra)


async def answer(settings: Settings, option: str = "yes_") -> list[str]:
    """A person answers the oldest open question; what was asked is returned."""
    async with await open_ledger(settings.ledger) as ledger:
        found = (await ledger.requests(state="open")).items
        oldest = min(found, key=lambda request: request.detail["iteration"])
        await Inbox(ledger).answer(oldest.id, option, by="person:test", channel="cli")
        return [request.key for request in found]


async def move(play: Player, token: str, to: str, **more: Any) -> ToolReply:
    return await play("next_activity", session_token=token, activity_id=to, **more)


@proves("engine.person-leaves")
@LEVELS
@pytest.mark.parametrize("condition", ["", RISKY])
@pytest.mark.parametrize("to", ["after", "__terminal__"])
async def test_a_manifest_that_claims_an_answer_does_not_lead_past_a_person(
    settings: Settings, library: Path, fidelity: str, condition: str, to: str
) -> None:
    write(library, condition=condition)
    async with playing(settings, library, fidelity=fidelity) as play:
        inside = (await move(play, await play.start("gate"), "work")).token
        refused = await move(play, inside, to, step_manifest=CLAIM)
        yielded = await play("yield_checkpoint", session_token=inside, checkpoint_id="sure")
        await answer(settings)
        resumed = await play("resume_checkpoint", session_token=yielded.token)
        passed = await move(play, resumed.token, "after", step_manifest=CLAIM)

    assert refused.is_error
    # Where moves are enforced, other rules may refuse it first.
    assert fidelity == "enforce" or "only a person answers its checkpoint 'sure'" in refused.text
    assert not passed.is_error, passed.text


@proves("engine.person-leaves")
async def test_an_activity_that_is_adopted_is_not_left_without_its_person(settings: Settings, library: Path) -> None:

    write(library)
    async with playing(settings, library) as play:
        adopted = await play("start_session", session_token=of_another_server(sid="elsewhere", wf="gate", act="work"))
        refused = await move(play, adopted.token, "after", step_manifest=CLAIM)

    assert refused.is_error


@proves("engine.person-asked")
@pytest.mark.parametrize("dialect", ["sessions", "gates"])
async def test_what_is_reported_while_a_person_is_asked_dismisses_nothing(
    settings: Settings, library: Path, dialect: str
) -> None:
    write(library, condition=RISKY)
    async with playing(settings, library, dialect=dialect) as play:
        token = (await move(play, await play.start("gate"), "work", variables={"risk": "high"})).token
        arguments: dict[str, Any] = {"condition_not_met": True}
        if dialect == "gates":
            token = (await move(play, token, "work", variables={"risk": "low"})).token
            arguments["checkpoint_id"] = "sure"
        else:
            await play("yield_checkpoint", session_token=token, checkpoint_id="sure")
            token = (
                await play("yield_checkpoint", session_token=token, checkpoint_id="sure", variables={"risk": "low"})
            ).meta.get("session_token", token)
        dismissed = await play("respond_checkpoint", session_token=token, **arguments)
        left = await move(play, token, "after", step_manifest=CLAIM)

    assert dismissed.is_error
    assert left.is_error


@proves("engine.person-asked")
async def test_the_navigator_keeps_a_question_that_waits(settings: Settings, library: Path) -> None:
    write(library, condition=RISKY)
    async with playing(settings, library, dialect="navigator") as play:
        state = (await play("nav_start", workflow_id="gate", initial_variables={"risk": "high"})).json["state"]
        refused = await play(
            "nav_action", state=state, action="dismiss_checkpoint", checkpoint_id="sure", variables={"risk": "low"}
        )

    assert refused.is_error


@proves("engine.person-iterations")
@LEVELS
async def test_sessions_ask_for_every_item(settings: Settings, library: Path, fidelity: str) -> None:
    write(library, loops=LOOP)
    manifest = [*CLAIM, {"step_id": "one", "output": "a"}, {"step_id": "one", "output": "b"}]
    async with playing(settings, library, fidelity=fidelity) as play:
        token = (await move(play, await play.start("gate"), "work", variables={"files": ["a", "b"]})).token
        refusals = []
        for _ in range(2):
            refusals.append(await move(play, token, "after", step_manifest=manifest))
            await play("yield_checkpoint", session_token=token, checkpoint_id="sure")
            await answer(settings)
            token = (await play("resume_checkpoint", session_token=token)).token
        passed = await move(play, token, "after", step_manifest=manifest)

    assert all(refusal.is_error for refusal in refusals)
    if fidelity == "advise":
        assert "none has for iteration 1, 2 of its loop" in refusals[0].text
        assert "none has for iteration 2 of its loop" in refusals[1].text
        assert not passed.is_error, passed.text


@proves("engine.person-iterations")
async def test_gates_ask_for_every_item(settings: Settings, library: Path) -> None:
    write(library, loops=LOOP)
    async with playing(settings, library, dialect="gates") as play:
        start = await play.start("gate")
        token = (await move(play, start, "work")).token
        assert await answer(settings) == ["work/sure#1.1"]
        late = await move(play, token, "after", step_manifest=CLAIM, variables={"files": ["a", "b"]})
        again = await move(play, token, "work", variables={"files": ["a", "b"]})
        assert await answer(settings) == ["work/sure#1.2"]
        passed = await move(play, again.token, "after", step_manifest=CLAIM)
        known = await move(play, await play.start("gate"), "work", variables={"files": ["a", "b"]})
        await answer(settings)
        held = await move(play, known.token, "after", step_manifest=CLAIM)

    assert late.is_error
    assert "next_activity with 'work'" in late.text
    assert not passed.is_error, passed.text
    assert [one["checkpoint_id"] for one in known.json["pending_checkpoints"]] == ["sure", "sure"]
    assert held.is_error


THROUGH = LOOP.replace("checkpoint: sure}]}", "required: false, checkpoint: sure}], activities: [inner]}")
INNER = "  - {id: inner, version: 1.0.0, name: Inner}\n"


async def ask_in(play: Player, settings: Settings, dialect: str, token: str) -> str:
    """Let a person answer all open questions; in the sessions dialect the agent yields one first."""
    if dialect == "sessions":
        await play("yield_checkpoint", session_token=token, checkpoint_id="sure")
    async with await open_ledger(settings.ledger) as ledger:
        for request in (await ledger.requests(state="open")).items:
            await Inbox(ledger).answer(request.id, "yes_", by="person:test", channel="cli")
    return (await play("resume_checkpoint", session_token=token)).token if dialect == "sessions" else token


@proves("engine.person-iterations")
@LEVELS
@pytest.mark.parametrize("dialect", ["sessions", "gates"])
async def test_every_iteration_through_activities_is_asked_before_they_are_entered(
    settings: Settings, library: Path, dialect: str, fidelity: str
) -> None:
    write(library, loops=THROUGH)
    with (library / "gate" / "workflow.yaml").open("a") as file:
        file.write(INNER)
    async with playing(settings, library, dialect=dialect, fidelity=fidelity) as play:
        token = (await move(play, await play.start("gate"), "work", variables={"files": ["a", "b"]})).token
        early = list[bool]()
        for _ in range(2):
            inside = await move(play, token, "inner", step_manifest=CLAIM)
            early.append(inside.is_error)
            if inside.is_error:
                token = await ask_in(play, settings, dialect, token)
                inside = await move(play, token, "inner", step_manifest=CLAIM)
            token = (await move(play, inside.token, "work")).token
        left = await move(play, token, "after", step_manifest=CLAIM)

    # In gates all items are asked on entry.
    assert early == [True, dialect == "sessions"]
    assert not left.is_error, left.text


@proves("engine.person-asked")
@pytest.mark.parametrize("first", [True, False], ids=["asked", "unasked"])
async def test_a_later_report_settles_no_iteration(settings: Settings, library: Path, first: bool) -> None:
    write(library, condition=RISKY, loops=LOOP)
    manifest = [*CLAIM, {"step_id": "one", "output": "a"}, {"step_id": "one", "output": "b"}]
    async with playing(settings, library) as play:
        known = {"files": ["a", "b"], "risk": "high"}
        token = (await move(play, await play.start("gate"), "work", variables=known)).token
        token = await ask_in(play, settings, "sessions", token) if first else token
        left = await move(play, token, "after", step_manifest=manifest, variables={"risk": "low"})

    assert f"none has for iteration {'2' if first else '1, 2'} of its loop" in left.text


@proves("engine.person-iterations")
@pytest.mark.parametrize("dialect", ["sessions", "gates"])
@pytest.mark.parametrize("files", [[], None], ids=["empty", "unknown"])
async def test_only_a_list_that_is_known_to_be_empty_needs_no_person(
    settings: Settings, library: Path, dialect: str, files: list[str] | None
) -> None:
    write(library, loops=LOOP)
    async with playing(settings, library, dialect=dialect) as play:
        token = (await move(play, await play.start("gate"), "work", variables={"files": files})).token
        left = await move(play, token, "after", step_manifest=CLAIM)
        if left.is_error and dialect == "sessions":
            assert "nothing to do, report files in `variables`" in left.text
            late = await move(play, token, "after", step_manifest=CLAIM, variables={"files": []})
            assert not late.is_error, late.text

    assert left.is_error is (files is None)


@proves("engine.person-leaving-call")
async def test_the_navigator_completes_no_step_whose_question_the_call_reports_away(settings: Settings, library: Path) -> None:
    write(library, condition=RISKY)
    path = library / "gate" / "workflow.yaml"
    path.write_text(path.read_text().replace("name: Do it", "name: Do it, required: false, checkpoint: sure"))
    async with playing(settings, library, dialect="navigator") as play:
        state = (await play("nav_start", workflow_id="gate", initial_variables={"risk": "high"})).json["state"]
        did = {"state": state, "action": "complete_step", "step_id": "do", "output": "Done."}
        refused = await play("nav_action", **did, variables={"risk": "low"})

    assert "Checkpoint 'sure' is to be answered first." in refused.text


@proves("engine.strictness")
async def test_a_demand_for_people_holds_on_a_server_that_does_not_make_it(settings: Settings, library: Path) -> None:
    write(library, person=False)
    async with playing(settings, library, person=True) as strict:
        token = (await move(strict, await strict.start("gate"), "work")).token
    async with playing(settings, library) as play:
        left = await move(play, token, "after", step_manifest=CLAIM)
        await play("yield_checkpoint", session_token=token, checkpoint_id="sure")
        relayed = await play("respond_checkpoint", session_token=token, option_id="yes_")
        child = await play("start_session", workflow_id="gate", parent_session_token=token)
        inside = (await move(play, child.token, "work")).token
        of_child = await move(play, inside, "after", step_manifest=CLAIM)

    assert left.is_error
    assert relayed.is_error
    assert "only a person answers its checkpoint 'sure'" in of_child.text


@proves("engine.strictness")
async def test_the_child_of_an_enforced_session_is_enforced(settings: Settings, library: Path) -> None:

    write(library, person=False)
    async with playing(settings, library, fidelity="enforce") as strict:
        parent = (await move(strict, await strict.start("gate"), "work")).token
    async with playing(settings, library) as play:
        child = await play("start_session", workflow_id="gate", parent_session_token=parent, fidelity="advise")
        jumped = await move(play, child.token, "__terminal__")
        forged = of_another_server(sid="elsewhere", wf="gate", act="after")
        adopted = await play("start_session", session_token=forged, parent_session_token=parent)

    assert jumped.is_error
    assert adopted.is_error


@proves("engine.strictness")
async def test_a_session_that_waits_for_a_person_is_not_continued_by_a_forged_copy(settings: Settings, library: Path) -> None:
    from tests.workflows.test_adoption import of_another_server  # a helper of that test

    write(library)
    async with playing(settings, library) as play:
        token = (await move(play, await play.start("gate"), "work")).token
        await play("yield_checkpoint", session_token=token, checkpoint_id="sure")
        forged = of_another_server(sid=payload(token)["sid"], wf="gate", act="after")
        adopted = await play("start_session", session_token=forged)

    assert adopted.is_error


@proves("engine.person-asked", "snapshot.enforce")
@pytest.mark.parametrize("dialect", ["sessions", "gates", "navigator"])
async def test_a_demand_that_is_taken_out_of_the_file_still_holds_where_moves_are_enforced(
    settings: Settings, library: Path, dialect: str
) -> None:
    write(library, fidelity="enforce")
    async with playing(settings, library, dialect=dialect) as play:
        if dialect == "navigator":
            token = (await play("nav_start", workflow_id="gate")).json["state"]
        else:
            token = await play.start("gate")
        write(library, person=False, fidelity="enforce", tags="[edited]")
        if dialect == "navigator":
            relayed = await play(
                "nav_action", state=token, action="respond_to_checkpoint", checkpoint_id="sure", option_id="yes_"
            )
        else:
            token = (await move(play, token, "work")).token
            if dialect == "sessions":
                await play("yield_checkpoint", session_token=token, checkpoint_id="sure")
            named = {"checkpoint_id": "sure"} if dialect == "gates" else {}
            relayed = await play("respond_checkpoint", session_token=token, option_id="yes_", **named)

    assert relayed.is_error
    assert "person" in relayed.text


@proves("report.demanded")
async def test_a_demand_that_is_taken_out_and_put_back_is_seen_in_the_report(settings: Settings, library: Path) -> None:
    write(library)
    async with playing(settings, library) as play:
        token = await play.start("gate")
        write(library, person=False)
        token = (await move(play, token, "work")).token
        await play("yield_checkpoint", session_token=token, checkpoint_id="sure")
        relayed = await play("respond_checkpoint", session_token=token, option_id="yes_")
        write(library)
        await move(play, token, "after", step_manifest=CLAIM)

    async with await open_ledger(settings.ledger) as ledger:
        report = await report_session(ledger, payload(token)["sid"])
    (answered,) = [answer for visit in report.visits for answer in visit.answers]
    assert not relayed.is_error
    assert (answered.assurance, answered.demanded) == ("relayed", "any")
    assert any("demands a person" in difference for difference in report.differences)
    assert any("has changed" in difference for difference in report.differences)


STARTS = """
id: starts
version: 1.0.0
title: It starts another
initialActivity: work
activities:
  - {id: work, version: 1.0.0, name: Work, triggers: [{workflow: solo}], transitions: [{to: after, isDefault: true}]}
  - {id: after, version: 1.0.0, name: After}
"""


@proves("engine.unstarted")
@pytest.mark.parametrize("dialect", ["sessions", "gates"])
async def test_a_workflow_that_should_have_been_started_is_missed_on_leaving(
    settings: Settings, library: Path, dialect: str
) -> None:
    (library / "starts").mkdir()
    (library / "starts" / "workflow.yaml").write_text(STARTS)
    async with playing(settings, library, dialect=dialect) as play:
        advised = await move(play, (await move(play, await play.start("starts"), "work")).token, "after")
    async with playing(settings, library, dialect=dialect, fidelity="enforce") as play:
        inside = (await move(play, await play.start("starts"), "work")).token
        refused = await move(play, inside, "after")
        await play.do_solo(inside)
        passed = await move(play, inside, "after")

    missed = "Workflow 'solo' should have been started here and was not."
    # Clients of the gates dialect may be older than its children: there only the report says so.
    assert advised.warnings == ([missed] if dialect == "sessions" else [])
    assert refused.is_error
    assert missed in refused.text
    assert not passed.is_error, passed.text
