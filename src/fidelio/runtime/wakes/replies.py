"""Replies of the model as events. What a model sends is not trusted: its size, depth and number of calls are bounded here.

A value that the ledger cannot store would fail the commit, and the wake would be tried again and again, each time with a
request that has to be paid for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from fidelio.errors import UsageProblem
from fidelio.ids import new_id
from fidelio.ledger.encoding import hash_blob
from fidelio.ledger.long_text import sanitize_text, store_text
from fidelio.ledger.model import NewEvent
from fidelio.providers.model import ModelReply, TextBlock, ThinkingBlock, TokenUsage, ToolUseBlock
from fidelio.runtime import events as e
from fidelio.runtime.agent_toolset.definitions import AGENT_DEFINITIONS
from fidelio.runtime.permissions.policy import decide, find_policy, takes_command
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.tools.definitions import DEFINITIONS, TOOL_OF_ACTION
from fidelio.runtime.tools.meta import unwrap
from fidelio.runtime.tools.model import RuntimeContext, ToolDefinition, event
from fidelio.runtime.wakes.directive import OPENING, parse_reply
from fidelio.runtime.wakes.preparation import Prepared
from fidelio.runtime.wakes.record import WORKER
from fidelio.runtime.wakes.tool_inputs import store_input
from fidelio.sandbox.commands.projection import project
from fidelio.toolkit import read_arguments

MAX_CALLS = 100
MAX_DEPTH = 64
MAX_INPUT = 4_000_000
MAX_TEXT = 4_000_000
MAX_SIGNATURE = 500_000
MAX_TOKENS = 1_000_000_000
# Integers beyond this are read differently by different programs.
MAX_INTEGER = 2**53

ReplyBlock = TextBlock | ThinkingBlock | ToolUseBlock


class ReplyEvents(msgspec.Struct):
    """The events of a reply and the blobs that they refer to. `dropped` says what was left out, for the model."""

    events: list[NewEvent] = []
    blobs: list[bytes] = []
    dropped: list[str] = []


def bound_usage(usage: TokenUsage) -> TokenUsage:
    """What a vendor reports, within what can be counted."""
    bounded = {name: min(MAX_TOKENS, max(0, getattr(usage, name))) for name in TokenUsage.__struct_fields__}
    return TokenUsage(**bounded)


def describe_reply(context: RuntimeContext, session: str, wake: str, prepared: Prepared, reply: ModelReply) -> ReplyEvents:
    """The events of a reply, in its order."""
    found = ReplyEvents()
    has_calls, calls = bool(reply.tool_uses), 0
    for block in _merge_texts(reply):
        calls += isinstance(block, ToolUseBlock)
        if calls > MAX_CALLS:
            continue
        if isinstance(block, TextBlock):
            new, blobs = describe_message(block.text[:MAX_TEXT], wake)
        elif isinstance(block, ThinkingBlock):
            if len(block.signature) > MAX_SIGNATURE:
                continue
            new, blobs = _describe_thinking(block, wake)
        else:
            new, blobs = _describe_use(context, session, wake, prepared, check_input(block))
        found.events.append(new)
        found.blobs += blobs
    if calls > MAX_CALLS:
        found.dropped.append(f"A reply may call {MAX_CALLS} tools; {calls - MAX_CALLS} further calls were dropped.")
    if has_calls and OPENING in reply.text:
        found.dropped.append("The directive of a reply that also calls tools was ignored. End the last reply with it.")
    if reply.stop_reason == "max_tokens":
        found.dropped.append("A reply was cut off at the limit of output tokens.")
    return found


def note_permissions(
    reply: ReplyEvents, uses: Iterable[ToolUseBlock], prepared: Prepared, session: RuntimeRecord, now: int
) -> None:
    """Note with each call whether it may run, as its policy says now. A call that is refused for itself has no permission."""
    definitions = {**DEFINITIONS, **{name: tool[0] for name, tool in prepared.extra.items()}}
    calls = [index for index, new in enumerate(reply.events) if new.type in (e.TOOL_USE, e.CUSTOM_TOOL_USE)]
    for index, use in zip(calls, uses, strict=False):
        new = reply.events[index]
        definition = definitions.get(new.body.get("tool") or new.body["name"])
        if new.type == e.TOOL_USE and definition is not None and not use.problem and "permission" not in new.body:
            arguments = unwrap(use.name, use.input)[1]
            reply.events[index] = replace(new, body={**new.body, **_foresee(definition, arguments, session, now)})


def _foresee(definition: ToolDefinition, arguments: Mapping[str, Any], session: RuntimeRecord, now: int) -> dict[str, str]:
    action = str(arguments.get("name", "")) if definition.name == "sandbox_execute" else ""
    definition = DEFINITIONS.get(TOOL_OF_ACTION.get(action, ""), definition)
    command = str(arguments.get("command", "")) if takes_command(definition) else ""
    policy = find_policy(definition, session, action)
    is_read_only = policy == "auto" and bool(command) and project(command, session.shell.cwd) is not None
    access = decide(definition, session, command, is_read_only=is_read_only, now=now, action=action).access
    return {"permission": "ask" if access == "ask" else "allow", "policy": policy}


def name_first_message(reply: ReplyEvents, name: str) -> None:
    """Set the id of the first message of a reply to that under which its text was shown while it arrived."""
    for number, new in enumerate(reply.events):
        if new.type == e.AGENT_MESSAGE:
            reply.events[number] = replace(new, id=name)
            return


def describe_message(text: str, wake: str) -> tuple[NewEvent, tuple[bytes, ...]]:
    """The event of a message. A directive is stored apart from what the person reads, for the conversation.

    It is a blob whatever its size: what an agent says to the runtime is not found by a search.
    """
    parsed = parse_reply(text) if OPENING in text else None
    stored = store_text(parsed.message if parsed is not None else text)
    item = {"type": "text", "stored": stored.body} if stored.digests else {"type": "text", "text": stored.body["text"]}
    body: dict[str, Any] = {"content": [item], "wake_id": wake}
    if parsed is None or not parsed.raw:
        return event(e.AGENT_MESSAGE, body, blobs=stored.digests), stored.blobs
    raw = sanitize_text(parsed.raw).encode()
    digest = hash_blob(raw)
    body["directive"] = {"blob": digest, "size": len(parsed.raw)}
    return event(e.AGENT_MESSAGE, body, blobs=(*stored.digests, digest)), (*stored.blobs, raw)


def _describe_thinking(block: ThinkingBlock, wake: str) -> tuple[NewEvent, tuple[bytes, ...]]:
    text = store_text(block.text[:MAX_TEXT])
    body = {"text": text.body, "signature": sanitize_text(block.signature), "wake_id": wake}
    return event(e.AGENT_THINKING, body, blobs=text.digests), text.blobs


def _describe_use(
    context: RuntimeContext, session: str, wake: str, prepared: Prepared, use: ToolUseBlock
) -> tuple[NewEvent, tuple[bytes, ...]]:
    name = new_id("toolu_", 20)
    tool = unwrap(use.name, use.input)[0]
    stored = store_input(context, session, name, use, {*prepared.custom, *prepared.extra})
    body = {"id": name, "name": use.name, **stored.body, "wake_id": wake}
    if tool != use.name:
        body["tool"] = tool
    if use.problem:
        body["problem"] = sanitize_text(use.problem)[:300]
    if (extra := prepared.extra.get(tool)) is not None and extra[0].ownership != "managed":
        body["ownership"] = extra[0].ownership
    if extra is not None and tool in AGENT_DEFINITIONS:
        body["toolset"] = e.AGENT_TOOLSET
    if extra is not None and extra[1].is_elsewhere:
        body |= _describe_worker(prepared, extra[0], use)
    # A call with a problem is refused at once: the caller is not asked for it.
    is_custom = use.name in prepared.custom and not use.problem
    type_ = e.CUSTOM_TOOL_USE if is_custom else e.TOOL_USE
    return NewEvent(type=type_, body=body, actor="agent", id=name, blobs=stored.digests), stored.blobs


def _describe_worker(prepared: Prepared, tool: ToolDefinition, use: ToolUseBlock) -> dict[str, Any]:
    """Whether a worker of the user may carry out the call. A wrong input is refused by us, in words for the model."""
    try:
        read_arguments(tool.name, tool.parameters, use.input)
    except UsageProblem:
        return {"permission": "deny"}
    if use.problem:
        return {"permission": "deny"}
    return {"runs": WORKER, "permission": "allow" if tool.name in prepared.handed_over else "ask"}


def check_input(use: ToolUseBlock) -> ToolUseBlock:
    """The call as it can be stored. An input that cannot be is left out, and the call is refused with the reason."""
    named = replace(use, name=sanitize_text(use.name)[:200])
    problem = use.problem or _find_problem(use.input)
    return replace(named, input={}, problem=problem) if problem and not use.problem else named


def _find_problem(value: Any) -> str:
    size = 0
    for inner, depth in _walk(value):
        if depth > MAX_DEPTH:
            return f"it is nested more than {MAX_DEPTH} levels deep."
        if isinstance(inner, int) and not isinstance(inner, bool) and abs(inner) > MAX_INTEGER:
            return "it has an integer beyond 2^53."
        size += len(inner) if isinstance(inner, str) else 1
        if size > MAX_INPUT:
            return f"it has more than {MAX_INPUT:,} characters."
    return ""


def _walk(value: Any) -> Iterator[tuple[Any, int]]:
    """Every value with its depth, without recursion: the depth is what a hostile value would exhaust."""
    left = [(value, 0)]
    while left:
        current, depth = left.pop()
        yield current, depth
        if depth > MAX_DEPTH:
            continue
        if isinstance(current, dict):
            left += [(inner, depth + 1) for pair in current.items() for inner in pair]
        elif isinstance(current, list | tuple):
            left += [(inner, depth + 1) for inner in current]


def _merge_texts(reply: ModelReply) -> list[ReplyBlock]:
    """The blocks of a reply, neighbouring texts joined: each becomes an event. An empty reply is an empty text."""
    merged: list[ReplyBlock] = []
    for block in reply.content:
        last = merged[-1] if merged else None
        if isinstance(block, TextBlock) and isinstance(last, TextBlock):
            merged[-1] = TextBlock(last.text + block.text)
        elif not isinstance(block, TextBlock) or block.text:
            merged.append(block)
    return merged or [TextBlock("(The model sent an empty reply.)")]
