"""Scenarios in which a person names a tool and the agent calls it: 26 tools of all families."""

from __future__ import annotations

from typing import Any

from fidelio.runtime import events as e
from fidelio.runtime.tools.definitions import DEFINITIONS
from tests.runtime.scenarios.acts import has_file, lacks_file, records, says, tell, update_index
from tests.runtime.scenarios.stage import AGENT, Scenario, Stage, StageCheck, StageReply, call, say

_NOTE = "/workspace/note.txt"
_WRITE = call("write", path="note.txt", content="red\nblue\n")
# A call with an effect has its span on record before the effect, and its result after it.
_EFFECT = (e.TOOL_USE, e.SPAN_STARTED, e.TOOL_RESULT, e.SPAN_COMPLETED, e.AGENT_MESSAGE, e.STATUS_IDLE)


def _row(
    tool: str, *expects: StageCheck, before: tuple[StageReply, ...] = (), by_name: bool = True, **arguments: Any
) -> Scenario:
    """The agent calls a tool by its name, or, where it is not declared, with `tool_call`."""
    called = call(tool, **arguments) if by_name else call("tool_call", name=tool, arguments=arguments)
    answer = f"I have called {tool}."
    return Scenario(
        id=f"call-{tool}",
        does=(tell(f"Call {tool}."),),
        model=(*before, called, say(answer)),
        expects=(says(answer), _is_documented(tool), records(*_EFFECT), *expects),
    )


def _is_documented(tool: str) -> StageCheck:
    """The last call is of the tool, worked, and its result has the documented fields."""

    async def check(stage: Stage) -> None:
        made = (await stage.calls())[-1]
        assert made.name in (tool, "tool_call")
        assert not made.is_error, made.output
        assert set(made.output) == set(DEFINITIONS[tool].output)

    return check


def _returns(**fields: Any) -> StageCheck:
    """The result of the last call has these values."""

    async def check(stage: Stage) -> None:
        output = (await stage.calls())[-1].output
        assert {name: output[name] for name in fields} == fields

    return check


def _puts_out(**fields: Any) -> StageCheck:
    """The result of the action of the last call has these values."""

    async def check(stage: Stage) -> None:
        output = (await stage.calls())[-1].output["output"]
        assert {name: output[name] for name in fields} == fields

    return check


async def _names_itself(stage: Stage) -> None:
    output = (await stage.calls())[-1].output
    assert [each["sessionId"] for each in output["sessions"]] == [stage.session]


async def _lists_the_message(stage: Stage) -> None:
    output = (await stage.calls())[-1].output
    (message,) = [event for event in output["events"] if event["type"] == e.USER_MESSAGE]
    (received,) = await stage.events(e.USER_MESSAGE)
    assert (message["id"], message["seq"]) == (received.id, received.seq)


async def _has_version(stage: Stage) -> None:
    (version,) = (await stage.calls())[-1].output["versions"]
    assert (version["targetPath"], version["sizeBytes"]) == ("SOUL.md", len(await stage.read_file("agent/SOUL.md") or ""))


async def _stores_no_value(stage: Stage) -> None:
    assert not [event for event in await stage.events() if "crimson" in (event.raw or "")]
    assert list((await stage.record()).shell.variables) == ["COLOUR"]


async def _asks_a_person(stage: Stage) -> None:
    output = (await stage.calls())[-1].output
    assert (output["requiresConfirmation"], output["permissionPolicy"]) == (True, "always_ask")
    assert output["readOnlyAlternative"]["tool"] == "read"


async def _names_what_asks(stage: Stage) -> None:
    asking = set((await stage.calls())[-1].output["alwaysAskTools"])
    assert {"shell_run", "shell_exec", "resources_promote_to_substrate", "resources_restore_version"} <= asking
    assert not {"read", "write", "edit"} & asking


async def _defines_an_outcome(stage: Stage) -> None:
    (outcome,) = (await stage.record()).outcomes.outcomes
    assert (outcome.title, outcome.author) == ("Note is there", "agent")


async def _finds_its_own_words(stage: Stage) -> None:
    hits = (await stage.calls())[-1].output["hits"]
    assert "xylophone" in hits[0]["snippet"]


async def _lists_bundled_skills(stage: Stage) -> None:
    skills = (await stage.calls())[-1].output["skills"]
    assert {skill["name"] for skill in skills} == {"change-shared-files", "remember-across-wakes"}


async def _begins_a_child(stage: Stage) -> None:
    child = (await stage.calls())[-1].output["childSession"]["sessionId"]
    assert await stage.messages(child) == ["Done."]
    assert (await stage.record(child)).depth == 1


async def _lists_schemas(stage: Stage) -> None:
    output = (await stage.calls())[-1].output
    assert {tool["name"] for tool in output["tools"]} == {tool.name for tool in DEFINITIONS.values() if tool.group == "skills"}


_SEARCH = Scenario(
    id="call-retrieval_search",
    does=(tell("Remember that the xylophone is in the cellar."), update_index, tell("Call retrieval_search.")),
    model=(
        call("memory_write", target="working_buffer", content="The xylophone is in the cellar."),
        say("I have."),
        call("retrieval_search", query="xylophone cellar", includeCurrent=True),
        say("It is in the cellar."),
    ),
    expects=(_is_documented("retrieval_search"), _finds_its_own_words, _returns(agentId=AGENT), says("It is in the cellar.")),
)
TOOL_CALLS = (
    _row("write", has_file(_NOTE, "red\n"), path="note.txt", content="red\n"),
    _row("read", _puts_out(content="red\nblue\n", totalLineCount=2), before=(_WRITE,), path="note.txt"),
    _row("edit", has_file(_NOTE, "red\ngreen\n"), before=(_WRITE,), path="note.txt", oldText="blue", newText="green"),
    _row("glob", _puts_out(entries=[{"path": _NOTE, "kind": "file"}]), before=(_WRITE,), path="/workspace", pattern="*.txt"),
    _row(
        "grep",
        _puts_out(matches=[{"path": _NOTE, "line": 2, "text": "blue"}]),
        before=(_WRITE,),
        path="/workspace",
        query="blue",
    ),
    _row("bash", _puts_out(stdout="2 note.txt\n", exitCode=0), before=(_WRITE,), command="wc", args=["-l", "note.txt"]),
    _row("sandbox_describe", _returns(kind="local"), by_name=False),
    _row("sandbox_execute", _puts_out(path="/workspace/box", created=True), name="mkdir", input={"path": "box"}),
    _row("shell_describe", _returns(cwd="/workspace", busyPlan=None)),
    _row("shell_set_cwd", _returns(cwd="/workspace/agent"), path="/workspace/agent"),
    _row("shell_set_env", _stores_no_value, _returns(env={"count": 1, "keys": ["COLOUR"]}), key="COLOUR", value="crimson"),
    _row("shell_open", _returns(reused=False, recoveryPlan=None)),
    _row("resources_list", records(e.TOOL_RESULT), by_name=False),
    _row(
        "resources_stage_from_substrate",
        _returns(targetPath="SOUL.md", reusedExisting=False, divergedFromSource=False),
        records(e.STAGED),
        sourcePath="SOUL.md",
    ),
    _row("resources_list_versions", _has_version, targetPath="SOUL.md"),
    _row("vault_list", _returns(count=0, vaults=[]), by_name=False),
    _row("permissions_check", _asks_a_person, toolName="shell_run", toolArgs={"command": f"cat {_NOTE}"}),
    _row("permissions_describe", _names_what_asks, by_name=False),
    _row("session_list", _names_itself),
    _row("session_get_events", _lists_the_message, by_name=False, limit=50),
    _row("outcome_define", _defines_an_outcome, lacks_file(_NOTE), title="Note is there", successCriteria=["There is a note."]),
    _row(
        "memory_write",
        _returns(content="A xylophone."),
        records(e.MEMORY_CHANGED),
        target="session_state",
        content="A xylophone.",
    ),
    _SEARCH,
    _row("skills_list", _lists_bundled_skills),
    _row("tools_open", _lists_schemas, group="skills"),
    _row("session_delegate", _begins_a_child, records(e.CHILD_CREATED), message="Say something."),
)
