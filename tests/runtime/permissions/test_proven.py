"""Approvals that take only a signed yes: for one call, over any channel, whatever changed meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.app.person_keys import check_signature, find_proof_problems
from fidelio.errors import PersonKeyProblem, PersonNeeded, UsageProblem
from fidelio.inbox import Inbox
from fidelio.inbox.builders import demand_proof, needs_signature
from fidelio.ledger.model import NewEvent, Request
from fidelio.runtime.agents.definition import parse_agent
from fidelio.runtime.agents.tools import list_unasked
from fidelio.runtime.calls import Finished
from fidelio.runtime.delegation.roster import narrow_policies
from fidelio.runtime.permissions.policy import POLICIES, decide
from fidelio.runtime.record import AllowedPattern, RuntimeRecord
from fidelio.runtime.report import RuntimeReport
from fidelio.runtime.tools.definitions import DEFINITIONS
from tests.runtime.calls.conftest import ServiceSession, session
from tests.support import proves
from tests.support.passkeys import SoftwareKey, register_key

__all__ = ["session"]

RUN: dict[str, Any] = {"command": "make release", "cwd": "/workspace"}
CHANNELS = ("cli", "web", "page", "elicited", "api", "relayed", "timer")


@pytest.fixture
async def key(session: ServiceSession) -> SoftwareKey:
    """A registered key; the commands of the session need its signature."""
    ledger, key = session.ledger, SoftwareKey()
    await register_key(session.service.context, key)
    await session.service.set_policy(session.id, "shell_run", "proven", by="person:ada")
    session.inbox = Inbox(ledger, clock=session.clock, check_proof=lambda *answer: check_signature(ledger, *answer))
    return key


async def answer(session: ServiceSession, request: Request, option: str, proof: dict[str, str] | None, text: str = "") -> None:
    await session.inbox.answer(request.id, option, text=text, by="person:ada", channel="web", proof=proof)


async def ask(session: ServiceSession, **arguments: Any) -> Request:
    return await session.inbox.find(await session.ask("shell_run", **arguments))


@proves("runtime.proven")
async def test_a_call_runs_after_a_signed_yes_and_its_record_verifies(session: ServiceSession, key: SoftwareKey) -> None:
    request = await ask(session, **RUN)
    await answer(session, request, "allow", key.sign_answer(request, "allow", "After the tests."), "After the tests.")
    await session.finish("shell_run", **RUN)

    (event,) = await session.ledger.events(session.id, types=("request.answered",))
    assert session.ran == ["make release"]
    assert (event.body["assurance"], len(event.body["proof"]["fingerprint"])) == ("proven", 32)
    assert await find_proof_problems(session.ledger, session.id) == []


@proves("runtime.proven")
@pytest.mark.parametrize("channel", CHANNELS)
async def test_an_unsigned_yes_is_refused_over_every_channel(session: ServiceSession, key: SoftwareKey, channel: str) -> None:
    request = await ask(session, **RUN)
    with pytest.raises(PersonNeeded):
        await session.answer(request.id, "allow", channel=channel)
    with pytest.raises(PersonNeeded):
        await session.inbox.prepare_answer(request.id, "allow", by="person:ada", channel=channel)

    assert (await session.inbox.find(request.id)).state == "open"
    assert await session.ask("shell_run", **RUN) == request.id
    assert session.ran == []


@proves("runtime.proven")
async def test_the_refusal_says_what_to_do(session: ServiceSession, key: SoftwareKey) -> None:
    request = await ask(session, **RUN)
    with pytest.raises(PersonNeeded, match=r"(?s)not signed.*web page.*choose deny without a key"):
        await session.answer(request.id, "allow")
    waiting = await session.call("shell_run", waits=False, **RUN)

    assert "with a registered key, on the web page" in waiting.output["message"]


@proves("runtime.proven", "runtime.approval-digest")
@pytest.mark.parametrize("changed", [{"command": "make  release"}, {"cwd": "/tmp"}, {"timeoutMs": 1}], ids=str)
async def test_a_signed_yes_is_for_exactly_these_arguments(
    session: ServiceSession, key: SoftwareKey, changed: dict[str, object]
) -> None:
    request = await ask(session, **RUN)
    await answer(session, request, "allow", key.sign_answer(request, "allow"))
    other = await ask(session, **{**RUN, **changed})

    assert other.id != request.id
    with pytest.raises(PersonKeyProblem):
        await answer(session, other, "allow", key.sign_answer(request, "allow"))
    assert session.ran == []


@proves("runtime.proven")
async def test_a_signature_covers_the_digest_of_the_call(session: ServiceSession, key: SoftwareKey) -> None:
    request = await ask(session, **RUN)
    proof = key.sign_answer(request, "allow")
    for name, value in (("digest", "0" * 64), ("command", "make  release"), ("network", "host"), ("unsigned_options", [])):
        forged = Request(**{**_fields(request), "detail": {**request.detail, name: value}})
        with pytest.raises(PersonKeyProblem):
            await check_signature(session.ledger, forged, "allow", "", proof)

    assert (await check_signature(session.ledger, request, "allow", "", proof))["key"] == proof["key"]


@proves("runtime.proven")
async def test_a_yes_from_before_proof_was_demanded_does_not_count(session: ServiceSession, key: SoftwareKey) -> None:
    await session.service.set_policy(session.id, "shell_run", "always_ask", by="person:ada")
    request = await ask(session, **RUN)
    await answer(session, request, "allow", None)
    await session.service.set_policy(session.id, "shell_run", "proven", by="person:ada")

    assert await session.ask("shell_run", **RUN) != request.id
    assert session.ran == []


@proves("runtime.proven")
async def test_a_pattern_lets_nothing_through_that_needs_proof(session: ServiceSession, key: SoftwareKey) -> None:
    await session.service.allow_pattern(session.id, "make *", by="person:ada", seconds=3600)

    await session.ask("shell_run", **RUN)
    assert session.ran == []


@proves("runtime.proven")
@given(
    st.sampled_from(sorted(DEFINITIONS)),
    st.sampled_from(["cat a", "make release", "ls", ""]),
    st.booleans(),
    st.sampled_from(["*", "a *", "cat *", "make *", "ls"]),
)
def test_whatever_the_call_is_the_policy_proven_asks(tool: str, command: str, is_read_only: bool, pattern: str) -> None:
    record = RuntimeRecord(policies={tool: "proven"}, allowed=(AllowedPattern(f"x{pattern}", 2, "person:a"),) * 3)

    assert decide(DEFINITIONS[tool], record, command, is_read_only=is_read_only, now=1).access == "ask"


@proves("runtime.proven-denial")
@pytest.mark.parametrize("channel", ["cli", "web", "elicited", "api"])
async def test_a_person_denies_without_a_signature(session: ServiceSession, key: SoftwareKey, channel: str) -> None:
    request = await ask(session, **RUN)
    await session.answer(request.id, "deny", "Not on a Friday.", channel=channel)
    denied = await session.finish("shell_run", **RUN)

    assert denied.is_error
    assert "Not on a Friday." in denied.output["error"]["message"]
    assert await find_proof_problems(session.ledger, session.id) == []
    assert session.ran == []


@proves("runtime.proven-denial")
@pytest.mark.parametrize("channel", ["relayed", "timer"])
async def test_only_a_person_denies(session: ServiceSession, key: SoftwareKey, channel: str) -> None:
    request = await ask(session, **RUN)
    with pytest.raises(PersonNeeded):
        await session.answer(request.id, "deny", channel=channel)

    assert (await session.inbox.find(request.id)).state == "open"


@proves("runtime.proven-denial")
@given(
    st.lists(st.sampled_from(["allow", "deny", "refuse"]), max_size=2),
    st.sampled_from(["allow", "deny", "refuse", "", "other"]),
    st.sampled_from([*CHANNELS, "unknown"]),
)
def test_only_what_grants_nothing_is_unsigned_and_only_from_a_person(refusals: list[str], option: str, channel: str) -> None:
    detail = demand_proof({"digest": "d"}, refusals=refusals)
    is_unsigned = option in refusals and channel not in ("relayed", "timer", "unknown")

    assert needs_signature(_request(detail), option, channel) is not is_unsigned
    assert not needs_signature(_request({"answered_by": "person"}), option, channel)


@proves("runtime.proven", "inbox.proven")
async def test_verify_finds_an_approval_whose_demanded_signature_is_missing(session: ServiceSession, key: SoftwareKey) -> None:
    request = await ask(session, **RUN)
    body = {"request": request.id, "key": request.key, "option": "allow", "by": "person:ada", "channel": "cli"}
    forged = NewEvent(type="request.answered", body={**body, "assurance": "local", "effect": {}, "after_ms": 1})
    await session.ledger.append(session.id, forged)

    assert "has to be signed" in (await find_proof_problems(session.ledger, session.id))[0]
    # Neither does the session take it for a yes.
    assert await session.ask("shell_run", **RUN) == request.id
    assert session.ran == []


@proves("runtime.proven-report")
async def test_the_report_names_the_key_and_a_missing_signature(session: ServiceSession, key: SoftwareKey) -> None:
    request = await ask(session, **RUN)
    await answer(session, request, "allow", key.sign_answer(request, "allow"))
    report, forged = RuntimeReport(session=session.id, name="", store=""), RuntimeReport(session=session.id, name="", store="")
    for event in await session.ledger.events(session.id):
        report.add(event)
    unsigned = NewEvent(type="request.answered", body={"request": request.id, "option": "allow", "assurance": "local"})
    await session.ledger.append(session.id, unsigned)
    for event in await session.ledger.events(session.id):
        forged.add(event)

    (approval,) = report.approvals.values()
    assert (approval.demanded, approval.assurance, len(approval.fingerprint)) == ("proven", "proven", 32)
    assert report.differences == []
    assert any("without a signature" in difference for difference in forged.differences)


OWN = st.dictionaries(st.sampled_from(sorted(DEFINITIONS)), st.sampled_from(POLICIES))


@proves("runtime.proven-children", "toolset.roster")
@given(OWN, OWN)
def test_a_child_needs_a_signature_wherever_its_parent_does(mother: dict[str, str], daughter: dict[str, str]) -> None:
    parent = parse_agent({"model": "scripted:test", "tools": {"policies": mother}}, "The agent")
    child = parse_agent({"model": "scripted:test", "tools": {"policies": daughter}}, "The agent")
    narrowed = narrow_policies(RuntimeRecord(policies=dict(mother)), parent, child)

    demanded = {name for policies in (mother, daughter) for name, policy in policies.items() if policy == "proven"}
    assert demanded == {name for name, policy in narrowed.items() if policy == "proven"}


@proves("runtime.proven-children")
def test_a_child_with_other_tools_does_not_ask_for_less_than_its_parent() -> None:
    tools = {"toolset": "agent_toolset_20260401", "policies": {"bash": "proven"}}
    parent = parse_agent({"model": "scripted:test", "tools": tools}, "The agent")
    child = parse_agent({"model": "scripted:test", "tools": {"policies": {"shell_run": "always_allow"}}}, "The agent")
    narrowed = narrow_policies(RuntimeRecord(policies=dict(parent.tools.list_policies())), parent, child)

    assert (narrowed["shell_exec"], narrowed["shell_run"]) == ("proven", "proven")


@proves("runtime.proven")
def test_an_agent_file_demands_proof_and_that_is_no_exception_from_asking() -> None:
    definition = parse_agent({"model": "scripted:test", "tools": {"policies": {"shell_run": "proven"}}}, "The agent")

    assert definition.tools.list_policies() == {"shell_run": "proven"}
    assert list_unasked(definition.tools) == []


@proves("runtime.proven-report")
async def test_a_policy_that_somebody_loosens_is_in_the_report(session: ServiceSession, key: SoftwareKey) -> None:
    await session.service.set_policy(session.id, "shell_run", "always_allow", by="person:somebody")
    report = RuntimeReport(session=session.id, name="", store="")
    for event in await session.ledger.events(session.id):
        report.add(event)

    changed = [(policy.tool, policy.policy, policy.by) for policy in report.policies]
    assert changed == [("shell_run", "proven", "person:ada"), ("shell_run", "always_allow", "person:somebody")]


@proves("runtime.proven")
async def test_an_unknown_policy_is_refused(session: ServiceSession) -> None:
    with pytest.raises(UsageProblem, match="proven"):
        await session.service.set_policy(session.id, "shell_run", "proved", by="person:ada")


@proves("runtime.proven")
async def test_a_call_that_is_allowed_runs_only_once(session: ServiceSession, key: SoftwareKey) -> None:
    request = await ask(session, **RUN)
    await answer(session, request, "allow", key.sign_answer(request, "allow"))
    assert isinstance(await session.call("shell_run", **RUN), Finished)

    again = await ask(session, **RUN)
    with pytest.raises(PersonKeyProblem):
        await answer(session, again, "allow", key.sign_answer(request, "allow"))
    assert session.ran == ["make release"]


def _fields(request: Request) -> dict[str, Any]:
    return {name: getattr(request, name) for name in Request.__struct_fields__}


def _request(detail: dict[str, Any]) -> Request:
    texts = {"id": "r_1", "session": "s_1", "kind": "tool_approval", "key": "k", "question": "May it?", "subject": ""}
    rest = {"options": (), "state": "open", "answer": {}, "answered_by": "", "channel": "", "assurance": ""}
    return Request(**texts, **rest, detail=detail, opened_at=0, closed_at=None, expires_at=None)  # type: ignore[arg-type]  # from dictionaries
