"""The end of a run, recorded in a single transaction with all its consequences.

These are the end itself, the dismissal of its open requests, the next run if there is one (queued messages, a lost run that may
be resumed) and the callback to the parent: after a crash all of them are recorded, or none.
"""

from __future__ import annotations

import re
from contextlib import suppress
from functools import partial
from typing import Any, Literal

import msgspec

from fidelio.errors import BadAgentInput, BrokenBlueprint, ExecutorFailure, FidelioError, RequestClosed, UncheckedAgentInput
from fidelio.inbox import dismiss_all
from fidelio.ledger.jobs import Assignment
from fidelio.ledger.long_text import json_text, sanitize_text, store_text
from fidelio.ledger.model import Completion, NewEvent, NewJob
from fidelio.orchestrator.blueprints.model import Blueprint
from fidelio.orchestrator.blueprints.schemas import check_output
from fidelio.orchestrator.executors.contract import TurnResult
from fidelio.orchestrator.record.model import Usage
from fidelio.orchestrator.record.record import END_EVENT_BY_STATE, RunRecord
from fidelio.orchestrator.record.rules import (
    BAD_OUTPUT,
    LOST_WITH_PROCESS,
    MAX_CONSECUTIVE_RESUMES,
    STOPPED_ON_REQUEST,
    STOPPED_WITH_PARENT,
    is_active,
    was_cut_off,
)
from fidelio.orchestrator.record.unit_of_work import AgentDecision, Decide, LoadedAgent, draft_event
from fidelio.orchestrator.runs import worktrees
from fidelio.orchestrator.runs.cleanup import remove_run_files
from fidelio.orchestrator.runs.context import OrchestratorContext
from fidelio.orchestrator.runs.queueing import draft_next_run
from fidelio.retry import retry_transient

CALLBACK = "agent.callback"
_MAX_DETAIL_LENGTH = 2_000
# Reason codes of executors for a process that was killed from outside, which is not a failure of the agent.
_PROCESS_LOST_REASONS = frozenset({"vanished", "signal.SIGKILL"})
# The code block from the first fence to the last, because its JSON may hold fences; and all code blocks.
_OUTER_BLOCK, _BLOCK = (re.compile(rf"```\w*\s*\n({content})```", re.DOTALL) for content in (".*", ".*?"))


class RunEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended. `text` is its result, or its messages until then. `usage`, `changes` None: as last recorded."""

    state: Literal["succeeded", "failed", "stopped", "lost"]
    reason: str = ""
    detail: str = ""
    text: str = ""
    data: Any = None
    changes: str | None = None
    usage: Usage | None = None


def end_from_failure(error: FidelioError) -> RunEnd:
    """The end of a run whose executor failed, or that could not begin."""
    reason = error.reason or error.code
    partial = error.partial if isinstance(error, ExecutorFailure) else ""
    if reason in _PROCESS_LOST_REASONS:
        return RunEnd(state="lost", reason=LOST_WITH_PROCESS, detail=str(error), text=partial)
    return RunEnd(state="failed", reason=reason, detail=str(error), text=partial)


def end_from_stop(run: RunRecord) -> RunEnd:
    """The end of a run that was stopped on request."""
    by = f"It was stopped by {run.stop_by}." if run.stop_by else "It was stopped."
    return RunEnd(state="stopped", reason=run.stop_reason or STOPPED_ON_REQUEST, detail=by)


async def finish_run(
    context: OrchestratorContext,
    agent: LoadedAgent,
    ending: RunEnd,
    *,
    actor: str,
    work: Assignment | None = None,
    resume_lost: bool = False,
) -> None:
    """Record the end of the newest run with the changes in its worktree, and remove its spool files.

    `work` is the job of the run, which is completed in the same transaction; None: the run has no host.
    """
    run = agent.record.run
    if agent.record.worktree:
        ending = msgspec.structs.replace(
            ending, changes=await worktrees.summarize_changes(worktrees.recorded_worktree(agent.record))
        )
    answered: frozenset[str] = frozenset()
    while True:
        settle = Completion() if work else None
        now = context.clock()
        decide = decide_end(run.id, ending, now_ms=now, resume_lost=resume_lost, answered=answered, settle=settle)
        try:
            await retry_transient(partial(context.unit.update, agent, decide, actor=actor, work=work))
        except RequestClosed as closed:
            # The request was answered meanwhile, so it must not be dismissed.
            answered |= {closed.request}
            continue
        await remove_run_files(context.home, agent.id, run.number)
        return


def decide_end(
    run: str,
    ending: RunEnd,
    *,
    now_ms: int,
    resume_lost: bool = False,
    answered: frozenset[str] = frozenset(),
    settle: Completion | None = None,
) -> Decide:
    """The decision that ends `run`. `answered` are requests that were closed meanwhile; `settle` completes its job."""
    text = store_text(ending.text)
    data = store_text("" if ending.data is None else json_text(ending.data))

    def decide(current: LoadedAgent) -> AgentDecision | None:
        agent = current.record.run
        if agent.id != run or not is_active(agent.state):
            return None
        body: dict[str, Any] = {
            "run": run,
            "reason": ending.reason[:200],
            "detail": sanitize_text(ending.detail)[:_MAX_DETAIL_LENGTH],
            "result": text.body,
            "usage": msgspec.to_builtins(ending.usage or agent.usage),
            "tool_calls": agent.tool_calls,
            "ms": elapsed_ms(agent, now_ms),
        }
        if ending.data is not None:
            body["data"] = data.body
        if ending.changes is not None:
            body["changes"] = ending.changes
        following = _draft_following_run(current, ending, resume_lost=resume_lost)
        return AgentDecision(
            None,
            events=(draft_event(END_EVENT_BY_STATE[ending.state], body, text.digests + data.digests), *following),
            blobs=text.blobs + data.blobs,
            requests=dismiss_all(agent.questions, by="host", but=answered),
            jobs=() if following else _callback_jobs(current, run, ending),
            settle=settle,
        )

    return decide


def _draft_following_run(current: LoadedAgent, ending: RunEnd, *, resume_lost: bool) -> tuple[NewEvent, ...]:
    is_cut_off = was_cut_off(ending.state, ending.reason)
    if (ending.state == "stopped" and not is_cut_off) or current.record.run.stop_by:
        return ()
    if is_cut_off and resume_lost and current.record.lost_in_a_row < MAX_CONSECUTIVE_RESUMES:
        return draft_next_run(current, resumes=current.record.run)
    return draft_next_run(current) if current.record.messages else ()


def _callback_jobs(current: LoadedAgent, run: str, ending: RunEnd) -> tuple[NewJob, ...]:
    """The callback to the parent, when no run follows. A parent that was stopped gets none."""
    if not current.record.callback or ending.reason == STOPPED_WITH_PARENT:
        return ()
    return (NewJob(kind=CALLBACK, session=current.id, payload={"run": run}, key=run),)


def elapsed_ms(run: RunRecord, now: int) -> int:
    return 0 if run.started_at is None else max(0, now - run.started_at)


class CheckedResult(msgspec.Struct, frozen=True):
    """A result with its data; `problem` says why the data is invalid, empty if it is valid."""

    finished: TurnResult
    problem: str = ""

    def to_run_end(self) -> RunEnd:
        if self.problem:
            return RunEnd(state="failed", reason=BAD_OUTPUT, detail=self.problem, text=self.finished.text)
        return RunEnd(state="succeeded", text=self.finished.text, data=self.finished.data)


async def check_result(blueprint: Blueprint, finished: TurnResult) -> CheckedResult:
    """Validate a result against the output schema. Raises `ExecutorFailure` if the check itself is impossible."""
    if blueprint.output_schema is None:
        return CheckedResult(finished)
    data = finished.data if finished.data is not None else extract_json(finished.text)
    try:
        await check_output(blueprint, data)
    except BadAgentInput as error:
        return CheckedResult(finished, error.sentence)
    except (BrokenBlueprint, UncheckedAgentInput) as error:
        raise ExecutorFailure(error.sentence, remedy=error.remedy, reason=BAD_OUTPUT, partial=finished.text) from error
    return CheckedResult(TurnResult(text=finished.text, data=data))


def render_reminder(blueprint: Blueprint, problem: str) -> str:
    schema = msgspec.json.encode(blueprint.output_schema).decode()
    return (
        f"Your result cannot be used: {problem}\n"
        f"Answer with the JSON value alone, without any other text. It has to fit this JSON Schema:\n{schema}"
    )


def extract_json(text: str) -> object:
    """The text parsed as JSON, or its last code block that is JSON; else the text itself."""
    for candidate in (text, *_OUTER_BLOCK.findall(text), *reversed(_BLOCK.findall(text))):
        with suppress(msgspec.DecodeError, RecursionError):
            return msgspec.json.decode(candidate)
    return text
