"""Operations on webhooks: the addresses that new requests are sent to, a test delivery, and what became of the deliveries."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta
from msgspec.structs import asdict

from fidelio.app.webhooks.deliveries import DeliveryState, list_deliveries
from fidelio.app.webhooks.sending import DeliveryRefused, send_test
from fidelio.app.webhooks.settings import MAX_SECRET, MIN_SECRET, Webhook, Webhooks, describe_address
from fidelio.clock import format_iso, now_ms
from fidelio.errors import UsageProblem
from fidelio.surfaces.http.api.operations import (
    ApiCall,
    ApiOperation,
    CreatedReply,
    HttpProblem,
    Limit,
    Listed,
    NoQuery,
    list_items,
)
from fidelio.surfaces.views.records import Moment
from fidelio.surfaces.views.requests import AddedWebhook, RemovedWebhook, TestedWebhook, WebhookView, webhook_fields


class NewWebhook(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An address, and the secret that signs what is sent there."""

    url: Annotated[str, Meta(min_length=1, max_length=2_000)]
    secret: Annotated[str, Meta(min_length=MIN_SECRET, max_length=MAX_SECRET)]


class DeliveryView(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the delivery of a request to a webhook."""

    id: str
    webhook: str
    request: str
    state: DeliveryState
    time: Moment
    attempts: int
    status: int | None
    problem: str


class DeliveryQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many deliveries are listed."""

    limit: Limit = 20


def _open(call: ApiCall[Any, Any]) -> Webhooks:
    return Webhooks(call.services.application.settings.home)


def _find(call: ApiCall[Any, Any]) -> Webhook:
    try:
        return _open(call).find(call.path("webhook"))
    except UsageProblem as problem:
        raise HttpProblem(404, "api.unknown-webhook", problem.sentence, str(problem.remedy)) from problem


async def list_webhooks(call: ApiCall[NoQuery, None]) -> Listed[WebhookView]:
    return list_items(WebhookView(**webhook_fields(webhook)) for webhook in _open(call).list())


async def read_webhook(call: ApiCall[Any, Any]) -> WebhookView:
    return WebhookView(**webhook_fields(_find(call)))


async def add_webhook(call: ApiCall[NoQuery, NewWebhook]) -> CreatedReply:
    added = _open(call).add(call.body.url.strip(), call.body.secret, now=now_ms())
    view = AddedWebhook(**webhook_fields(added), remark=describe_address(added.url))
    return CreatedReply(view, {"location": f"/api/webhooks/{added.id}"})


async def remove_webhook(call: ApiCall[NoQuery, None]) -> RemovedWebhook:
    removed = _open(call).remove(_find(call).id)
    return RemovedWebhook(**webhook_fields(removed), removed=True)


async def test_webhook(call: ApiCall[NoQuery, None]) -> TestedWebhook:
    webhook = _find(call)
    try:
        status = await send_test(webhook, call.services.page_of(""), now=now_ms())
    except DeliveryRefused as refused:
        remedy = "See what the receiver says, and try again."
        raise HttpProblem(502, refused.code, refused.sentence, remedy) from refused
    return TestedWebhook(webhook.id, status)


async def read_deliveries(call: ApiCall[DeliveryQuery, None]) -> Listed[DeliveryView]:
    found = await list_deliveries(call.services.application, limit=call.query.limit)
    return list_items(DeliveryView(**{**asdict(delivery), "time": format_iso(delivery.time)}) for delivery in found)


_WEBHOOK = "/api/webhooks/{webhook}"
_GROUP = "Webhooks"
OPERATIONS = (
    ApiOperation(
        method="GET",
        path="/api/webhooks",
        name="listWebhooks",
        group=_GROUP,
        summary="List the webhooks, without their secrets.",
        handler=list_webhooks,
        result=Listed[WebhookView],
    ),
    ApiOperation(
        method="POST",
        path="/api/webhooks",
        name="addWebhook",
        group=_GROUP,
        summary="Send each new request of the inbox to an address of yours, signed with your secret.",
        handler=add_webhook,
        body=NewWebhook,
        result=AddedWebhook,
        status=201,
    ),
    ApiOperation(
        method="GET",
        path="/api/webhooks/deliveries",
        name="listDeliveries",
        group=_GROUP,
        summary="List what is due or has failed, then what was delivered, newest first.",
        handler=read_deliveries,
        query=DeliveryQuery,
        result=Listed[DeliveryView],
    ),
    ApiOperation(
        method="GET",
        path=_WEBHOOK,
        name="readWebhook",
        group=_GROUP,
        summary="Read a webhook, without its secret.",
        handler=read_webhook,
        result=WebhookView,
        failures=(404,),
    ),
    ApiOperation(
        method="DELETE",
        path=_WEBHOOK,
        name="removeWebhook",
        group=_GROUP,
        summary="Remove a webhook. What is due to it is no longer sent.",
        handler=remove_webhook,
        result=RemovedWebhook,
        current=read_webhook,
        failures=(404, 412),
    ),
    ApiOperation(
        method="POST",
        path=f"{_WEBHOOK}/test",
        name="testWebhook",
        group=_GROUP,
        summary="Send a test delivery now, and say what the receiver answers.",
        handler=test_webhook,
        result=TestedWebhook,
        current=read_webhook,
        failures=(404, 412, 502),
    ),
)
