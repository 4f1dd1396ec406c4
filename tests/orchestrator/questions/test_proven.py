"""Permissions of agents that take only a signed yes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.app.fidelio_executor import build_definition
from fidelio.app.person_keys import check_signature, find_proof_problems
from fidelio.errors import PersonKeyProblem, PersonNeeded, UsageProblem
from fidelio.inbox import Inbox
from fidelio.ledger.model import Request
from fidelio.mcp_client import McpServer
from fidelio.orchestrator.blueprints.model import Blueprint, Permissions, narrow_permissions
from fidelio.orchestrator.blueprints.reading import BlueprintHead, find_head_problems
from fidelio.orchestrator.executors.claude.messages import ControlRequestBody
from fidelio.orchestrator.executors.claude.stream import answer_permission_request
from fidelio.orchestrator.executors.contract import AgentQuestion, Reply, Reporter, Turn, TurnResult
from fidelio.orchestrator.runs.rights import AgentRights
from fidelio.orchestrator.service.service import AgentService
from fidelio.runtime.service import RuntimeService
from fidelio.runtime.tools.model import RuntimeContext
from fidelio.surfaces.views.agents import answer_hint
from tests.orchestrator.fakes import OrchestratorHarness, start, wait_until, wait_until_finished
from tests.runtime.support import KEYS, FakeSandboxes
from tests.support import proves
from tests.support.ledgers import MovingClock
from tests.support.passkeys import SoftwareKey, register_key

ALLOW, REFUSE = ("allow", "Allow it once"), ("refuse", "Refuse it")
MAY_I = AgentQuestion(
    key="1", kind="permission", text="Run make release?", options=(ALLOW, REFUSE), detail={"input": {"command": "make release"}}
)
PROVEN = Permissions(answered_by="proven")


async def asking(turn: Turn, reporter: Reporter) -> TurnResult:
    return TurnResult(text=(await reporter.ask(MAY_I)).option)


async def asking_again_with_other_arguments(turn: Turn, reporter: Reporter) -> TurnResult:
    """The second question has the name of the first, and wants something else."""
    first = await reporter.ask(MAY_I)
    second = await reporter.ask(msgspec.structs.replace(MAY_I, detail={"input": {"command": "rm -r ."}}))
    return TurnResult(text=f"{first.option}, {second.option}")


@pytest.fixture
async def key(harness: OrchestratorHarness) -> SoftwareKey:
    """A registered key; the blueprint `signed` needs its signature."""
    key = SoftwareKey()
    context = RuntimeContext(harness.ledger, MovingClock(), harness.home, FakeSandboxes({}), lambda: KEYS)
    await register_key(RuntimeService(context).context, key)
    harness.blueprints.add("signed", permissions=PROVEN)
    return key


async def wait_for_question(hosted: AgentService, *, after: str = "") -> Request:
    def is_asking(session: Any) -> bool:
        return session.question is not None and session.question != after

    session = await wait_until(hosted, "aria", is_asking)
    return await hosted.context.inbox.find(session.question or "")


async def answer(harness: OrchestratorHarness, request: Request, option: str, proof: dict[str, str] | None) -> None:
    ledger = harness.ledger
    inbox = Inbox(ledger, check_proof=lambda *given: check_signature(ledger, *given))
    await inbox.answer(request.id, option, by="person:anna", channel="web", proof=proof)


@proves("orchestrator.proven")
async def test_an_agent_goes_on_after_a_signed_yes(
    harness: OrchestratorHarness, hosted: AgentService, key: SoftwareKey
) -> None:
    harness.actor.part = asking
    await start(hosted, "aria", blueprint="signed")
    request = await wait_for_question(hosted)
    await answer(harness, request, "allow", key.sign_answer(request, "allow"))
    (session,) = await wait_until_finished(hosted, "aria")

    assert (await hosted.result("aria")).text == "allow"
    assert await find_proof_problems(harness.ledger, session.id) == []


@proves("orchestrator.proven")
@pytest.mark.parametrize("channel", ["cli", "web", "elicited", "api", "relayed", "timer"])
async def test_an_unsigned_yes_is_refused(
    harness: OrchestratorHarness, hosted: AgentService, key: SoftwareKey, channel: str
) -> None:
    harness.actor.part = asking
    await start(hosted, "aria", blueprint="signed")
    request = await wait_for_question(hosted)
    with pytest.raises(PersonNeeded, match="not signed"):
        await hosted.answer("aria", option="allow", by="person:anna", channel=channel)

    assert (await hosted.context.inbox.find(request.id)).state == "open"
    await hosted.answer("aria", option="refuse", by="person:anna", channel="cli")
    await wait_until_finished(hosted, "aria")
    assert (await hosted.result("aria")).text == "refuse"


@proves("orchestrator.proven")
async def test_another_call_under_the_same_name_is_another_question(
    harness: OrchestratorHarness, hosted: AgentService, key: SoftwareKey
) -> None:
    harness.actor.part = asking_again_with_other_arguments
    await start(hosted, "aria", blueprint="signed")
    first = await wait_for_question(hosted)
    await answer(harness, first, "allow", key.sign_answer(first, "allow"))
    second = await wait_for_question(hosted, after=first.id)
    with pytest.raises(PersonKeyProblem):
        await answer(harness, second, "allow", key.sign_answer(first, "allow"))
    await answer(harness, second, "refuse", None)
    await wait_until_finished(hosted, "aria")

    assert (await hosted.result("aria")).text == "allow, refuse"
    assert first.detail["digest"] != second.detail["digest"]


@proves("orchestrator.proven")
async def test_questions_that_are_no_permissions_need_no_signature(
    harness: OrchestratorHarness, hosted: AgentService, key: SoftwareKey
) -> None:
    async def asking_how(turn: Turn, reporter: Reporter) -> TurnResult:
        return TurnResult(text=(await reporter.ask(AgentQuestion(key="how", kind="question", text="How loud?"))).text)

    harness.actor.part = asking_how
    await start(hosted, "aria", blueprint="signed")
    await wait_for_question(hosted)
    await hosted.answer("aria", text="Softly.", by="person:anna", channel="cli")
    await wait_until_finished(hosted, "aria")

    assert (await hosted.result("aria")).text == "Softly."


@proves("orchestrator.proven")
async def test_claude_code_is_offered_no_yes_to_the_like_of_it() -> None:
    rule = {"type": "addRules", "rules": [{"toolName": "Bash"}], "behavior": "allow"}
    request = ControlRequestBody(
        "can_use_tool", tool_name="Bash", tool_use_id="t1", input={"command": "make"}, permission_suggestions=[rule]
    )
    offered: list[list[str]] = []

    class Recorder:
        async def ask(self, question: AgentQuestion) -> Reply:
            offered.append([option for option, _ in question.options])
            return Reply("refuse", "")

    for permissions in (Permissions(), PROVEN):
        await answer_permission_request(request, permissions, Recorder())  # type: ignore[arg-type]  # the part that is used

    assert offered == [["allow", "allow-always", "refuse"], ["allow", "refuse"]]


@proves("orchestrator.proven")
@pytest.mark.parametrize("mode", ["ask", "edit", "read"])
def test_an_agent_of_the_runtime_gets_policies_that_demand_proof(mode: Any) -> None:
    server = McpServer(command="tickets")
    blueprint = Blueprint(
        name="helper",
        description="Helps.",
        executor="fidelio",
        permissions=Permissions(mode=mode, allow=("shell_exec", "mcp__tickets__list"), answered_by="proven"),
        mcp_servers={"tickets": server},
    )
    tools = build_definition(blueprint).tools

    assert "always_ask" not in tools.policies.values()
    assert "auto" not in tools.policies.values()
    assert (tools.policies["shell_run"], tools.policies["shell_exec"]) == ("proven", "always_allow")
    assert tools.mcp_servers["tickets"].policies == {"*": "proven", "list": "always_allow"}


@proves("orchestrator.proven")
def test_an_agent_that_waits_is_said_to_need_a_signature() -> None:
    detail = {"answered_by": "proven"}
    asked = Request("r_1", "s_1", "permission", "k", "May I?", (), "", detail, "open", {}, "", "", "", 0, None, None)

    assert "sign the answer to request r_1" in answer_hint("r_1", [asked])
    assert "answer_agent_question" in answer_hint("r_2", [asked])


@proves("orchestrator.proven-children")
@given(st.sampled_from(["person", "proven"]), st.sampled_from(["person", "proven"]))
def test_what_an_agent_starts_needs_the_same_signatures(wanted: Any, most: Any) -> None:
    narrowed = narrow_permissions(Permissions(answered_by=wanted), Permissions(answered_by=most))

    assert narrowed.needs_proof == ("proven" in (wanted, most))


@proves("orchestrator.proven-children")
async def test_a_child_that_wants_less_asks_for_a_signature(
    harness: OrchestratorHarness, hosted: AgentService, key: SoftwareKey
) -> None:
    harness.actor.part = asking
    harness.blueprints.add("plain")
    mother = await start(hosted, "mother", blueprint="signed")
    await start(hosted, "aria", blueprint="plain", parent=mother.id)
    request = await wait_for_question(hosted)

    assert request.detail["answered_by"] == "proven"


@proves("orchestrator.proven-children")
@pytest.mark.parametrize("child", [{"tools": "sandbox"}, {"executor": "fidelio", "options": {"agent": "other"}}], ids=str)
def test_no_child_is_started_whose_questions_others_decide(child: dict[str, Any]) -> None:
    rights = AgentRights("mother", PROVEN, ("/",))
    blueprint = Blueprint(name="child", description="A child.", **child)

    with pytest.raises(UsageProblem, match="signed permissions"):
        rights.require_start(blueprint, blueprint.executor or "claude", "/")
    AgentRights("mother", Permissions(), ("/",)).require_start(blueprint, blueprint.executor or "claude", "/")


@proves("blueprints.proven")
@pytest.mark.parametrize(
    ("head", "why"),
    [
        ({"permissions": Permissions(mode="full", answered_by="proven")}, "asks nobody"),
        ({"permissions": PROVEN, "tools": "sandbox"}, "the sandbox"),
        ({"permissions": PROVEN, "executor": "fidelio", "options": {"agent": "other"}}, "the agent other"),
        ({"permissions": PROVEN, "executor": "fidelio"}, ""),
        ({"permissions": PROVEN}, ""),
    ],
    ids=str,
)
def test_a_demand_that_nothing_would_carry_out_is_a_problem(head: dict[str, Any], why: str) -> None:
    found = list(find_head_problems(BlueprintHead(name="a", description="An agent.", **head), "a"))

    assert [why in problem[1] for problem in found] == ([True] if why else [])
