"""Objects that programs create in a project: memory stores, files, skills, vaults, deployments and the like.

Each object is a store, a runtime session that owns what belongs to it: it has events of its own, its content is a versioned
document, archiving is an event, and deleting it erases everything it owns and leaves a chain that verifies. An object is found
only in its own project, by its kind: an id of another project or kind is unknown.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Callable
from typing import Any, Generic, Literal, TypeVar

import msgspec

from fidelio.errors import DocumentConflict, SessionExists, SessionNotFound, UsageProblem
from fidelio.ids import new_session_id
from fidelio.ledger.encoding import DELETED, hash_blob
from fidelio.ledger.jobs import Assignment
from fidelio.ledger.model import NewEvent, NewJob, NewSession, Page, PutDocument, Session, Settlement
from fidelio.ledger.unit_of_work import LoadedSession, SessionDecision
from fidelio.runtime import events as e
from fidelio.runtime.record import RuntimeRecord, RuntimeRecords
from fidelio.runtime.tools.model import LoadedRuntime, RuntimeContext

T = TypeVar("T", bound=msgspec.Struct)
ObjectKind = Literal["environment", "vault", "memory_store", "file", "skill", "skill_version", "deployment", "deployment_run"]
_PATH = "definition"
_ATTEMPTS = 8
# Objects that a page looks at; a page of a filter that matches little may be empty, and says where to go on.
MAX_SCANNED = 2_000


class StoredObject(msgspec.Struct, Generic[T], frozen=True):
    """An object with its newest content. `archived_at` is 0 while it is in use."""

    id: str
    content: T
    version: int
    created_at: int
    updated_at: int
    archived_at: int

    @property
    def space(self) -> str:
        """The space of the documents that it owns."""
        return f"object:{self.id}"


class ObjectJob(msgspec.Struct, frozen=True):
    """A job of an object. A second job of the same kind is merged into a waiting job."""

    kind: str
    due: int = 0


class ObjectPlan(msgspec.Struct, frozen=True):
    """What is committed with a new object or a new version: events, the blobs that they refer to, and jobs."""

    events: tuple[NewEvent, ...] = ()
    blobs: tuple[bytes, ...] = ()
    documents: tuple[PutDocument, ...] = ()
    jobs: tuple[ObjectJob, ...] = ()

    def queue(self, id_: str) -> tuple[NewJob, ...]:
        return tuple(NewJob(kind=job.kind, session=id_, due=job.due, key=job.kind) for job in self.jobs)


NOTHING_MORE = ObjectPlan()


class Objects(Generic[T]):
    """The objects of a kind in a project. `type_` is their content, which the caller has checked.

    `parent`: the object that they belong to, such as the skill of a version; they are listed apart from those of others.
    """

    def __init__(self, context: RuntimeContext, project: str, kind: ObjectKind, type_: type[T], parent: str = "") -> None:
        self._context, self._kind = context, kind
        self._namespace = _make_namespace(kind, project) + (f":{parent}" if parent else "")
        self._project = project
        self._decoder = msgspec.json.Decoder(type_)

    async def create(self, content: T, *, by: str, key: str = "", plan: ObjectPlan = NOTHING_MORE) -> StoredObject[T]:
        """Store a new object.

        `key`: an idempotency key. Repeated with the same content, it returns the object that the first call created; with
        another content it raises `SessionExists`.
        """
        session, text = new_session_id(), _encode(content)
        digest = hash_blob(text.encode())
        name = _name_by_key(key) if key else None
        body = {"role": "store", "project": self._project, "directory": secrets.token_hex(8), "content_digest": digest}
        started = NewEvent(type=e.STARTED, body=body, actor=by)
        document = PutDocument(space=f"object:{session}", path=_PATH, text=text, author=by, expect=0)
        decision = SessionDecision(
            None,
            events=(started, self._describe(1, by), *plan.events),
            blobs=plan.blobs,
            documents=(document, *plan.documents),
            jobs=plan.queue(session),
            create=NewSession(kind="runtime", namespace=self._namespace, name=name),
        )
        try:
            await self._context.unit.create(session, RuntimeRecord(), decision)
        except SessionExists:
            return await self._find_created(name or "", digest, key)
        return await self.load(session)

    async def load(self, id_: str) -> StoredObject[T]:
        """The object with this id. Raises `SessionNotFound` for an id of another kind or another project too."""
        unknown = SessionNotFound(f"There is no {self._noun} {id_!r:.80}.")
        try:
            session = await self._context.ledger.session(id_)
        except SessionNotFound:
            raise unknown from None
        if session.namespace != self._namespace or session.status == DELETED:
            raise unknown
        return await self._read(session)

    async def find(self, key: str) -> StoredObject[T] | None:
        """The object that was created with an idempotency key; None if there is none."""
        try:
            session = await self._context.ledger.session_by_name(_name_by_key(key), namespace=self._namespace)
        except SessionNotFound:
            return None
        return await self._read(session)

    async def list(self, *, cursor: str | None = None, limit: int = 50) -> Page[StoredObject[T]]:
        """A page of the objects, newest first, with the archived ones."""
        page = await self._context.ledger.sessions(kind="runtime", namespace=self._namespace, cursor=cursor, limit=limit)
        return Page(tuple([await self._read(session) for session in page.items]), page.next)

    async def select(
        self, keep: Callable[[StoredObject[T]], bool], *, cursor: str | None = None, limit: int = 50
    ) -> Page[StoredObject[T]]:
        """A page of the objects that `keep` accepts, newest first: full, unless few of many objects are accepted."""
        found: list[StoredObject[T]] = []
        scanned = 0
        while True:
            # As many as are missing: the cursor of the last read is where the next page begins.
            page = await self.list(cursor=cursor, limit=limit - len(found))
            found += filter(keep, page.items)
            cursor, scanned = page.next, scanned + len(page.items)
            if cursor is None or len(found) == limit or scanned >= MAX_SCANNED:
                return Page(tuple(found), cursor)
            # A read from SQLite does not suspend.
            await asyncio.sleep(0)

    async def update(
        self,
        id_: str,
        change: Callable[[StoredObject[T]], T],
        *,
        by: str,
        version: int | None = None,
        plan: ObjectPlan = NOTHING_MORE,
        assignment: Assignment | None = None,
        settle: Settlement | None = None,
    ) -> StoredObject[T]:
        """Store a content as the next version; the same content changes nothing.

        `change` computes it from the newest version, and again if another writer was faster. `version`: the version that the
        caller has seen; raises `DocumentConflict` if there is a newer one. `assignment` is the job that the change is part of:
        it fails if another worker has claimed the job; `settle` ends the job with it.
        """
        for attempt in range(_ATTEMPTS):
            found = await self.load(id_)
            if found.archived_at:
                raise UsageProblem(
                    f"The {self._noun} {id_} is archived.", remedy="Use another one: an archived one is not changed."
                )
            if version is not None and version != found.version:
                raise DocumentConflict(id_, expected=version, actual=found.version)
            text = _encode(change(found))
            if text == _encode(found.content) and plan == NOTHING_MORE:
                return found
            try:
                await self._put(found, text, by, plan, assignment, settle)
            except DocumentConflict:
                if version is not None or attempt + 1 == _ATTEMPTS:
                    raise
                continue
            return await self.load(id_)
        raise AssertionError("the last attempt returns or raises")

    async def archive(self, id_: str, *, by: str) -> StoredObject[T]:
        """Keep an object as it is. Archiving it again changes nothing."""
        await self.load(id_)

        def archive(current: LoadedRuntime) -> SessionDecision[None] | None:
            event = NewEvent(type=e.SESSION_ARCHIVED, body={}, actor=by)
            return None if current.record.is_archived else SessionDecision(None, events=(event,))

        await self._context.unit.update(id_, archive)
        return await self.load(id_)

    async def delete(self, id_: str, *, by: str) -> None:
        """Erase an object with everything that it owns; its chain still verifies."""
        await self.load(id_)
        await self._context.ledger.erase([id_], actor=by, reason=f"The {self._noun} was deleted.")

    @property
    def _noun(self) -> str:
        return self._kind.replace("_", " ")

    async def _put(
        self,
        found: StoredObject[T],
        text: str,
        by: str,
        plan: ObjectPlan,
        assignment: Assignment | None,
        settle: Settlement | None,
    ) -> None:
        document = PutDocument(space=found.space, path=_PATH, text=text, author=by, expect=found.version)

        def put(_: LoadedSession[RuntimeRecord]) -> SessionDecision[None]:
            return SessionDecision(
                None,
                events=(self._describe(found.version + 1, by), *plan.events),
                blobs=plan.blobs,
                documents=(document, *plan.documents),
                jobs=plan.queue(found.id),
                settle=settle,
            )

        await self._context.unit.update(found.id, put, assignment=assignment)

    def _describe(self, version: int, by: str) -> NewEvent:
        return NewEvent(type=e.OBJECT_DEFINED, body={"kind": self._kind, "version": version}, actor=by)

    async def _find_created(self, name: str, digest: str, key: str) -> StoredObject[T]:
        session = await self._context.ledger.session_by_name(name, namespace=self._namespace)
        (started,) = await self._context.ledger.events(session.id, limit=1)
        if started.body.get("content_digest") != digest:
            raise SessionExists(
                f"The key {key!r:.80} was used for another {self._noun}.", remedy="Use a new key for each creation."
            )
        return await self._read(session)

    async def _read(self, session: Session) -> StoredObject[T]:
        document = await self._context.ledger.document(f"object:{session.id}", _PATH)
        if document is None or document.text is None:
            raise SessionNotFound(f"There is no {self._noun} {session.id!r:.80}.")
        archived_at = RuntimeRecords().read(session.raw).archived_at
        return StoredObject(
            session.id,
            self._decoder.decode(document.text),
            document.version,
            session.created_at,
            session.updated_at,
            archived_at,
        )


async def find_state(
    context: RuntimeContext, project: str, kind: ObjectKind, id_: str
) -> Literal["active", "archived", "deleted"]:
    """Whether an object can be used. That of another project or kind counts as deleted."""
    try:
        session = await context.ledger.session(id_)
    except SessionNotFound:
        return "deleted"
    if session.namespace != _make_namespace(kind, project) or session.status == DELETED:
        return "deleted"
    return "archived" if RuntimeRecords().read(session.raw).is_archived else "active"


def _make_namespace(kind: ObjectKind, project: str) -> str:
    return f"runtime-object:{kind}:{project}"


def _name_by_key(key: str) -> str:
    return f"key-{hashlib.sha256(key.encode()).hexdigest()[:40]}"


def _encode(content: Any) -> str:
    return msgspec.json.encode(content, order="sorted").decode()
