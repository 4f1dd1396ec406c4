"""A request as pages show it: where it came up, exactly what it would allow, and what the agent said last.

The texts come from the stored request. A request that differs from its event shows none of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from msgspec.structs import replace

from fidelio.app.records import Records
from fidelio.errors import SessionNotFound
from fidelio.inbox import APPROVAL, PROVEN, needs_person
from fidelio.ledger.model import Event, Request, Session
from fidelio.orchestrator.runs.worktrees import Worktree
from fidelio.runtime import events as e
from fidelio.runtime.resources.compare import PAGE_EDITS, compare_texts, render_unified
from fidelio.surfaces.timeline import describe_event
from fidelio.surfaces.views.requests import describe_erased
from fidelio.surfaces.web.pages import PageRequest
from fidelio.surfaces.web.passkeys import find_other_address, has_registered_key
from fidelio.surfaces.web.rendering import format_json
from fidelio.surfaces.web.session_views import SessionView

PERMISSION, CUSTOM_TOOL = "permission", "custom_tool"
# How people call the kinds of requests.
KINDS: Mapping[str, str] = {
    "checkpoint": "Checkpoint",
    APPROVAL: "Approval",
    PERMISSION: "Permission",
    "question": "Question",
    CUSTOM_TOOL: "Tool result",
}
# What the options of a permission do. Those of an approval say it themselves.
_PERMISSION_EFFECTS: Mapping[str, tuple[str, ...]] = {
    "allow": ("the agent does exactly what is shown",),
    "allow-always": ("the agent does this, and the like of it without asking, in this turn",),
    "refuse": ("the agent does not do it",),
}
_UNSEEN_EFFECTS: Mapping[str, tuple[str, ...]] = {
    **_PERMISSION_EFFECTS,
    "allow": ("the agent does all of it, also what is not shown",),
}
_SAID = frozenset({e.AGENT_MESSAGE, "agent.said"})
# As far back as the last words of an agent, or its call of a custom tool, are looked for.
_LOOK_BACK = 60
# Characters of a folded question.
_LINE = 200
# Lines of a diff that a question shows; the whole change is in the arguments below it.
_MOST_LINES = 2_000


class DefaultOption(msgspec.Struct, frozen=True):
    """The option that may be taken without an answer, from `time` on."""

    label: str
    time: int


class RequestView(msgspec.Struct, frozen=True):
    """A request as the page shows it. `mismatch`: its row differs from its event, so its texts are not shown."""

    request: Request
    session: Session | None
    mismatch: str
    # What the agent said before it came to wait, and the arguments of the call of a custom tool.
    said: str = ""
    arguments: Any = None
    # Where it can be signed, if it cannot be signed where the page is open.
    other_address: str = ""
    # Whether an answer from this browser is known to be a person's only with a signature, and whether a key is registered.
    is_distant: bool = False
    has_keys: bool = False

    @property
    def kind(self) -> str:
        return KINDS.get(self.request.kind, self.request.kind.replace("_", " ").capitalize())

    @property
    def title(self) -> str:
        """The question; of a permission its first line, because its other lines are what is allowed."""
        if erased := describe_erased(self.request, self.session):
            return erased
        return self.request.question.partition("\n")[0] if self._is_permission else self.request.question

    @property
    def line(self) -> str:
        """The question in a line, with the beginning of what is allowed."""
        beginning = self.command or dict(self.facts).get("File") or self.exact
        return " · ".join(filter(None, (" ".join(self.title.split()), " ".join(beginning.split()))))[:_LINE]

    @property
    def exact(self) -> str:
        """Exactly what is allowed: all arguments of the call, else the lines below the title of a permission."""
        if arguments := self._call_arguments:
            return format_json(arguments)
        below = self.request.question.partition("\n")[2] if self._is_permission else ""
        return str(self.request.detail["beginning"]) if self.unseen else below

    @property
    def unseen(self) -> int:
        """How many characters of what would be allowed are not stored with the question, because it is too long."""
        beginning, size = self.request.detail.get("beginning"), self.request.detail.get("size")
        return max(0, size - len(beginning)) if isinstance(beginning, str) and isinstance(size, int) else 0

    @property
    def command(self) -> str:
        """The command that an agent with tools of its own wants to run."""
        if self.request.kind != PERMISSION:
            return ""
        command = self._call_arguments.get("command") or self.request.detail.get("command") or ""
        return command if isinstance(command, str) else " ".join(map(str, command))

    @property
    def other_arguments(self) -> Mapping[str, Any]:
        """The arguments of the call that neither its command, its diff nor its facts show."""
        arguments = self._call_arguments
        change = ("old_string", "new_string") if self.diff else ("content",) if self.whole_file is not None else ()
        shown = {"cwd", "file_path", *(("command",) if self.command else ()), *change}
        return {name: value for name, value in arguments.items() if name not in shown}

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """What an agent with tools of its own wants to use: tool, directory, path."""
        if self.request.kind != PERMISSION:
            return ()
        detail, arguments = self.request.detail, self._call_arguments
        found = {
            "Tool": detail.get("tool"),
            "Directory": arguments.get("cwd") or detail.get("cwd") or self._directory,
            "File": arguments.get("file_path") or detail.get("path"),
        }
        return tuple((name, str(value)) for name, value in found.items() if value)

    @property
    def diff(self) -> tuple[str, ...]:
        """The change of a file that would be allowed, as lines of a unified diff."""
        arguments = self._call_arguments
        old, new = arguments.get("old_string", ""), arguments.get("new_string")
        if not isinstance(old, str) or not isinstance(new, str):
            return ()
        name = str(arguments.get("file_path", "the file"))
        lines = list(render_unified(compare_texts(old, new, most_edits=PAGE_EDITS), name, name))
        more = [f"... {len(lines) - _MOST_LINES} more lines"] if len(lines) > _MOST_LINES else []
        return (*lines[:_MOST_LINES], *more)

    @property
    def whole_file(self) -> str | None:
        """The text that a file would have, whatever it holds now: what that is was not stored with the question."""
        content = self._call_arguments.get("content")
        return content if isinstance(content, str) and "file_path" in self._call_arguments and not self.diff else None

    @property
    def _directory(self) -> str:
        """The directory in which the agent works."""
        record = {} if self.session is None else self.session.record
        if path := record.get("worktree"):
            return Worktree(path, "", "", record.get("prefix", "")).directory
        return str(record.get("project", ""))

    @property
    def _call_arguments(self) -> Mapping[str, Any]:
        found = self.request.detail.get("input") or self.request.detail.get("arguments")
        return found if isinstance(found, Mapping) and self.request.kind == PERMISSION else {}

    @property
    def _is_permission(self) -> bool:
        return self.request.kind in (APPROVAL, PERMISSION)

    @property
    def can_be_picked(self) -> bool:
        """Whether it can be answered together with others: only a permission that is shown whole and needs no signature."""
        has_hindrance = self.needs_proof or self.is_distant or self.mismatch or self.unseen
        return self._is_permission and not has_hindrance and self.request.state == "open"

    @property
    def location(self) -> tuple[str, ...]:
        """Where it came up: workflow, activity and checkpoint, or agent and project."""
        detail = self.request.detail
        if "workflow" in detail:
            iteration = (f"iteration {detail['iteration']}",) if detail.get("iteration") else ()
            return (*(str(detail.get(part, "")) for part in ("workflow", "activity", "checkpoint")), *iteration)
        record = {} if self.session is None else self.session.record
        return tuple(filter(None, (record.get("agent") or record.get("blueprint") or "", record.get("project", ""))))

    @property
    def session_title(self) -> str:
        return self.request.session if self.session is None else SessionView(self.session).title

    @property
    def person_only(self) -> bool:
        return needs_person(self.request)

    @property
    def needs_proof(self) -> bool:
        return self.request.detail.get("answered_by") == PROVEN

    @property
    def is_signed(self) -> bool:
        """Whether the form signs the answer."""
        return self.needs_proof or (self.is_distant and self.has_keys)

    @property
    def unsigned_options(self) -> Collection[str]:
        """The options that grant nothing, and so need no signature of somebody who is known to be a person."""
        return () if self.is_distant else tuple(self.request.detail.get("unsigned_options", ()))

    @property
    def effects(self) -> Mapping[str, tuple[str, ...]]:
        """What each option does, in words, by its id."""
        known = _UNSEEN_EFFECTS if self.unseen else _PERMISSION_EFFECTS
        usual = known if self.request.kind == PERMISSION else {}
        return {
            option["id"]: tuple(describe_effect(option.get("effect") or {})) or usual.get(option["id"], ())
            for option in self.request.options
        }

    @property
    def default(self) -> DefaultOption | None:
        """The option that counts without an answer."""
        detail = self.request.detail
        name, after = detail.get("default_option"), detail.get("auto_advance_ms")
        if not name or not after:
            return None
        return DefaultOption(self._name_option(str(name)), self.request.opened_at + int(after))

    @property
    def answer(self) -> str:
        """The chosen option as the question called it; empty if it was answered in words only."""
        name = str(self.request.answer.get("option") or "")
        return name if self.mismatch else self._name_option(name)

    def _name_option(self, name: str) -> str:
        return next((str(option.get("label") or name) for option in self.request.options if option["id"] == name), name)


def describe_effect(effect: Mapping[str, Any]) -> Iterator[str]:
    """The effect of an option in words."""
    for name, value in sorted((effect.get("setVariable") or {}).items()):
        yield f"sets {name} to {msgspec.json.encode(value).decode()}"
    if target := effect.get("transitionTo"):
        yield f"goes on with {target}"
    for skipped in effect.get("skipActivities") or ():
        yield f"skips {skipped}"


async def view_request(request: PageRequest, found: Request) -> RequestView:
    """A request with its session, and what the agent said and wants."""
    records, session = await request.services.records(), None
    # A request without a session was not written by Fidelio; the mismatch says so.
    with suppress(SessionNotFound):
        session = await records.find(found.session)
    mismatch = await (await request.services.inbox()).find_mismatch(found)
    if session is None or mismatch or found.state != "open":
        return RequestView(found, session, mismatch)
    events = await _load_newest(records, session)
    said = _find_words(events) or await _find_worker_words(records, session)
    view = RequestView(
        found, session, mismatch, said, _find_arguments(found, events), find_other_address(request, f"/inbox/{found.id}")
    )
    if not view.person_only or await request.is_seen():
        return view
    return replace(view, is_distant=True, has_keys=await has_registered_key(request))


def _find_words(events: Sequence[Event]) -> str:
    """What an agent said last, from its beginning."""
    return next((describe_event(event).detail for event in reversed(events) if event.type in _SAID), "")


async def _find_worker_words(records: Records, session: Session) -> str:
    """What the newest worker of a workflow said last."""
    if session.kind != "workflow":
        return ""
    workers = (await records.children(session.id, limit=1)).items
    return _find_words(await _load_newest(records, workers[0])) if workers else ""


async def _load_newest(records: Records, session: Session) -> tuple[Event, ...]:
    return await records.events(session.id, after=max(0, session.last_seq - _LOOK_BACK), limit=_LOOK_BACK)


def _find_arguments(request: Request, events: Sequence[Event]) -> Any:
    """The arguments of the call of a custom tool, which a person carries out."""
    if request.kind != CUSTOM_TOOL:
        return None
    name = request.detail.get("tool_use_id")
    calls = (event.body for event in reversed(events) if event.type == e.CUSTOM_TOOL_USE and not event.redacted)
    return next((body.get("input") for body in calls if body.get("id") == name), None)
