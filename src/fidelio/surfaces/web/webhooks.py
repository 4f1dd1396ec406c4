"""The settings of webhooks: where new requests are sent, what became of the deliveries, and a test of an address.

Only a person changes them. A secret is stored and never shown again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fidelio.app.asking import question_url
from fidelio.app.webhooks.deliveries import list_deliveries
from fidelio.app.webhooks.sending import send_test
from fidelio.app.webhooks.settings import MAX_SECRET, MAX_WEBHOOKS, MIN_SECRET, Webhooks, describe_address
from fidelio.clock import now_ms
from fidelio.errors import FidelioError, UsageProblem
from fidelio.surfaces.web.pages import PageContent, PageRequest, PageRoute, Redirect, Result

MOST_DELIVERIES = 50


def _open(request: PageRequest) -> Webhooks:
    return Webhooks(request.services.application.settings.home)


async def _show(request: PageRequest) -> Result:
    return PageContent("webhooks.html", await _load(request))


async def _load(request: PageRequest, **more: Any) -> Mapping[str, Any]:
    """The values of the page. `more`: what a form has brought about."""
    known = _open(request).list()
    return {
        "webhooks": [(webhook, describe_address(webhook.url)) for webhook in known],
        "deliveries": await list_deliveries(request.services.application, limit=MOST_DELIVERIES),
        "addresses": {webhook.id: webhook.url for webhook in known},
        "can_add": len(known) < MAX_WEBHOOKS,
        "secret": {"least": MIN_SECRET, "most": MAX_SECRET},
        "example": question_url(request.services.application.settings, "r_..."),
        "notice": "",
        "problem": "",
        "url": "",
        **more,
    }


async def _change(request: PageRequest) -> Result:
    """Add, remove or test a webhook. What cannot be done is said above the form, which keeps its address."""
    await request.require_person()
    actions = {"add": _add, "remove": _remove, "test": _test}
    try:
        action = actions.get(request.fields.get("action", ""))
        if action is None:
            raise UsageProblem("The form names no action.", remedy="Load the page again.")
        return await action(request)
    except FidelioError as error:
        values = await _load(request, problem=f"{error.sentence} {error.remedy}".strip(), url=request.fields.get("url", ""))
        return PageContent("webhooks.html", values, 400)


async def _add(request: PageRequest) -> Result:
    _open(request).add(request.fields.get("url", "").strip(), request.fields.get("secret", "").strip(), now=now_ms())
    return Redirect("/webhooks")


async def _remove(request: PageRequest) -> Result:
    _open(request).remove(request.fields.get("webhook", ""))
    return Redirect("/webhooks")


async def _test(request: PageRequest) -> Result:
    webhook = _open(request).find(request.fields.get("webhook", ""))
    link = question_url(request.services.application.settings, "")
    status = await send_test(webhook, link, now=now_ms())
    notice = f"{webhook.url} accepted the test delivery with status {status}."
    return PageContent("webhooks.html", await _load(request, notice=notice))


ROUTES = (PageRoute(path="/webhooks", show=_show, change=_change),)
