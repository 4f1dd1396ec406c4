"""Initial events of deployments: checked when they are stored, as if they were sent then."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta

from fidelio.runtime.outcomes.parsing import MAX_DETAIL, MAX_ITERATIONS, MAX_RUBRIC
from fidelio.runtime.uploads.files import StoredFile
from fidelio.runtime.uploads.sources import resolve_files
from fidelio.runtime.wakes.content import check_content
from fidelio.surfaces.http.v1.endpoint import ApiRequest
from fidelio.surfaces.http.v1.errors import ApiProblem
from fidelio.surfaces.http.v1.files import load_file, open_files

Content: TypeAlias = str | list[dict[str, Any]]


class _Event(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="type", omit_defaults=True):
    """An event that a session of a deployment begins with."""


class _UserMessage(_Event, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="user.message", omit_defaults=True):
    content: Content


class _SystemMessage(_Event, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="system.message", omit_defaults=True):
    content: Content


class _TextRubric(_Event, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="text", omit_defaults=True):
    content: Annotated[str, Meta(min_length=1, max_length=MAX_RUBRIC)]


class _FileRubric(_Event, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="file", omit_defaults=True):
    file_id: str


class _Outcome(_Event, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="user.define_outcome", omit_defaults=True):
    description: Annotated[str, Meta(min_length=1, max_length=MAX_DETAIL)]
    rubric: _TextRubric | _FileRubric
    max_iterations: Annotated[int, Meta(ge=1, le=MAX_ITERATIONS)] | None = None


async def check_initial_events(request: ApiRequest, raw: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    """The events in the form in which they are stored and shown. Raises 400 and 404 for what could not be sent."""
    return tuple([await _check(request, raw, number) for number in range(len(raw))])


async def _check(request: ApiRequest, raw: Sequence[dict[str, Any]], number: int) -> dict[str, Any]:
    where = f"initial_events.{number}"
    try:
        event = msgspec.convert(raw[number], _UserMessage | _SystemMessage | _Outcome)
    except msgspec.ValidationError as error:
        raise ApiProblem(f"{where}: {error}") from error
    if isinstance(event, _SystemMessage) and not (
        number and number == len(raw) - 1 and _type(raw[number - 1]) == "user.message"
    ):
        raise ApiProblem(f"{where}: system.message has to be the last event, behind the user.message that it goes with.")
    shown: dict[str, Any] = msgspec.to_builtins(event)
    if isinstance(shown.get("content"), str):
        shown["content"] = [{"type": "text", "text": shown["content"]}]

    async def find(id_: str) -> StoredFile:
        return await load_file(request, id_)

    resolved = await resolve_files(await open_files(request), find, shown)
    if "content" in resolved:
        blocks = check_content(resolved["content"], where)
        if isinstance(event, _SystemMessage) and any(block["type"] != "text" for block in blocks):
            raise ApiProblem(f"{where}: a system.message has only text.")
    elif len(resolved["rubric"]["content"]) > MAX_RUBRIC:
        raise ApiProblem(f"{where}.rubric: the file has more than {MAX_RUBRIC} characters.")
    return shown


def _type(event: dict[str, Any]) -> Any:
    return event.get("type")
