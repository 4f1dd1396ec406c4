"""The page over a ledger on PostgreSQL: every address opens, questions are answered, and an open page learns of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fidelio.app.application import Application, open_bundled
from fidelio.settings import load_settings
from tests.ledger.postgres.fixtures import postgres_database, postgres_server
from tests.support import proves
from tests.surfaces.web.conftest import Site, WaitingAgent, read_form_token
from tests.surfaces.web.test_effects import fill_path, list_routes, values
from tests.surfaces.web.test_every_page import fill, list_paths

__all__ = ["postgres_database", "postgres_server", "values"]


@pytest.fixture
async def application(tmp_path: Path, postgres_database: str) -> AsyncIterator[Application]:
    settings = load_settings(str(tmp_path / "home"), environ={"FIDELIO_LEDGER": postgres_database})
    assert settings.ledger == postgres_database
    settings.home.ensure()
    async with open_bundled(settings) as opened:
        yield opened


@proves("web.postgres")
async def test_every_address_opens_over_postgres(site: Site, agent: WaitingAgent, values: dict[str, str]) -> None:
    routes = [path for path in list_routes(site, "GET") if path != "/live"]
    async with site.visit() as client:
        for path in routes:
            assert (await client.get(fill_path(path, values))).status_code < 500, path


@proves("web.postgres")
async def test_every_page_shows_what_it_shows_of_a_file(site: Site, agent: WaitingAgent) -> None:
    paths = [path for path in list_paths(agent.session, await fill(site)) if path != "/nowhere"]
    async with site.visit() as client:
        for path in paths:
            assert (await client.get(path)).status_code == 200, path


@proves("web.postgres", "web.live")
async def test_an_open_page_learns_of_an_answer_over_postgres(site: Site, agent: WaitingAgent) -> None:
    async with site.visit() as client, asyncio.timeout(60):
        async with client.stream("GET", "/live?after=0") as stream:
            lines = stream.aiter_lines()
            before = await _read_position(lines)
            form = {"form_token": await read_form_token(client), "option": "brief"}
            answered = await client.post(f"/inbox/{agent.request}", data=form)
            after = await _read_position(lines)
        shown = await client.get(f"/sessions/{agent.session}")

    assert answered.status_code == 200
    assert after > before
    assert "brief" in shown.text


async def _read_position(lines: AsyncIterator[str]) -> int:
    async for line in lines:
        if line.startswith("data:"):
            return int(line.removeprefix("data:"))
    raise AssertionError("the stream has ended")
