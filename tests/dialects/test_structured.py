"""Structured content: only with a schema that says what is in it, and only where it stays small."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest

from fidelio.app.application import Application
from fidelio.definitions.library import Library, Root
from fidelio.definitions.library.search_path import bundled_root
from fidelio.ledger import open_ledger
from fidelio.settings import Settings
from fidelio.surfaces.mcp.dialects import DIALECTS, load_tools
from tests.dialects.conftest import Player, ToolReply, playing
from tests.dialects.gates.test_walks import WithGates
from tests.dialects.navigator.test_all_workflows import Pair
from tests.dialects.test_all_workflows import Walker
from tests.support import proves
from tests.support.shared import advised_copy
from tests.surfaces.mcp.reply_checks import check_size

DOCUMENTS = {"get_trace", "list_workflows", "get_workflow", "get_activity", "get_skill", "get_skills", "get_resource"}


@proves("mcp.structured")
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_schema_says_what_is_always_there_and_documents_have_none(settings: Settings, dialect: str) -> None:
    described = load_tools(dialect, Application(settings)).table.describe()
    schemas = {tool["name"]: tool["outputSchema"] for tool in described if "outputSchema" in tool}

    assert schemas.keys().isdisjoint(DOCUMENTS)
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)
        assert not jsonschema.Draft202012Validator(schema).is_valid({})


@proves("mcp.structured")
@pytest.mark.parametrize("workflow", ["hello", "work-package"])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_whole_walk_keeps_to_the_schemas_and_stays_small(
    settings: Settings, tmp_path: Path, dialect: str, workflow: str
) -> None:
    """The player itself holds every reply to the schema of its tool."""
    root = Root(advised_copy(bundled_root().path, tmp_path), "all")
    seen = dict[str, ToolReply]()
    async with playing(settings, root.path, dialect=dialect) as play:

        async def call(tool: str, arguments: dict[str, Any]) -> ToolReply:
            seen[tool] = reply = await play(tool, **arguments)
            check_size(tool, reply.structured)
            return reply

        await walk(Player(call), settings, Library([root]), dialect, workflow)

    sent = {tool for tool, reply in seen.items() if reply.structured is not None}
    assert sent or dialect == "navigator"
    assert sent.isdisjoint(DOCUMENTS)


async def walk(play: Player, settings: Settings, library: Library, dialect: str, workflow: str) -> None:
    if dialect == "sessions":
        await Walker(play, settings, library, last=False).walk(workflow)
    elif dialect == "gates":
        await WithGates(play, settings, library, last=False).walk(workflow)
    else:
        async with await open_ledger(settings.home.ensure().ledger) as ledger:
            await Pair(play, ledger, library, "first").walk(workflow)
