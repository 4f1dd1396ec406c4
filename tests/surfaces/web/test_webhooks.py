"""The settings of webhooks on the page: added, tested and removed by a person, with the state of every delivery."""

from __future__ import annotations

from functools import partial

import httpx2
import pytest

from fidelio.app.webhooks.deliveries import list_deliveries
from fidelio.app.webhooks.sending import send_webhooks
from fidelio.app.webhooks.settings import Webhook, Webhooks
from fidelio.orchestrator.blueprints.servers import AGENT_HEADER
from fidelio.surfaces.views.requests import notification_json
from tests.support import proves
from tests.surfaces.test_webhooks import SECRET, receiving, until_first
from tests.surfaces.web.conftest import Site, read_form_token
from tests.surfaces.web.test_inbox import ask, open_session


async def change(client: httpx2.AsyncClient, **fields: str) -> httpx2.Response:
    return await client.post("/webhooks", data={"form_token": await read_form_token(client), **fields})


def known(site: Site) -> tuple[Webhook, ...]:
    return Webhooks(site.application.settings.home).list()


@proves("web.webhooks")
async def test_a_webhook_is_added_and_removed_and_its_secret_is_never_shown(site: Site) -> None:
    async with site.visit() as client:
        empty = await client.get("/webhooks")
        added = await change(client, action="add", url=" http://127.0.0.1:1/x ", secret=SECRET)
        (webhook,) = known(site)
        removed = await change(client, action="remove", webhook=webhook.id)

    assert "No webhooks" in empty.text
    assert (webhook.url, webhook.secret) == ("http://127.0.0.1:1/x", SECRET)
    assert "on this machine or in a private network" in added.text
    assert "It is not encrypted" in added.text
    # Every server with pages sends, and begins moments after the first webhook.
    assert "No process of this home sends" not in added.text
    assert SECRET not in added.text
    assert "No webhooks" in removed.text
    assert known(site) == ()


@proves("web.webhooks")
async def test_what_cannot_be_added_is_said_and_the_address_is_kept_but_not_the_secret(site: Site) -> None:
    async with site.visit() as client:
        short = await change(client, action="add", url="https://example.org/x", secret="too-short")
        wrong = await change(client, action="add", url="ftp://example.org", secret=SECRET)
        nothing = await change(client, action="what")
        unknown = await change(client, action="remove", webhook="wh_1")

    assert [each.status_code for each in (short, wrong, nothing, unknown)] == [400] * 4
    assert "The secret has 9 characters" in short.text
    assert 'value="https://example.org/x"' in short.text
    assert "too-short" not in short.text
    assert "is not an HTTP address" in wrong.text
    assert SECRET not in wrong.text
    assert "There is no webhook" in unknown.text
    assert known(site) == ()


@proves("web.webhooks", "web.person", "web.forms")
async def test_an_agent_and_another_page_change_no_webhook(site: Site) -> None:
    fields = {"action": "add", "url": "https://example.org/x", "secret": SECRET}
    async with site.visit() as client:
        token = await read_form_token(client)
        agent = await client.post("/webhooks", data={"form_token": token, **fields}, headers={AGENT_HEADER: "s_000000000000.1"})
        foreign = await client.post("/webhooks", data={"form_token": "x", **fields})

    assert "only a person may do this" in agent.text
    assert foreign.status_code == 403
    assert known(site) == ()


@proves("web.webhooks", "webhooks.states")
async def test_a_test_delivery_is_sent_at_once_and_its_result_is_said(site: Site) -> None:
    async with receiving(204, 500) as receiver, site.visit() as client:
        webhook = Webhooks(site.application.settings.home).add(receiver.url, SECRET, now=0)
        accepted = await change(client, action="test", webhook=webhook.id)
        refused = await change(client, action="test", webhook=webhook.id)
        _, body = await receiver.next()

    assert "accepted the test delivery with status 204" in accepted.text
    assert "answered 500" in refused.text
    assert body["type"] == "test"
    assert await list_deliveries(site.application) == ()


@proves("web.webhooks", "webhooks.states")
@pytest.mark.parametrize(("status", "state", "words"), [(204, "delivered", "status 204"), (500, "retrying", "answered 500")])
async def test_the_page_says_what_became_of_a_delivery(site: Site, status: int, state: str, words: str) -> None:
    settings = site.application.settings
    async with receiving(status) as receiver, send_webhooks(site.application, partial(notification_json, settings)):
        Webhooks(settings.home).add(receiver.url, SECRET, now=0)
        request = ask("x")
        await open_session(site, "one", request)
        await receiver.next()
        await until_first(site.application, state)
        async with site.visit() as client:
            page = (await client.get("/webhooks")).text

    assert f'<a href="/inbox/{request.id}">' in page
    assert words in page
    assert ("next try" in page) == (state == "retrying")
    assert "No process of this home sends now" not in page
