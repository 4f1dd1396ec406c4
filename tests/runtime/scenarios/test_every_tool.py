"""Every tool of the runtime, called by a scripted model in wakes: the fields of its result, its suggestions and its files."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fidelio.runtime.tools.definitions import DEFINITIONS, RUNTIME_TOOL_NAMES
from fidelio.toolkit import read_arguments
from tests.runtime.scenarios.stage import Stage, StageCallResult, open_sandboxes, open_stage, require_commands, say
from tests.runtime.scenarios.walk import SECRET, VAULT_SECRET, WALK
from tests.support import proves

# Fields that a result has in addition while a command runs.
_PLANS = frozenset({"busyPlan", "recoveryPlan", "nextStep"})
WHILE_RUNNING = {"shell_run": _PLANS, "shell_exec": _PLANS}


class Walked(msgspec.Struct):
    """The walk as it is on record."""

    calls: list[StageCallResult]
    directory: str
    unreadable: list[str]
    told: str


def find_dicts(value: Any) -> Iterator[dict[str, Any]]:
    """All objects in a result."""
    if isinstance(value, dict):
        yield value
        for inner in value.values():
            yield from find_dicts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from find_dicts(inner)


def find_paths(output: Mapping[str, Any]) -> set[str]:
    """The paths of files that a result names."""
    named = list(find_dicts(output))
    paths = {path for each in named for path in (each.get("artifactPaths") or {}).values()}
    single = {each[key] for each in named for key in each if key.endswith(("artifactPath", "ArtifactPath", "MarkdownPath"))}
    return {path for path in paths | single if path is not None}


def find_wrong_fields(made: StageCallResult) -> set[str]:
    """The fields that are not documented, and those that are missing."""
    found = set(made.output)
    if made.output.get("status") == "running":
        found -= WHILE_RUNNING.get(made.name, frozenset())
    return found ^ set(DEFINITIONS[made.name].output)


def find_suggestions(output: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The suggested calls. A command of the history has the same two keys, for its program and that program's arguments."""
    return [each for each in find_dicts(output) if {"tool", "args"} <= each.keys() and "commandId" not in each]


@pytest.fixture(scope="module")
async def walked(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Walked]:
    require_commands()
    directory = tmp_path_factory.mktemp("walk")
    async with open_sandboxes() as sandboxes, open_stage(directory, sandboxes, workers=1) as stage:
        yield await walk(stage, directory)


async def walk(stage: Stage, directory: Path) -> Walked:
    """Walk through all tools; a person allows what is asked for."""
    # So many turns in one conversation take more than the usual million tokens.
    await stage.define(limits={"tokens": 0})
    await stage.begin((say("The lighthouse has 12 lamps.", summary="Counted the lamps of the lighthouse."),))
    await stage.send({"type": "user.message", "content": "How many lamps has the lighthouse?"})
    await stage.settle()
    await stage.service.vaults.add("mail", VAULT_SECRET, by="person:anna")
    session = await stage.begin([reply for _, reply in WALK])
    await stage.service.vaults.attach(session, "mail", by="person:anna")
    await stage.send({"type": "user.message", "content": "Call every tool that you have, and find the lighthouse."})
    await stage.settle()
    while waiting := await stage.blocking():
        for each in waiting:
            await stage.send({"type": "user.tool_confirmation", "tool_use_id": each.id, "result": "allow"})
        await stage.settle()
    calls = await stage.calls()
    paths = sorted({path for made in calls for path in find_paths(made.output)})
    unreadable = [path for path in paths if await stage.read_file(path) is None]
    told = msgspec.json.encode(stage.own_requests[-1]).decode()
    return Walked(calls, str(directory), unreadable, told)


@proves("runtime.every-tool")
async def test_every_tool_is_called_and_works(walked: Walked) -> None:
    assert [made.name for made in walked.calls] == [name for name, _ in WALK]
    assert [made for made in walked.calls if made.is_error] == []
    assert {name for name, _ in WALK} - {"tools_open"} == RUNTIME_TOOL_NAMES


@proves("runtime.every-tool")
async def test_every_result_has_the_documented_fields(walked: Walked) -> None:
    wrong = [(made.name, sorted(found)) for made in walked.calls if (found := find_wrong_fields(made))]
    assert wrong == []


@proves("runtime.every-tool")
async def test_no_result_has_a_directory_of_the_host_or_a_secret(walked: Walked) -> None:
    for made in walked.calls:
        text = msgspec.json.encode(made.output).decode()
        assert [word for word in (walked.directory, SECRET, VAULT_SECRET) if word in text] == [], made.name
    assert [word for word in (walked.directory, SECRET, VAULT_SECRET) if word in walked.told] == []


@proves("runtime.every-tool")
async def test_every_suggested_call_is_valid_for_its_own_tool(walked: Walked) -> None:
    suggested = [each for made in walked.calls for each in find_suggestions(made.output)]
    for each in suggested:
        assert each["tool"] in RUNTIME_TOOL_NAMES
        read_arguments(each["tool"], DEFINITIONS[each["tool"]].parameters, each["args"])
    assert {"shell_wait", "outcome_evaluate", "session_run_child", "skills_read"} <= {each["tool"] for each in suggested}


@proves("runtime.every-tool")
async def test_every_file_that_a_result_names_can_be_read(walked: Walked) -> None:
    assert walked.unreadable == []
