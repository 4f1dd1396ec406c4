"""Credentials of MCP servers reach the server and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from fidelio.ledger.paging import all_pages
from fidelio.runtime import events as e
from fidelio.runtime.servers.credentials import MASK, Masks
from tests.runtime.servers.test_servers import describe_server, result_text, talk
from tests.runtime.wakes.support import Runtime, open_runtime, say, use
from tests.support import proves

SECRET = "tok-VERYPRIVATE-123"


async def begin(runtime: Runtime, value: str, mode: str, notes: Path, *, stored: str = f"{SECRET}\n") -> str:
    await runtime.service.vaults.add("github", stored, by="person:test")
    server = describe_server(mode, notes, env={"TOKEN": value})
    await runtime.define(tools={"mcp_servers": {"test": server}})
    return await runtime.start(vaults=("github",))


async def find_leaks(runtime: Runtime, session: str, secret: str) -> list[str]:
    """Where the secret can be read: events, documents, requests to the model."""
    events = [event.type for event in await runtime.events(session) if secret in (event.raw or "")]
    documents = [
        document.path
        async for document in all_pages(lambda **page: runtime.ledger.documents(f"runtime:{session}", **page))
        if secret in str(await runtime.ledger.document(document.space, document.path))
    ]
    requests = [request.model for request in runtime.requests if secret in str(request)]
    return [*events, *documents, *requests]


@proves("runtime.mcp-secrets")
async def test_a_value_of_a_vault_reaches_the_server_and_no_event_prompt_or_document(tmp_path: Path) -> None:
    async with open_runtime(tmp_path) as runtime:
        session = await begin(runtime, "vault:github", "leaks", tmp_path / "notes")
        await talk(runtime, session, use(("mcp__test__echo", {"text": "x"})), say("Done."))

        assert result_text(runtime.requests[1]) == f'{{"ok":true,"content":"token {MASK}"}}'
        assert await find_leaks(runtime, session, SECRET) == []
        assert MASK in next(tool.description for tool in runtime.requests[0].tools if tool.name == "mcp__test__echo")


@proves("runtime.mcp-secrets")
async def test_an_error_of_a_server_shows_no_secret(tmp_path: Path) -> None:
    async with open_runtime(tmp_path) as runtime:
        session = await begin(runtime, "vault:github", "dies", tmp_path / "notes")
        await talk(runtime, session, say("Done."))

        (error,) = await runtime.events(session, e.SESSION_ERROR)
        assert f"No licence for {MASK}." in error.body["error"]["message"]
        assert await find_leaks(runtime, session, SECRET) == []


@proves("runtime.mcp-secrets")
async def test_a_key_of_a_vault_with_several_values_is_used(tmp_path: Path) -> None:
    async with open_runtime(tmp_path) as runtime:
        stored = f'{{"token": "{SECRET}", "other": "x"}}'
        session = await begin(runtime, "vault:github/token", "leaks", tmp_path / "notes", stored=stored)
        await talk(runtime, session, use(("mcp__test__echo", {"text": "x"})), say("Done."))

        assert MASK in result_text(runtime.requests[1])
        assert await find_leaks(runtime, session, SECRET) == []


@proves("runtime.mcp-secrets")
@pytest.mark.parametrize(
    ("value", "stored", "said"),
    [
        ("vault:other", SECRET, "not attached to the vault 'other'"),
        ("vault:github/key", SECRET, "no key 'key'"),
        ("vault:github", f"{SECRET}\nsecond line", "characters that cannot be sent"),
    ],
)
async def test_a_value_that_cannot_be_used_is_an_error_without_the_value(
    tmp_path: Path, value: str, stored: str, said: str
) -> None:
    notes = tmp_path / "notes"
    async with open_runtime(tmp_path) as runtime:
        session = await begin(runtime, value, "plain", notes, stored=stored)
        await talk(runtime, session, say("Done."))

        (error,) = await runtime.events(session, e.SESSION_ERROR)
        assert said in error.body["error"]["message"]
        assert await find_leaks(runtime, session, SECRET) == []
        assert not notes.exists()


@proves("runtime.mcp-secrets")
async def test_a_session_without_the_vault_gets_no_value(tmp_path: Path) -> None:
    async with open_runtime(tmp_path) as runtime:
        await begin(runtime, "vault:github", "leaks", tmp_path / "notes")
        detached = await runtime.start()
        await talk(runtime, detached, say("Done."))

        (error,) = await runtime.events(detached, e.SESSION_ERROR)
        assert "not attached" in error.body["error"]["message"]
        assert not (tmp_path / "notes").exists()


@proves("runtime.mcp-secrets")
def test_the_longest_secret_is_masked_first() -> None:
    masks = Masks.of(["abcd", "abcdefgh", "x"])

    assert masks.apply("abcdefgh abcd x") == f"{MASK} {MASK} x"
