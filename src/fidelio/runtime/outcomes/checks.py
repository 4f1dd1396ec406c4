"""The checks that a criterion can carry: their fields and limits. Pure; `checking` carries them out.

A check is stored as the mapping that its author wrote. It is read again when it is carried out, so that a check which no longer
fits decides nothing instead of something else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta

from fidelio.errors import UsageProblem
from fidelio.sandbox.inside.failures import Failure
from fidelio.sandbox.inside.globbing import GlobPattern
from fidelio.sandbox.model import WORKSPACE
from fidelio.validation import find_pattern_problem, find_schema_problem

MAX_TIMEOUT_MS = 60_000
MAX_LINES = 1_000
MAX_CHECK_BYTES = 16_384

_Path = Annotated[str, Meta(min_length=1, max_length=1_000)]
_Name = Annotated[str, Meta(max_length=200)]


class CheckFields(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="type", rename="camel"):
    """Base of the checks: a misspelt field is refused and not ignored."""


class CommandCheck(CheckFields, frozen=True, kw_only=True, tag="command"):
    """A command that ends with an exit status."""

    command: Annotated[str, Meta(min_length=1, max_length=10_000)]
    expect_exit: Annotated[int, Meta(ge=0, le=255)] = 0
    timeout_ms: Annotated[int, Meta(ge=1, le=MAX_TIMEOUT_MS)] = 30_000


class FileExistsCheck(CheckFields, frozen=True, kw_only=True, tag="file_exists"):
    """A file or directory of the workspace."""

    path: _Path


class FileMatchesCheck(CheckFields, frozen=True, kw_only=True, tag="file_matches"):
    """A file of which at least `min` and at most `max` lines match a regular expression."""

    path: _Path
    pattern: Annotated[str, Meta(min_length=1, max_length=2_000)]
    min: Annotated[int, Meta(ge=0, le=MAX_LINES)] = 1
    max: Annotated[int, Meta(ge=0, le=MAX_LINES)] | None = None


class JsonSchemaCheck(CheckFields, frozen=True, kw_only=True, tag="json_schema"):
    """A JSON file that is valid against a schema."""

    path: _Path
    schema: dict[str, Any]


class DiffPathsCheck(CheckFields, frozen=True, kw_only=True, tag="diff_paths"):
    """The copy of the project differs only in paths that match a pattern."""

    paths: Annotated[tuple[Annotated[str, Meta(min_length=1, max_length=500)], ...], Meta(min_length=1, max_length=50)]


class WorkflowActivityCheck(CheckFields, frozen=True, kw_only=True, tag="workflow_activity"):
    """A workflow or an activity of it that is completed."""

    workflow: _Name = ""
    session: _Name = ""
    activity: _Name = ""


Check: TypeAlias = CommandCheck | FileExistsCheck | FileMatchesCheck | JsonSchemaCheck | DiffPathsCheck | WorkflowActivityCheck
TYPES = ("command", "file_exists", "file_matches", "json_schema", "diff_paths", "workflow_activity")


def read_check(data: Mapping[str, Any], where: str) -> Check:
    """Read a check. Raises `UsageProblem` with the field that is wrong."""
    try:
        check: Check = msgspec.convert(dict(data), Check)
        if len(msgspec.json.encode(data)) > MAX_CHECK_BYTES:
            raise _refuse(where, f"it has more than {MAX_CHECK_BYTES} bytes")
    except msgspec.ValidationError as error:
        raise _refuse(where, str(error)) from error
    _validate(check, where)
    return check


def _refuse(where: str, problem: str) -> UsageProblem:
    return UsageProblem(f"The check of {where} cannot be used: {problem}.", remedy=f"Its type is one of: {', '.join(TYPES)}.")


def _validate(check: Check, where: str) -> None:
    """What the types of the fields do not say."""
    match check:
        case FileExistsCheck(path=path) | FileMatchesCheck(path=path) | JsonSchemaCheck(path=path):
            _validate_path(path, where)
        case DiffPathsCheck(paths=paths):
            for pattern in paths:
                _validate_glob(pattern, where)
        case WorkflowActivityCheck(workflow="", session=""):
            raise _refuse(where, "workflow or session is missing")
        case _:
            pass
    if isinstance(check, FileMatchesCheck):
        _validate_match(check, where)


def _validate_path(path: str, where: str) -> None:
    if find_workspace_path(path) is None:
        raise _refuse(where, f"{path!r:.200} is not a path below {WORKSPACE}, or contains '..'")


def find_workspace_path(path: str) -> str | None:
    """The absolute path of an entry of the workspace; None for any other. The sandbox decides what it leads to."""
    if path.startswith("/") and not path.startswith(f"{WORKSPACE}/"):
        return None
    names = [name for name in path.removeprefix(f"{WORKSPACE}/").split("/") if name not in ("", ".")]
    return f"{WORKSPACE}/{'/'.join(names)}" if names and ".." not in names and path.isprintable() else None


def _validate_glob(pattern: str, where: str) -> None:
    try:
        GlobPattern(pattern, hidden=True)
    except Failure as failure:
        raise _refuse(where, failure.message.rstrip(".")) from failure


def _validate_match(check: FileMatchesCheck, where: str) -> None:
    if "\n" in check.pattern:
        raise _refuse(where, "pattern has a line break, but lines are matched one by one")
    if check.max is not None and check.max < check.min:
        raise _refuse(where, f"max ({check.max}) is less than min ({check.min})")


async def validate_rules(checks: Iterable[Mapping[str, Any]]) -> None:
    """Raise `UsageProblem` for a regular expression or a schema that cannot be used. Both are checked under limits."""
    for number, data in enumerate(checks, 1):
        if not data:
            continue
        check = read_check(data, f"criterion {number}")
        if problem := await asyncio.to_thread(_find_problem, check):
            raise _refuse(f"criterion {number}", problem.rstrip("."))


def _find_problem(check: Check) -> str:
    match check:
        case FileMatchesCheck(pattern=pattern):
            return find_pattern_problem((pattern,))
        case JsonSchemaCheck(schema=schema):
            return find_schema_problem(schema)
        case _:
            return ""
