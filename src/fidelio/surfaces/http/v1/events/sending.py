"""The events that clients send: their bodies, and what the runtime gets of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from fidelio.runtime.outcomes.parsing import MAX_DETAIL, MAX_ITERATIONS, MAX_RUBRIC
from fidelio.runtime.sending import MAX_SENT
from fidelio.runtime.uploads.files import StoredFile
from fidelio.runtime.uploads.sources import resolve_files
from fidelio.surfaces.http.v1.endpoint import RELAYED, ApiRequest
from fidelio.surfaces.http.v1.errors import ApiProblem
from fidelio.surfaces.http.v1.events.types import to_call
from fidelio.surfaces.http.v1.files import load_file, open_files
from fidelio.surfaces.http.v1.ids import to_session

Content: TypeAlias = str | list[dict[str, Any]]


class _Sent(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="type"):
    """An event that is sent."""


class UserMessage(_Sent, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="user.message"):
    """A message for the agent."""

    content: Content


class SystemMessage(_Sent, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="system.message"):
    """An instruction of the program, from the event before it on."""

    content: Content


class UserInterrupt(_Sent, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="user.interrupt"):
    """The end of the turn, of all threads or of a single thread."""

    session_thread_id: str | None = None


class UserConfirmation(_Sent, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="user.tool_confirmation"):
    """Whether a call may run."""

    tool_use_id: str
    result: Literal["allow", "deny"]
    deny_message: Annotated[str, Meta(max_length=20_000)] | None = None
    session_thread_id: str | None = None


class UserCustomResult(_Sent, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="user.custom_tool_result"):
    """The result of a tool of the client."""

    custom_tool_use_id: str
    content: Content | None = None
    is_error: bool | None = None
    session_thread_id: str | None = None


class UserToolResult(_Sent, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="user.tool_result"):
    """The result of a tool that the client carries out in an environment of its own."""

    tool_use_id: str
    content: Content | None = None
    is_error: bool | None = None
    session_thread_id: str | None = None


class TextRubric(_Sent, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="text"):
    """How to grade, as a text."""

    content: Annotated[str, Meta(min_length=1, max_length=MAX_RUBRIC)]


class FileRubric(_Sent, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="file"):
    """How to grade, in an uploaded file."""

    file_id: str


class DefineOutcome(_Sent, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="user.define_outcome"):
    """What must become true."""

    description: Annotated[str, Meta(min_length=1, max_length=MAX_DETAIL)]
    rubric: TextRubric | FileRubric
    max_iterations: Annotated[int, Meta(ge=1, le=MAX_ITERATIONS)] | None = None


InitialEvent: TypeAlias = UserMessage | DefineOutcome
SentEvent: TypeAlias = (
    UserMessage | SystemMessage | UserInterrupt | UserConfirmation | UserCustomResult | UserToolResult | DefineOutcome
)
# What an agent that has found the key may send. A result would be evidence that it has made up.
_OF_AGENTS = UserMessage
_BEFORE_SYSTEM = (UserMessage, UserCustomResult, UserToolResult)


class SentEvents(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a request that sends events."""

    events: Annotated[tuple[SentEvent, ...], Meta(min_length=1, max_length=MAX_SENT)]


def check_sent(events: tuple[SentEvent, ...], channel: str) -> None:
    """Refuse what the sender may not send, and system messages that follow no message. Raises 400 and 403."""
    for number, event in enumerate(events):
        if channel == RELAYED and not isinstance(event, _OF_AGENTS):
            message = f"events.{number}: only the holder of the key may send this, and the sender is an agent."
            raise ApiProblem(message, status=403, type_="permission_error")
        if isinstance(event, SystemMessage):
            is_last, before = number == len(events) - 1, events[number - 1] if number else None
            if not (is_last and isinstance(before, _BEFORE_SYSTEM)):
                message = "system.message has to be the last event, behind the message or the result that it goes with."
                raise ApiProblem(f"events.{number}: {message}")


async def read_sent(request: ApiRequest, events: Sequence[SentEvent]) -> list[dict[str, Any]]:
    """Events for the runtime: with ids of the ledger, and with the content of files that they name. Raises 400 and 404."""
    return await resolve_content(request, [_read(event) for event in events])


async def resolve_content(request: ApiRequest, events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Events with the content of the files that they name. Raises 400 and 404."""

    async def find(id_: str) -> StoredFile:
        return await load_file(request, id_)

    resolved = await resolve_files(await open_files(request), find, events)
    for event in resolved:
        if "rubric" in event and (size := len(event["rubric"]["content"])) > MAX_RUBRIC:
            raise ApiProblem(f"rubric: the file has {size} characters. Use up to {MAX_RUBRIC}.")
    return resolved


def _read(event: SentEvent) -> dict[str, Any]:
    sent = describe_event(event)
    for key in ("tool_use_id", "custom_tool_use_id"):
        if key in sent:
            sent[key] = to_call(sent[key])
    if thread := sent.pop("session_thread_id", None):
        sent["thread"] = to_session("sthr", thread)
    return sent


def describe_event(event: SentEvent) -> dict[str, Any]:
    """An event as it was sent, without the fields that it leaves out."""
    return {name: value for name, value in msgspec.to_builtins(event).items() if value is not None}
