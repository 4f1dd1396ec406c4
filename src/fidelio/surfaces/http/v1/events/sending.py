"""The events that clients send: their bodies, and what the runtime gets of them."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from fidelio.runtime.sending import MAX_SENT
from fidelio.surfaces.http.v1.endpoint import RELAYED, ApiRequest
from fidelio.surfaces.http.v1.errors import ApiProblem
from fidelio.surfaces.http.v1.events.types import to_call
from fidelio.surfaces.http.v1.files import load_file, open_files
from fidelio.surfaces.http.v1.ids import to_session

MAX_ITERATIONS = 20
MAX_RUBRIC = 40_000
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

    description: Annotated[str, Meta(min_length=1, max_length=4_000)]
    rubric: TextRubric | FileRubric
    max_iterations: Annotated[int, Meta(ge=1, le=MAX_ITERATIONS)] | None = None


InitialEvent: TypeAlias = UserMessage | DefineOutcome
SentEvent: TypeAlias = (
    UserMessage | SystemMessage | UserInterrupt | UserConfirmation | UserCustomResult | UserToolResult | DefineOutcome
)
# What an agent that has found the key may send.
_OF_AGENTS = (UserMessage, UserCustomResult, UserToolResult)
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


async def read_sent(request: ApiRequest, event: SentEvent) -> dict[str, Any]:
    """An event for the runtime: with ids of the ledger, and with the content of files that it names."""
    if isinstance(event, DefineOutcome):
        return await _read_outcome(request, event)
    sent: dict[str, Any] = {name: value for name, value in msgspec.to_builtins(event).items() if value is not None}
    for key in ("tool_use_id", "custom_tool_use_id"):
        if key in sent:
            sent[key] = to_call(sent[key])
    if thread := sent.pop("session_thread_id", None):
        sent["thread"] = to_session("sthr", thread)
    if isinstance(sent.get("content"), list):
        sent["content"] = [await _read_block(request, block) for block in sent["content"]]
    return sent


async def read_initial(request: ApiRequest, event: InitialEvent) -> dict[str, Any]:
    """An event that a session begins with."""
    return await read_sent(request, event)


async def _read_outcome(request: ApiRequest, event: DefineOutcome) -> dict[str, Any]:
    rubric = event.rubric
    text = rubric.content if isinstance(rubric, TextRubric) else await _read_text(request, rubric.file_id)
    if len(text) > MAX_RUBRIC:
        raise ApiProblem(f"rubric: the file has {len(text)} characters. Use up to {MAX_RUBRIC}.")
    iterations = {} if event.max_iterations is None else {"max_iterations": event.max_iterations}
    rubric_text = {"type": "text", "content": text}
    return {"type": "user.define_outcome", "description": event.description, "rubric": rubric_text, **iterations}


async def _read_text(request: ApiRequest, file_id: str) -> str:
    file = await load_file(request, file_id)
    try:
        return (await (await open_files(request)).read_whole(file)).decode()
    except UnicodeDecodeError as error:
        raise ApiProblem(f"rubric: the file {file_id} is no text in UTF-8.") from error


async def _read_block(request: ApiRequest, block: dict[str, Any]) -> dict[str, Any]:
    """A block with the content of the file that it names. What a block may be is checked by the runtime."""
    source = block.get("source")
    if not isinstance(source, dict) or source.get("type") != "file" or not isinstance(source.get("file_id"), str):
        return _read_plain(block)
    file = await load_file(request, source["file_id"])
    content = await (await open_files(request)).read_whole(file)
    if block.get("type") == "image":
        data = msgspec.to_builtins(content)
        return {"type": "image", "source": {"type": "base64", "media_type": file.content.mime_type, "data": data}}
    try:
        return _read_plain({**block, "source": {"type": "text", "media_type": "text/plain", "data": content.decode()}})
    except UnicodeDecodeError as error:
        message = f"content: the file {source['file_id']} is no text in UTF-8. Attach it to the session as a resource."
        raise ApiProblem(message) from error


def _read_plain(block: dict[str, Any]) -> dict[str, Any]:
    """A document of plain text is a text with its title. Other documents are not read here."""
    source = block.get("source")
    if block.get("type") != "document" or not isinstance(source, dict):
        return block
    if source.get("type") != "text" or not isinstance(source.get("data"), str):
        message = "content: only documents of plain text are read. Upload others as files and attach them to the session."
        raise ApiProblem(message)
    head = "\n".join(str(block[name]) for name in ("title", "context") if block.get(name))
    return {"type": "text", "text": f"{head}\n\n{source['data']}" if head else source["data"]}
