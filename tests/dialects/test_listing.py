"""The list of workflows: a line each, broken ones named apart, and encoded once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fidelio.definitions.library.library import LISTING_MAX_AGE
from fidelio.definitions.toon_writer import encode_toon
from fidelio.settings import Settings
from fidelio.surfaces.mcp.dialects.common import MAX_DESCRIPTION, shorten_description
from fidelio.surfaces.mcp.dialects.sessions import handlers
from tests.dialects.test_repeated_texts import _call, serving
from tests.support import proves

ALL = pytest.mark.parametrize("dialect", ["sessions", "gates", "navigator"])


async def list_workflows(settings: Settings, library: Path, dialect: str, *, times: int = 1) -> list[str]:
    async with serving(settings, library, dialect) as protocol:
        connection = protocol.connect()
        params = {"name": "list_workflows", "arguments": {}}
        for number in range(times):
            reply = await connection.answer({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})
        return [str(block["text"]) for block in reply["result"]["content"]]


@proves("dialects.list")
@ALL
async def test_a_workflow_whose_file_breaks_the_schema_is_named_and_not_offered(
    settings: Settings, library: Path, dialect: str
) -> None:
    manifest = library / "solo.yaml"
    manifest.write_text(manifest.read_text() + "tags: solo\n")
    listed, remark = await list_workflows(settings, library, dialect)

    assert "solo" not in listed
    assert "score" in listed
    assert remark.startswith("The workflow solo is broken and cannot be started: `tags` has to be a list")
    assert remark.endswith("`fidelio lint` shows file and line.")


@proves("dialects.list")
@ALL
async def test_a_description_is_a_line_of_its_first_sentence(settings: Settings, library: Path, dialect: str) -> None:
    manifest = library / "solo.yaml"
    manifest.write_text(manifest.read_text() + 'description: "One thing\\n  at a time. Then more."\n')
    (listed,) = await list_workflows(settings, library, dialect)

    assert "One thing at a time" in listed
    assert "Then more" not in listed


@proves("dialects.list")
def test_a_long_description_is_cut_at_a_word() -> None:
    short = shorten_description("word " * 60)

    assert len(short) <= MAX_DESCRIPTION + 1
    assert short.endswith("word…")


@proves("dialects.list-cost")
async def test_a_list_that_has_not_changed_is_encoded_once(
    settings: Settings, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded = list[Any]()

    def counting(value: Any) -> str:
        encoded.append(value)
        return encode_toon(value)

    monkeypatch.setattr(handlers, "encode_toon", counting)
    async with serving(settings, library) as protocol:
        connection = protocol.connect()
        texts = [(await _call(connection, number, "list_workflows", {})).text for number in range(3)]
        manifest = library / "solo.yaml"
        manifest.write_text(manifest.read_text().replace("A solo", "A duet"))
        await asyncio.sleep(LISTING_MAX_AGE)
        changed = (await _call(connection, 4, "list_workflows", {})).text

    assert len(set(texts)) == 1
    assert len(encoded) == 2
    assert "A duet" in changed
