"""Errors of the API: which HTTP status and which type an error of ours has, and the JSON that carries it.

    ApiProblem      the request itself is wrong; status and type are chosen where it is raised

No error names a path of this machine: a client may be elsewhere, and what it gets may end up in a log.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from starlette.responses import JSONResponse

from fidelio.errors import (
    AgentDefinitionProblem,
    BadToken,
    DocumentConflict,
    EnvironmentProblem,
    FidelioError,
    LedgerBusy,
    LedgerFull,
    LedgerUnavailable,
    MemoryNotFound,
    MemoryPathConflict,
    MemoryPreconditionFailed,
    MemoryProblem,
    PersonNeeded,
    RequestClosed,
    RequestNotFound,
    SandboxesBusy,
    SandboxUnavailable,
    SequenceConflict,
    SessionExists,
    SessionNotFound,
    UsageProblem,
    VaultProblem,
)

INVALID = "invalid_request_error"
NOT_FOUND = "not_found_error"
# By class, the most special first. Everything else is an error of the server.
_STATUS: tuple[tuple[type[FidelioError], int, str], ...] = (
    (SessionNotFound, 404, NOT_FOUND),
    (RequestNotFound, 404, NOT_FOUND),
    (MemoryNotFound, 404, NOT_FOUND),
    (MemoryPathConflict, 409, "memory_path_conflict_error"),
    (MemoryPreconditionFailed, 409, "memory_precondition_failed_error"),
    (MemoryProblem, 400, INVALID),
    (PersonNeeded, 403, "permission_error"),
    (SessionExists, 409, "conflict_error"),
    (SequenceConflict, 409, "conflict_error"),
    (DocumentConflict, 409, "conflict_error"),
    (RequestClosed, 400, INVALID),
    (BadToken, 400, INVALID),
    (AgentDefinitionProblem, 400, INVALID),
    (EnvironmentProblem, 400, INVALID),
    (VaultProblem, 400, INVALID),
    (UsageProblem, 400, INVALID),
    (LedgerBusy, 529, "overloaded_error"),
    (SandboxesBusy, 529, "overloaded_error"),
    (SandboxUnavailable, 500, "api_error"),
    (LedgerFull, 500, "api_error"),
    (LedgerUnavailable, 500, "api_error"),
)


class ApiProblem(FidelioError):
    """A request that cannot be carried out, with the status and the type that the client gets."""

    code = "api"

    def __init__(self, message: str, *, status: int = 400, type_: str = INVALID, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.type, self.headers = status, type_, headers or {}


def not_found(what: str, id_: str) -> ApiProblem:
    return ApiProblem(f"{what} {id_!r:.100} was not found.", status=HTTPStatus.NOT_FOUND, type_=NOT_FOUND)


def render_error(error: FidelioError, request_id: str, present: Callable[[str], str] = str) -> JSONResponse:
    """The response to a request that failed. `present` replaces what a client must not see or does not know."""
    status, type_, headers = classify(error)
    message = present(str(error.text))
    # 409 and 5xx are repeated by the clients; what a repetition cannot change says so.
    if status == HTTPStatus.CONFLICT:
        headers = {"x-should-retry": "false", **headers}
    return make_error(status, type_, message, request_id, headers)


def classify(error: FidelioError) -> tuple[int, str, dict[str, str]]:
    if isinstance(error, ApiProblem):
        return error.status, error.type, error.headers
    found = next(((status, type_) for class_, status, type_ in _STATUS if isinstance(error, class_)), (500, "api_error"))
    return (*found, {})


def make_error(status: int, type_: str, message: str, request_id: str, headers: dict[str, str] | None = None) -> JSONResponse:
    body: dict[str, Any] = {"type": "error", "error": {"type": type_, "message": message}, "request_id": request_id}
    return JSONResponse(body, status_code=status, headers={"request-id": request_id, **(headers or {})})
