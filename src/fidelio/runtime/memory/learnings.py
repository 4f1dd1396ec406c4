"""Learnings: what an agent says at the end of a wake that it has learned, for all its sessions in the project.

A learning is an event of the store of the agent: a search finds it, and it stays when the session that had it is deleted.
Equal learnings are stored once. A learning that shall become part of MEMORY.md opens a request: nothing that a model says
reaches the prompts of other sessions before a person has agreed (`fidelio.runtime.memory.promotions`).

A session sees the learnings of sessions whose network is at least as open as its own. Otherwise what an offline session has
seen would leave the machine through one that is online.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

import msgspec
from msgspec.structs import replace

from fidelio.clock import format_iso
from fidelio.engine.variables import is_blank
from fidelio.ids import new_id
from fidelio.inbox import NewRequest
from fidelio.ledger.long_text import sanitize_text
from fidelio.ledger.model import Change, Event, NewEvent, PutDocument
from fidelio.runtime import events as e
from fidelio.runtime.memory.promotions import request_promotion
from fidelio.runtime.memory.record import MAX_WAITING
from fidelio.runtime.navigation.visibility import OPENNESS, environment_key, load_networks
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.stores import Store, find_store, open_store
from fidelio.runtime.tools.model import LoadedRuntime, RuntimeContext
from fidelio.sandbox.model import Network

Kind = Literal["lesson", "correction", "error"]
KINDS: tuple[Kind, ...] = get_args(Kind)
MAX_LEARNINGS = 3
MAX_TITLE = 120
MAX_DETAIL = 400
MAX_KEY = 200
# As many events as a statement reads while it looks for the newest learnings.
_WINDOW = 1_000


class LearningSource(msgspec.Struct, frozen=True):
    """What a learning came from: the event that the wake began with, and why it began."""

    event: str = ""
    reason: str = ""


class NewLearning(msgspec.Struct, frozen=True):
    """A learning that was read from a directive and is valid."""

    kind: Kind
    title: str
    detail: str
    key: str = ""
    promotes: bool = False

    @property
    def fingerprint(self) -> str:
        """What equal learnings have in common: the explicit key, else kind, title and detail without case."""
        subject = ["key", self.key] if self.key else ["text", self.kind, self.title.lower(), self.detail.lower()]
        return hashlib.sha256(b"fidelio.learning.v1:" + msgspec.json.encode(subject)).hexdigest()


class Learning(msgspec.Struct, frozen=True):
    """A stored learning. `network` is that of the session it came from."""

    id: str
    content: NewLearning
    session: str
    wake: str
    source: LearningSource
    network: Network
    time: int
    seq: int = 0

    def describe(self, agent: str) -> dict[str, Any]:
        """The learning as tools and files show it."""
        content = self.content
        return {
            "id": self.id,
            "agentId": agent,
            "createdAt": format_iso(self.time),
            "sessionId": self.session,
            "wakeId": self.wake or None,
            "sourceEventId": self.source.event or None,
            "sourceReason": self.source.reason or None,
            "learning": {
                "kind": content.kind,
                "title": content.title,
                "detail": content.detail,
                "promoteToMemory": content.promotes,
                "dedupeKey": content.key or None,
            },
        }


class CapturedLearnings(msgspec.Struct, frozen=True):
    """The learnings of a directive that are valid and new, and a sentence for the model about each of the others."""

    accepted: tuple[NewLearning, ...] = ()
    rejected: tuple[str, ...] = ()


class LearningPlan(msgspec.Struct, frozen=True):
    """What is committed with the end of the wake: events and requests of the session, and the linked change of the store."""

    events: tuple[NewEvent, ...] = ()
    linked: tuple[Change, ...] = ()
    requests: tuple[NewRequest, ...] = ()
    accepted: tuple[Learning, ...] = ()
    rejected: tuple[str, ...] = ()


def parse_learnings(items: Sequence[Any]) -> CapturedLearnings:
    """Read the learnings of a directive. Texts that are too long are cut; whatever cannot be used is named."""
    accepted: list[NewLearning] = []
    rejected: list[str] = []
    for number, item in enumerate(items[:MAX_LEARNINGS], 1):
        found = _parse(item)
        if isinstance(found, str):
            rejected.append(f"learnings {number}: {found}")
        else:
            accepted.append(found)
    if len(items) > MAX_LEARNINGS:
        rejected.append(f"learnings: only the first {MAX_LEARNINGS} of {len(items)} were read.")
    return CapturedLearnings(tuple(accepted), tuple(rejected))


def _parse(item: Any) -> NewLearning | str:
    if not isinstance(item, Mapping):
        return "it is not an object."
    title, detail = (_read_line(item.get(name), most) for name, most in (("title", MAX_TITLE), ("detail", MAX_DETAIL)))
    if not title or not detail:
        return "it needs a title and a detail."
    kind = next((kind for kind in KINDS if kind == item.get("kind", "lesson")), None)
    if kind is None:
        return f"kind is one of {', '.join(KINDS)}."
    key = item.get("dedupeKey")
    if key is not None and not _read_line(key, MAX_KEY):
        return "dedupeKey is a text that is not empty."
    return NewLearning(kind, title, detail, _read_line(key, MAX_KEY), item.get("promoteToMemory") is True)


def _read_line(value: Any, most: int) -> str:
    """A text on a single line, cut with an ellipsis; empty for anything in which a person would see nothing."""
    if not isinstance(value, str) or is_blank(value):
        return ""
    line = " ".join(sanitize_text(value).split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def capture_learnings(parsed: CapturedLearnings, known: Collection[str], *, waiting: int) -> CapturedLearnings:
    """Drop what is known, by fingerprint, and let at most `MAX_WAITING` learnings wait for a person."""
    accepted: dict[str, NewLearning] = {}
    rejected = list(parsed.rejected)
    for learning in parsed.accepted:
        if learning.fingerprint in known or learning.fingerprint in accepted:
            rejected.append(f"learnings: {learning.title!r} is known already and was not stored again.")
            continue
        promotes = learning.promotes and waiting < MAX_WAITING
        if promotes != learning.promotes:
            rejected.append(f"learnings: {learning.title!r} was stored, but {MAX_WAITING} others wait for a person already.")
        waiting += promotes
        accepted[learning.fingerprint] = replace(learning, promotes=promotes)
    return CapturedLearnings(tuple(accepted.values()), tuple(rejected))


async def plan_learnings(
    context: RuntimeContext,
    session: LoadedRuntime,
    learnings: Sequence[Any],
    *,
    wake: str,
    source: LearningSource | None = None,
) -> LearningPlan:
    """Validate the learnings of a directive and plan how they are stored. Nothing is committed here.

    `source` is found in the log if it is not passed: the last user event that the wake has processed.
    """
    parsed = parse_learnings(learnings)
    if not parsed.accepted:
        return LearningPlan(rejected=parsed.rejected)
    record = session.record
    store = await open_store(context, "substrate", project=record.project, agent=record.agent)
    network = await load_network(context, record, unknown="none")
    known = {item.fingerprint for item in parsed.accepted if await _is_known(context, store, item, network)}
    captured = capture_learnings(parsed, known, waiting=len(record.memory.promotions))
    if source is None:
        source = await _find_source(context, session)
    stored = tuple(
        Learning(new_id("lrn_", 16), content, session.id, wake, source, network, context.clock())
        for content in captured.accepted
    )
    return _build_plan(context, store, session, stored, captured.rejected)


def _build_plan(
    context: RuntimeContext, store: Store, session: LoadedRuntime, stored: tuple[Learning, ...], rejected: tuple[str, ...]
) -> LearningPlan:
    if not stored:
        return LearningPlan(rejected=rejected)
    documents = tuple(
        # Without an expected version: of two sessions that learn the same at once, neither fails, and lists show it once.
        PutDocument(space=_key_space(store), path=each.content.fingerprint, text=each.network, author="agent")
        for each in stored
    )
    change = store.change(*(_build_event(each) for each in stored), documents=documents)
    promotions = [
        request_promotion(
            learning=each.id,
            kind=each.content.kind,
            title=each.content.title,
            detail=each.content.detail,
            session=session,
            wake=each.wake,
            now=context.clock(),
        )
        for each in stored
        if each.content.promotes
    ]
    return LearningPlan(
        events=tuple(promotion.event for promotion in promotions),
        linked=(change,),
        requests=tuple(promotion.request for promotion in promotions),
        accepted=stored,
        rejected=rejected,
    )


async def list_learnings(
    context: RuntimeContext, project: str, agent: str, limit: int, *, reader: RuntimeRecord | None = None
) -> tuple[Learning, ...]:
    """The newest learnings of an agent in a project, oldest first. `reader`: only those that this session may see."""
    store = await find_store(context, "substrate", project=project, agent=agent)
    own = "none" if reader is None else await load_network(context, reader, unknown="host")
    found: dict[str, Learning] = {}
    end = 0 if store is None else store.last_seq
    while store is not None and end > 0 and len(found) < limit:
        start = max(0, end - _WINDOW)
        page = await context.ledger.events(store.id, after=start, types=(e.LEARNING_CAPTURED,), limit=_WINDOW)
        older = {each.content.fingerprint: each for each in _read_events(page, end) if _may_see(own, each.network)}
        found = {**older, **{key: each for key, each in found.items() if key not in older}}
        end = start
    newest = sorted(found.values(), key=lambda each: each.seq)
    return tuple(newest[-limit:])


def _read_events(events: Sequence[Event], end: int) -> Iterator[Learning]:
    """The learnings up to the event `end` without redacted ones, newest first: of equal ones the oldest replaces the others."""
    for event in reversed(events):
        if event.seq <= end and not event.redacted:
            yield _read_event(event)


def _read_event(event: Event) -> Learning:
    body = event.body
    content = NewLearning(
        body["kind"], body["title"], body["detail"], body.get("dedupe_key", ""), body.get("promote_to_memory", False)
    )
    source = LearningSource(body.get("source_event_id", ""), body.get("source_reason", ""))
    return Learning(
        body["learning_id"], content, body["session_id"], body["wake_id"], source, body["network"], event.time, event.seq
    )


def _build_event(learning: Learning) -> NewEvent:
    content = learning.content
    body = {
        "learning_id": learning.id,
        "kind": content.kind,
        "title": content.title,
        "detail": content.detail,
        "dedupe_key": content.key,
        "promote_to_memory": content.promotes,
        "session_id": learning.session,
        "wake_id": learning.wake,
        "source_event_id": learning.source.event,
        "source_reason": learning.source.reason,
        "network": learning.network,
    }
    return NewEvent(type=e.LEARNING_CAPTURED, body=body, actor="agent")


async def _is_known(context: RuntimeContext, store: Store, learning: NewLearning, own: Network) -> bool:
    """Whether an equal learning is stored that sessions with this network can see."""
    found = await context.ledger.document(_key_space(store), learning.fingerprint)
    return found is not None and any(found.text == network and _may_see(own, network) for network in OPENNESS)


async def _find_source(context: RuntimeContext, session: LoadedRuntime) -> LearningSource:
    last = session.record.wakes.processed_seq
    for event in await context.ledger.events(session.id, after=max(0, last - 1), limit=1):
        if event.type.startswith("user."):
            return LearningSource(event.id, event.type)
    return LearningSource()


async def load_network(context: RuntimeContext, record: RuntimeRecord, *, unknown: Network) -> Network:
    return (await load_networks(context, [record])).get(environment_key(record), unknown)


def _may_see(own: Network, source: Network) -> bool:
    return OPENNESS.get(source, 0) >= OPENNESS[own]


def _key_space(store: Store) -> str:
    """The space of the fingerprints, by which equal learnings are found."""
    return f"learning-keys:{store.id}"
