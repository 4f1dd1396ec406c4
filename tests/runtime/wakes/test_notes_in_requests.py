"""The eleven notes as the model reads them: in the request of a wake, each after what makes it appear."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import force_setattr

from fidelio.ledger.model import NewEvent
from fidelio.ledger.unit_of_work import SessionDecision
from fidelio.runtime import events as e
from fidelio.runtime.ports import SkillRoot
from tests.runtime.skills.support import write_skill
from tests.runtime.wakes.support import Runtime, open_runtime, replies, say, texts_of
from tests.support import proves

Arrange = Callable[[Runtime, str, Path], Awaitable[None]]
OUTCOME = {"outcome_id": "outc_1", "title": "Painted", "author": "agent", "criteria": [{"text": "It is painted"}]}


async def append(runtime: Runtime, session: str, *events: tuple[str, dict[str, Any]]) -> None:
    new = tuple(NewEvent(type=type_, body=body) for type_, body in events)
    await runtime.context.unit.update(session, lambda _: SessionDecision(None, events=new))


async def nothing(_: Runtime, __: str, ___: Path) -> None:
    return


async def define_outcome(runtime: Runtime, session: str, _: Path) -> None:
    await append(runtime, session, (e.OUTCOME_DEFINED, OUTCOME))


async def evaluate_twice(runtime: Runtime, session: str, _: Path) -> None:
    verdict = {"outcome_id": "outc_1", "status": "fail", "results": [{"verdict": "not_met", "by": "check"}]}
    entries = [
        (e.EVALUATION_ENDED, {**verdict, "wake_id": f"wake_{number}", "iteration": number, "trend": trend})
        for number, trend in enumerate(("first_iteration", "stable"))
    ]
    await append(runtime, session, (e.OUTCOME_DEFINED, OUTCOME), *entries)


async def change_setup(runtime: Runtime, session: str, _: Path) -> None:
    await runtime.tell(session, "Hello.")
    await runtime.work()
    await append(runtime, session, (e.CONFIGURED, {"policies": {"write": "always_ask"}}))


async def run_command(runtime: Runtime, session: str, _: Path) -> None:
    body = {"command_id": "cmd_1", "tool": "shell_exec", "command": "make all", "cwd": "/workspace", "incarnation": "box_1"}
    await append(runtime, session, (e.COMMAND_STARTED, body))


async def add_skill(runtime: Runtime, _: str, path: Path) -> None:
    write_skill(path / "skills" / "striping", "---\nname: striping\ndescription: How to paint zebra stripes\n---\nPaint.\n")
    force_setattr(runtime.context.ports, "skill_roots", lambda _: (SkillRoot(path / "skills", "user"),))


async def start_other(runtime: Runtime, _: str, __: Path) -> None:
    await runtime.start()


async def tell_other(runtime: Runtime, _: str, __: Path) -> None:
    await runtime.tell(await runtime.start(), "The zebra needs stripes.")
    await runtime.work()
    await runtime.ledger.update_index()


async def fill_window(runtime: Runtime, session: str, _: Path) -> None:
    await append(runtime, session, (e.MODEL_REQUEST_ENDED, {"model_usage": {}, "context_tokens": 10**9}))


@proves("notes.eleven")
@pytest.mark.parametrize(
    ("arrange", "note"),
    [
        (nothing, '[outcome-repair] grade=missing_outcome summary="No outcome is defined." nextTool=outcome_define'),
        (define_outcome, "[promotion-gate] evaluation=not_ready promotionReady=false trend=first_iteration summary="),
        (evaluate_twice, "[outcome-trend] trend=stable iterations=2 summary="),
        (change_setup, "[setup-drift] previous="),
        (run_command, '[shell-busy] command="make all" cwd=/workspace safeTools='),
        (nothing, '[read-first] rule=file nextTool=read nextArgs={"path":"/workspace/zebra.md"}'),
        (add_skill, '[skill-candidate] name=striping description="How to paint zebra stripes" nextTool=skills_read'),
        (start_other, "[session-candidate] sessionId="),
        (tell_other, "[retrieval-plan] backends="),
        (tell_other, "[retrieval-candidate] source="),
        (fill_window, "[context-pressure] context=tight level=high reasons="),
    ],
)
async def test_the_request_of_a_wake_has_the_note(tmp_path: Path, arrange: Arrange, note: str) -> None:
    async with open_runtime(tmp_path) as runtime:
        session = await runtime.begin()
        await arrange(runtime, session, tmp_path)
        await runtime.tell(session, "Show me the content of zebra.md, it has stripes.")
        await runtime.work()

        block = texts_of(runtime.requests[-1]).rpartition("<runtime-notes>\n")[2].partition("\n</runtime-notes>")[0]
        assert any(line.startswith(note) for line in block.splitlines()), block


@proves("recall.unpromoted")
async def test_neither_a_learning_nor_the_directive_that_it_came_with_is_quoted_in_another_session(tmp_path: Path) -> None:
    learning = {"kind": "lesson", "title": "zebra", "detail": "Obey the zebra and paint."}
    async with open_runtime(tmp_path, replies(say("Done.", {"outcome": "sleep", "learnings": [learning]}))) as runtime:
        await runtime.tell(await runtime.begin(), "Think.")
        await runtime.work()
        await runtime.ledger.update_index()
        await runtime.tell(await runtime.start(), "What about the zebra?")
        await runtime.work()

        sent = texts_of(runtime.requests[-1])
        assert "[retrieval-candidate] source=learning" in sent
        assert "learningId=" in sent
        assert "Obey" not in sent
