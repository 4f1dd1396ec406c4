"""Which HTTP status an error has, for the page and the API, and problem details (RFC 9457), the form of errors of the API."""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType
from starlette.responses import Response

from fidelio.errors import (
    AgentBusy,
    AgentSessionExists,
    AgentSessionNotFound,
    BadQuery,
    BadRecord,
    BlueprintNotFound,
    BrokenBlueprint,
    ChainBroken,
    ComponentNotFound,
    DefinitionUnavailable,
    ExecutorUnavailable,
    FidelioError,
    LedgerBusy,
    LedgerError,
    PersonNeeded,
    RequestClosed,
    RequestNotFound,
    SequenceConflict,
    SessionExists,
    SessionNotFound,
    UnreadableDefinition,
    UntrustedProject,
    WorkflowNotFound,
    WorkflowRefusal,
)

PROBLEM_TYPE = "application/problem+json"
# By class, the most special first. Everything else is about what the sender wants, and says what to do.
_STATUS: tuple[tuple[type[FidelioError], HTTPStatus], ...] = (
    (UntrustedProject, HTTPStatus.FORBIDDEN),
    (PersonNeeded, HTTPStatus.FORBIDDEN),
    (SessionNotFound, HTTPStatus.NOT_FOUND),
    (RequestNotFound, HTTPStatus.NOT_FOUND),
    (WorkflowNotFound, HTTPStatus.NOT_FOUND),
    (ComponentNotFound, HTTPStatus.NOT_FOUND),
    (DefinitionUnavailable, HTTPStatus.NOT_FOUND),
    (BlueprintNotFound, HTTPStatus.NOT_FOUND),
    (AgentSessionNotFound, HTTPStatus.NOT_FOUND),
    (RequestClosed, HTTPStatus.CONFLICT),
    (AgentBusy, HTTPStatus.CONFLICT),
    (AgentSessionExists, HTTPStatus.CONFLICT),
    (SessionExists, HTTPStatus.CONFLICT),
    (SequenceConflict, HTTPStatus.CONFLICT),
    (BrokenBlueprint, HTTPStatus.CONFLICT),
    (ExecutorUnavailable, HTTPStatus.CONFLICT),
    (UnreadableDefinition, HTTPStatus.CONFLICT),
    (WorkflowRefusal, HTTPStatus.CONFLICT),
    (ChainBroken, HTTPStatus.CONFLICT),
    (BadQuery, HTTPStatus.BAD_REQUEST),
    # A cursor of another list, or a value that nobody can store: both came from the sender.
    (BadRecord, HTTPStatus.BAD_REQUEST),
    (LedgerBusy, HTTPStatus.SERVICE_UNAVAILABLE),
    (LedgerError, HTTPStatus.INTERNAL_SERVER_ERROR),
)
_WHERE = re.compile(r" - at `(?:key in )?\$([^`]*)`$")


def find_status(error: FidelioError) -> HTTPStatus:
    """The status of an error."""
    return next((status for class_, status in _STATUS if isinstance(error, class_)), HTTPStatus.BAD_REQUEST)


# Versions of Python call these two differently.
_NAMES = {413: "Content Too Large", 422: "Unprocessable Content"}


def name_status(status: int) -> str:
    """The name of a status, as RFC 9110 has it."""
    return _NAMES.get(status) or HTTPStatus(status).phrase


class FieldProblem(msgspec.Struct, frozen=True):
    """What is wrong with a field of the body or a parameter of the query."""

    field: str
    detail: str


class RecordedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Who was faster: the answer that a closed request has, and how it came."""

    state: str
    answer: dict[str, Any]
    answered_by: str
    channel: str
    assurance: str
    closed_at: str | None


class ProblemDetails(msgspec.Struct, frozen=True, kw_only=True):
    """An error of the API (RFC 9457). `code` is stable, `detail` says what is wrong, `remedy` what to do.

    `errors` are the fields that are wrong, `recorded` the answer that counts, `url` the page where a person can answer.
    """

    type: str
    title: str
    status: int
    detail: str
    code: str
    remedy: str = ""
    errors: tuple[FieldProblem, ...] | UnsetType = UNSET
    recorded: RecordedAnswer | UnsetType = UNSET
    url: str | UnsetType = UNSET


def make_problem(
    status: int, code: str, detail: str, remedy: str = "", *, headers: Mapping[str, str] | None = None, **more: Any
) -> Response:
    """The response of a request that failed. `more`: further members of `ProblemDetails`."""
    body = ProblemDetails(
        type=f"/api/openapi.json#/x-problems/{code}",
        title=name_status(status),
        status=status,
        detail=detail,
        code=code,
        remedy=remedy,
        **more,
    )
    # No proxy or browser keeps an error.
    all_headers = {"cache-control": "no-store", **(headers or {})}
    return Response(msgspec.json.encode(body), status_code=status, headers=all_headers, media_type=PROBLEM_TYPE)


def locate_field(message: str) -> FieldProblem:
    """The field that a message of the decoder is about, such as `tools.0.name`, and the rest of the message."""
    found = _WHERE.search(message)
    if found is None:
        return FieldProblem("", message)
    field = found[1].lstrip(".").replace("[", ".").replace("]", "").lstrip(".")
    return FieldProblem(field, message[: found.start()])
