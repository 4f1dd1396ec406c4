"""JSON of requests, and of the webhooks that they are sent to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from fidelio.app.asking import question_url
from fidelio.app.webhooks.settings import Webhook
from fidelio.clock import format_iso
from fidelio.ledger.model import Request, RequestState, Session
from fidelio.settings import Settings
from fidelio.surfaces.views.records import Moment

RequestKind: TypeAlias = Literal["checkpoint", "question", "permission", "tool_approval", "custom_tool"]


class InboxRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request: what waits, or waited, for a person."""

    id: str
    session: str
    kind: str
    key: str
    question: str
    options: tuple[dict[str, Any], ...]
    detail: dict[str, Any]
    state: RequestState
    answer: dict[str, Any]
    answered_by: str
    channel: str
    assurance: str
    opened_at: Moment
    closed_at: Moment | None


class InboxEntry(InboxRequest, frozen=True, kw_only=True):
    """A request with its session. `mismatch`: how it differs from its event, if it does; then it cannot be answered.

    `variables` are those of a workflow, only while it is open: later they may differ from those at the question.
    """

    session_name: str | None
    variables: dict[str, Any] | UnsetType = UNSET
    mismatch: str | UnsetType = UNSET


class AnsweredView(InboxRequest, frozen=True, kw_only=True):
    """A request after its answer. `repeated`: the same answer was recorded before."""

    repeated: bool


class WebhookView(msgspec.Struct, frozen=True, kw_only=True):
    """An address that new requests are sent to. Its secret is never shown."""

    id: str
    url: str
    created_at: Moment


class AddedWebhook(WebhookView, frozen=True, kw_only=True):
    """A webhook that was added. `remark`: what to know about its address."""

    remark: str


class RemovedWebhook(WebhookView, frozen=True, kw_only=True):
    """A webhook that was removed."""

    removed: bool


class TestedWebhook(msgspec.Struct, frozen=True):
    """A test delivery that was accepted, with the status of the receiver's reply."""

    webhook: str
    status: int


def request_fields(request: Request) -> dict[str, Any]:
    """The values of a `InboxRequest`."""
    return {
        "id": request.id,
        "session": request.session,
        "kind": request.kind,
        "key": request.key,
        "question": request.question,
        "options": request.options,
        "detail": request.detail,
        "state": request.state,
        "answer": request.answer,
        "answered_by": request.answered_by,
        "channel": request.channel,
        "assurance": request.assurance,
        "opened_at": format_iso(request.opened_at),
        "closed_at": None if request.closed_at is None else format_iso(request.closed_at),
    }


def view_entry(request: Request, session: Session | None, mismatch: str = "") -> InboxEntry:
    return InboxEntry(
        **request_fields(request),
        session_name=None if session is None else session.name,
        variables=list_variables(session) if request.state == "open" and session is not None else UNSET,
        mismatch=mismatch or UNSET,
    )


def describe_erased(request: Request, session: Session | None) -> str:
    """Why a request has no text, for people; empty if it has a text."""
    if request.question or request.options:
        return ""
    is_deleted = session is not None and session.status == "deleted"
    return "Its session was deleted, and its text with it." if is_deleted else "Its text was erased."


def view_answered(request: Request, *, repeated: bool) -> AnsweredView:
    return AnsweredView(**request_fields(request), repeated=repeated)


def list_variables(session: Session) -> dict[str, Any]:
    """The variables of a workflow session; none of another."""
    return dict(session.record.get("variables", {})) if session.kind == "workflow" else {}


def notification_json(settings: Settings, request: Request) -> Mapping[str, Any]:
    """What a webhook says about a request: the request, and the address of its page."""
    return {"url": question_url(settings, request.id), "request": msgspec.to_builtins(InboxRequest(**request_fields(request)))}


def webhook_fields(webhook: Webhook) -> dict[str, Any]:
    """The values of a `WebhookView`."""
    return {"id": webhook.id, "url": webhook.url, "created_at": format_iso(webhook.created_at)}
