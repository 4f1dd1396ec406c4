"""The OpenAPI document of the API, built from the table of operations and the structs of their bodies and results."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import msgspec
from msgspec.structs import FieldInfo, fields

from fidelio.surfaces.http.api.operations import ApiOperation
from fidelio.surfaces.http.problems import PROBLEM_TYPE, ProblemDetails, name_status

API_VERSION = "1"
_REFERENCE = "#/components/schemas/{name}"
_PATH_NAME = re.compile(r"{(\w+)}")
_LISTED = "Listed_"
_ABOUT = """People's own scripts use this API: it shows and does what the web page and the command line show and do.

Send the token of the server as `Authorization: Bearer TOKEN` or `x-api-key: TOKEN`. Every list has `items` and `next`: pass
`next` as `after` until it is null. Errors are problem details (RFC 9457) with a stable `code` and a `remedy`. A GET has a
strong `ETag`: with `If-None-Match` the answer is 304 while nothing has changed, and with `If-Match` a change is refused with
412 if the object has changed since it was read. HEAD is offered wherever GET has an ETag. Agents that Fidelio
has started may read and change nothing."""
# What the requests of every operation can fail with, and those of every change.
_USUAL, _OF_CHANGES = (400, 401, 403, 405, 421, 429, 500, 503), (413,)
_OF_BODIES = (415, 422)
# The problems that only this API has, with what they mean. Other codes are those of the errors of the command line.
PROBLEMS: Mapping[str, tuple[int, str]] = {
    "api.agent": (
        403,
        "An agent sent a change, or the program of the sender could not be told from one.",
    ),
    "api.body": (400, "The body is not valid JSON, or the operation takes none."),
    "api.busy": (503, "Too many large requests are in progress."),
    "api.changed": (412, "The object has changed since it was read; the header ETag is that of its present state."),
    "api.field": (422, "Fields of the body are unknown or wrong; `errors` names each."),
    "api.host": (421, "The server does not serve this Host."),
    "api.internal": (500, "The log of the server has the cause."),
    "api.kind": (409, "Sessions of this kind do not take this change."),
    "api.last-event-id": (400, "The header Last-Event-ID is no id of a stream."),
    "api.media-type": (415, "The body is not declared as JSON."),
    "api.method": (405, "The path does not offer this method; the header Allow lists those that it does."),
    "api.origin": (403, "A page of another origin sent the request."),
    "api.parameter": (400, "Parameters of the query are unknown, repeated or wrong; `errors` names each."),
    "api.precondition": (400, "If-Match was sent to an operation that changes no object with an entity tag."),
    "api.rate": (429, "Too many requests; the header Retry-After says when to try again."),
    "api.streams": (503, "Too many pages and streams are open."),
    "api.token": (401, "The token of the server is missing or wrong."),
    "api.too-large": (413, "The body is too large."),
    "api.unknown-event": (404, "The session has no event with this number."),
    "api.unknown-path": (404, "There is nothing at this path."),
    "api.unknown-webhook": (404, "There is no such webhook."),
}


def build_document(operations: Sequence[ApiOperation]) -> dict[str, Any]:
    """The document. The same table gives the same document, so that a stored copy can be compared."""
    types = [type_ for operation in operations for type_ in _list_types(operation)]
    schemas, components = msgspec.json.schema_components([*types, ProblemDetails], ref_template=_REFERENCE)
    found = iter(schemas)
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        own = [next(found) for _ in _list_types(operation)]
        paths.setdefault(operation.path, {})[operation.method.lower()] = _describe(operation, own, components)
    document = {
        "openapi": "3.1.0",
        "info": {"title": "Fidelio", "version": API_VERSION, "description": _ABOUT},
        "security": [{"bearer": []}, {"key": []}],
        "tags": [{"name": group} for group in dict.fromkeys(operation.group for operation in operations)],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(components.items())),
            "responses": _describe_failures(operations),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
        "x-problems": {code: {"status": status, "description": text} for code, (status, text) in PROBLEMS.items()},
    }
    return _rename_lists(document, [name for name in components if name.startswith(_LISTED)])


def _rename_lists(document: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The document with `InboxEntryList` and not `Listed_InboxEntry_`, which is how generics are named."""
    text = msgspec.json.encode(document).decode()
    for name in names:
        text = text.replace(f'{name}"', f'{name.removeprefix(_LISTED).removesuffix("_")}List"')
    renamed: dict[str, Any] = msgspec.json.decode(text)
    return renamed


def _list_types(operation: ApiOperation) -> list[Any]:
    """The types of an operation that have schemas: body, result, and the struct of its parameters."""
    body = [] if operation.body is None else [operation.body]
    result = [] if isinstance(operation.result, str) else [operation.result]
    return [*body, *result, *(field.type for field in fields(operation.query))]


def _describe(operation: ApiOperation, schemas: Sequence[Any], components: Mapping[str, Any]) -> dict[str, Any]:
    rest = list(schemas)
    body = None if operation.body is None else rest.pop(0)
    result = {"type": "string"} if isinstance(operation.result, str) else rest.pop(0)
    described = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.group],
        "parameters": [
            *_describe_path(operation),
            *map(_describe_parameter, fields(operation.query), rest),
            *_describe_headers(operation),
        ],
        "responses": _describe_responses(operation, result),
    }
    if body is not None:
        content = {"application/json": {"schema": body}}
        described["requestBody"] = {"required": bool(_resolve(body, components).get("required")), "content": content}
    return described


def _resolve(schema: Mapping[str, Any], components: Mapping[str, Any]) -> Mapping[str, Any]:
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    found: Mapping[str, Any] = components.get(name, schema)
    return found


def _describe_path(operation: ApiOperation) -> list[dict[str, Any]]:
    names = _PATH_NAME.findall(operation.path)
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]


def _describe_parameter(field: FieldInfo, schema: Mapping[str, Any]) -> dict[str, Any]:
    # A parameter that may be left out has null as its default; null itself cannot be sent.
    choices = [choice for choice in schema.get("anyOf", ()) if choice != {"type": "null"}]
    described = dict(choices[0] if len(choices) == 1 else schema)
    text = described.pop("description", "")
    if not field.required and field.default is not None and field.default is not msgspec.NODEFAULT:
        described["default"] = msgspec.to_builtins(field.default)
    return {
        "name": field.encode_name,
        "in": "query",
        "required": field.required,
        "schema": described,
        **({"description": text} if text else {}),
    }


def _describe_headers(operation: ApiOperation) -> list[dict[str, Any]]:
    if operation.has_etag:
        names = {"If-None-Match": "The ETag of what you have: the answer is 304 if it is still the same."}
    elif operation.current is not None:
        names = {"If-Match": "The ETag of what you have read: the answer is 412 if it has changed since."}
    elif not operation.is_change:
        names = {"Last-Event-ID": "The id of the last event that you got: the stream goes on after it."}
    else:
        names = {}
    text = {"type": "string"}
    return [{"name": name, "in": "header", "schema": text, "description": about} for name, about in names.items()]


def _describe_responses(operation: ApiOperation, result: Mapping[str, Any]) -> dict[str, Any]:
    text = {"schema": {"type": "string"}}
    done: dict[str, Any] = {
        "description": name_status(operation.status),
        "content": {operation.media_type: {"schema": result}},
        **({"headers": {"ETag": text}} if operation.has_etag else {}),
        **({"headers": {"Location": text}} if operation.status == HTTPStatus.CREATED else {}),
    }
    unchanged = {"304": {"description": "It has not changed.", "headers": {"ETag": text}}} if operation.has_etag else {}
    failures = {str(status): {"$ref": f"#/components/responses/{_name(status)}"} for status in _list_failures(operation)}
    return {str(operation.status): done, **unchanged, **failures}


def _name(status: int) -> str:
    """The name of the response of a failure, such as `NotFound`."""
    return "".join(filter(str.isalnum, name_status(status).title()))


def _describe_failures(operations: Sequence[ApiOperation]) -> dict[str, Any]:
    """The responses of failures, which all operations share."""
    problem = {PROBLEM_TYPE: {"schema": {"$ref": _REFERENCE.format(name="ProblemDetails")}}}
    statuses = sorted({status for operation in operations for status in _list_failures(operation)})
    return {_name(status): {"description": name_status(status), "content": problem} for status in statuses}


def _list_failures(operation: ApiOperation) -> list[int]:
    of_body = _OF_BODIES if operation.body is not None else ()
    return sorted({*_USUAL, *(_OF_CHANGES if operation.is_change else ()), *of_body, *operation.failures})
