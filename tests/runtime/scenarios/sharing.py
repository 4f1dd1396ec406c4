"""Scenarios about what all sessions of an agent share: 2 promotions through the gate, and 2 read-backs by another session."""

from __future__ import annotations

from typing import Any

from fidelio.providers.model import ModelReply
from fidelio.runtime import events as e
from fidelio.runtime.resources.versions import Substrate
from tests.runtime.scenarios.acts import begin_session, confirm, define_outcome, records, refuses, returns, says, tell
from tests.runtime.scenarios.stage import AGENT, Scenario, Stage, StageCheck, StageReply, StageTurn, call, say

_TITLE = "# Our tools"
_NOTE = "Ferries leave at noon."
_MATCHES = {"type": "file_matches", "path": "TOOLS.md", "pattern": f"^{_TITLE}$"}
_HAS_TITLE = {"text": "The draft has the new title.", "check": _MATCHES}
_PROMOTE = "resources_promote_to_substrate"


def _promote(turn: StageTurn) -> ModelReply:
    """Share the draft on top of the version that the comparison has shown."""
    seen = next(result["promotePrecondition"] for result in turn.results if "promotePrecondition" in result)
    return call(_PROMOTE, sourcePath="TOOLS.md", overwrite=True, expectedVersionId=seen["expectedVersionId"])


_STAGE: tuple[StageReply, ...] = (
    call("resources_stage_from_substrate", sourcePath="TOOLS.md"),
    call("resources_compare_with_substrate", sessionPath="TOOLS.md"),
)
_EDIT = call("edit", path="TOOLS.md", oldText="# Tools", newText=_TITLE)
_SHARING: tuple[StageReply, ...] = (*_STAGE, _EDIT, call("outcome_evaluate"), _promote)
_DEFINE = call("outcome_define", title="New title", successCriteria=[_HAS_TITLE])


def _shares(path: str, text: str) -> StageCheck:
    """The newest version of the shared file has the text, and was promoted by this session."""

    async def check(stage: Stage) -> None:
        substrate = await Substrate.open(stage.context, stage.project, AGENT)
        versions = await substrate.list_versions(path, 10)
        assert len(versions) == 2
        assert text in (await substrate.load_content(versions[0])).decode()
        assert text not in (await substrate.load_content(versions[1])).decode()

    return check


def _passed(number: int) -> StageCheck:
    """The write of the last call says that the outcome had passed."""

    async def check(stage: Stage) -> None:
        verdict = (await stage.calls())[number].output["outcomeEvaluation"]
        assert (verdict["status"], verdict["promotionReady"]) == ("pass", True)

    return check


async def _asked_once(stage: Stage) -> None:
    """Only the call that passed the gate has asked a person, who has seen the outcome and its verdict."""
    (asked,) = await stage.events(e.APPROVAL_REQUESTED)
    question = (await stage.context.ledger.request(asked.body["request"])).question
    assert "Outcome" in question
    assert "pass" in question


def _in_prompt(text: str) -> StageCheck:
    async def check(stage: Stage) -> None:
        assert text in stage.own_requests[-1].system

    return check


def _quotes_the_new_title(turn: StageTurn) -> ModelReply:
    return say(turn.last["output"]["content"].splitlines()[0])


def _read_both(turn: StageTurn) -> ModelReply:
    newest, oldest = turn.last["versions"]
    return call("resources_read_version", versionId=oldest["versionId"] if newest != oldest else "")


async def _reads_the_first_version(stage: Stage) -> None:
    *_, listed, read = await stage.calls()
    assert listed.output["count"] == 2
    assert read.output["content"].startswith("# Tools\n")


def _row(id_: str, *, does: Any, model: Any, expects: Any) -> Scenario:
    return Scenario(id=id_, does=tuple(does), model=tuple(model), expects=tuple(expects))


PROMOTIONS = (
    # The gate refuses before the outcome has passed, asks nobody, and passes afterwards.
    _row(
        "promote-a-file",
        does=(define_outcome("New title", _HAS_TITLE), confirm("allow")),
        model=(*_STAGE, _promote, _EDIT, call("outcome_evaluate"), _promote, say("Shared.")),
        expects=(
            refuses(2, _PROMOTE, "outcome_gate", "not_ready"),
            returns(5, _PROMOTE, targetPath="TOOLS.md"),
            _passed(5),
            _asked_once,
            _shares("TOOLS.md", _TITLE),
            records(e.OUTCOME_DEFINED, e.EVALUATION_ENDED, e.APPROVAL_REQUESTED, e.APPROVAL_USED, e.PROMOTED, e.STATUS_IDLE),
            says("Shared."),
        ),
    ),
    _row(
        "promote-a-note",
        does=(tell("Share the note when the draft has its title."), confirm("allow")),
        model=(
            _DEFINE,
            call("memory_promote_note", content=_NOTE),
            *_STAGE,
            _EDIT,
            call("outcome_evaluate"),
            call("memory_promote_note", content=_NOTE),
            say("Noted for all."),
        ),
        expects=(
            refuses(1, "memory_promote_note", "outcome_gate"),
            returns(6, "memory_promote_note", content=_NOTE, path="/workspace/agent/MEMORY.md"),
            _passed(6),
            _asked_once,
            _shares("MEMORY.md", _NOTE),
        ),
    ),
)
READ_BACKS = (
    _row(
        "read-back-a-promoted-file",
        does=(
            tell("Change the title for all."),
            confirm("allow"),
            begin_session(call("read", path="/workspace/agent/TOOLS.md"), _quotes_the_new_title),
            tell("Which title has TOOLS.md?"),
        ),
        model=(_DEFINE, *_SHARING, say("Shared.")),
        expects=(says(_TITLE), _in_prompt(_TITLE), _shares("TOOLS.md", _TITLE)),
    ),
    _row(
        "read-back-an-earlier-version",
        does=(
            tell("Change the title for all."),
            confirm("allow"),
            begin_session(
                call("memory_read", target="workspace_memory"),
                call("resources_list_versions", targetPath="TOOLS.md"),
                _read_both,
                say("It was shorter."),
            ),
            tell("How was TOOLS.md before?"),
        ),
        model=(_DEFINE, *_SHARING, say("Shared.")),
        expects=(_reads_the_first_version, says("It was shorter."), _in_prompt(_TITLE)),
    ),
)
