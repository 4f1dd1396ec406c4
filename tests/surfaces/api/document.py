"""Checks responses of the API against its OpenAPI document, which thus cannot promise what the server does not do."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import httpx2
from openapi_schema_validator import OAS31Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from fidelio.surfaces.http.api.application import OPERATIONS
from fidelio.surfaces.http.api.document import PROBLEMS, build_document

PROBLEM, DOCUMENT = "application/problem+json", "urn:document"


@cache
def load_document() -> dict[str, Any]:
    return build_document(OPERATIONS)


def check_response(response: httpx2.Response) -> None:
    """Fail where status, media type, headers or body are not those of the document."""
    described = _find_response(response)
    media_type = response.headers.get("content-type", "").partition(";")[0]
    assert all(name in response.headers for name in described.get("headers", {})), response.headers
    if response.request.method == "HEAD" or response.status_code == 304:
        assert response.content == b""
        return
    assert list(described["content"]) == [media_type], (response.status_code, media_type)
    if "json" in media_type:
        check_value(response.json(), described["content"][media_type]["schema"])
    if media_type == PROBLEM and response.json()["code"].startswith("api."):
        assert PROBLEMS[response.json()["code"]][0] == response.status_code


def _find_response(response: httpx2.Response) -> dict[str, Any]:
    document, path = load_document(), response.request.url.path
    # A path without words in braces counts more.
    paths = sorted((each for each in document["paths"] if re.fullmatch(re.sub(r"{\w+}", "[^/]+", each), path)), key=_count)
    method = response.request.method.lower().replace("head", "get")
    if response.status_code in (401, 404, 405) and not (paths and method in document["paths"][paths[0]]):
        return {"content": {PROBLEM: {"schema": {"$ref": "#/components/schemas/ProblemDetails"}}}}
    found = document["paths"][paths[0]][method]["responses"][str(response.status_code)]
    if "$ref" in found:
        found = document["components"]["responses"][found["$ref"].rpartition("/")[2]]
    described: dict[str, Any] = found
    return described


def _count(path: str) -> int:
    return path.count("{")


def check_value(value: Any, schema: dict[str, Any]) -> None:
    """Fail where a value is not of a schema, or has a member that the schema does not name."""
    validator = OAS31Validator(_close(schema), registry=_load_registry(), format_checker=OAS31Validator.FORMAT_CHECKER)
    assert [f"{error.json_path}: {error.message}" for error in validator.iter_errors(value)] == []


@cache
def _load_registry() -> Registry[Any]:
    resource = Resource.from_contents(_close(load_document()), default_specification=DRAFT202012)
    registry: Registry[Any] = Registry().with_resource(DOCUMENT, resource)
    return registry


def _close(schema: Any) -> Any:
    """The schema with no other members than those that it names. Clients may take more; the server sends none."""
    if isinstance(schema, list):
        return [_close(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: _close(value) for name, value in schema.items()}
    if isinstance(schema.get("$ref"), str):
        closed["$ref"] = f"{DOCUMENT}{schema['$ref']}"
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
        closed["additionalProperties"] = False
    return closed
