"""Scenarios in which the agent quotes a line of one of its bootstrap files: 8 files, each in 4 ways."""

from __future__ import annotations

from collections.abc import Callable

from fidelio.providers.model import ModelReply
from fidelio.runtime import events as e
from fidelio.runtime.bootstrap.files import NAMES, render_text
from tests.runtime.scenarios.acts import records, says, tell
from tests.runtime.scenarios.stage import AGENT, Scenario, Stage, StageCheck, StageReply, StageTurn, call, say

_READING = (e.STATUS_RUNNING, e.TOOL_USE, e.TOOL_RESULT, e.AGENT_MESSAGE, e.STATUS_IDLE)


def _lines(name: str) -> list[str]:
    return render_text(name, AGENT).splitlines()


def _path(name: str) -> str:
    return f"/workspace/agent/{name}"


def _quote_prompt(name: str) -> StageReply:
    """Quote the first line of the file as the system text has it."""

    def reply(turn: StageTurn) -> ModelReply:
        system = turn.request.system
        return say(system[system.index(_lines(name)[0]) :].splitlines()[0])

    return reply


def _quote_result(line: int) -> StageReply:
    """Quote a line of the file that was just read."""
    return lambda turn: say(turn.last["output"]["content"].splitlines()[line])


def _quote_hit(turn: StageTurn) -> ModelReply:
    (hit,) = turn.last["output"]["matches"]
    return say(hit["text"])


def _shows_whole_file(name: str) -> StageCheck:
    """The system text of the request has the whole file, although no tool was called."""

    async def check(stage: Stage) -> None:
        (request,) = stage.own_requests
        assert render_text(name, AGENT).strip() in request.system
        assert await stage.calls() == []

    return check


def _reads_exactly(content: Callable[[str], str], name: str) -> StageCheck:
    """The next request has exactly this part of the file as the result of the call."""

    async def check(stage: Stage) -> None:
        (made,) = await stage.calls()
        assert StageTurn(stage, stage.own_requests[-1]).last == made.output
        assert made.output["output"]["content"] == content(name)

    return check


async def _finds_one_line(stage: Stage) -> None:
    (made,) = await stage.calls()
    assert len(made.output["output"]["matches"]) == 1
    assert made.output["output"]["truncated"] is False


def _from_prompt(name: str) -> Scenario:
    return Scenario(
        id=f"quote-{name}-from-the-prompt",
        does=(tell(f"Which title has {name}? Answer from what you know."),),
        model=(_quote_prompt(name),),
        expects=(says(_lines(name)[0]), _shows_whole_file(name)),
    )


def _from_file(name: str) -> Scenario:
    return Scenario(
        id=f"quote-{name}-from-the-file",
        does=(tell(f"Read {name} and quote its last line."),),
        model=(call("read", path=_path(name)), _quote_result(-1)),
        expects=(says(_lines(name)[-1]), _reads_exactly(lambda n: render_text(n, AGENT), name), records(*_READING)),
    )


def _from_window(name: str) -> Scenario:
    return Scenario(
        id=f"quote-{name}-from-a-window",
        does=(tell(f"Quote exactly line 2 of {name}."),),
        model=(call("read", path=_path(name), startLine=2, lineCount=1), _quote_result(0)),
        expects=(says(_lines(name)[1]), _reads_exactly(lambda n: f"{_lines(n)[1]}\n", name), records(*_READING)),
    )


def _from_search(name: str) -> Scenario:
    return Scenario(
        id=f"quote-{name}-from-a-search",
        does=(tell(f"Search your shared files for the title of {name}."),),
        model=(call("grep", path="/workspace/agent", query=f"^{_lines(name)[0]}$", regex=True), _quote_hit),
        expects=(says(_lines(name)[0]), _finds_one_line, records(*_READING)),
    )


QUOTES = tuple(make(name) for name in NAMES for make in (_from_prompt, _from_file, _from_window, _from_search))
