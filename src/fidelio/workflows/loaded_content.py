"""Skills and resources that a session has loaded: the ledger keeps the text of the first load.

Where moves are enforced the session gets that text again, whatever becomes of the file. Elsewhere the file is served, and the
stored text if the file cannot be read.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from fidelio.definitions.library import Library
from fidelio.definitions.library.loading import LoadedDefinition
from fidelio.engine.record import Record
from fidelio.errors import ComponentNotFound, DefinitionError
from fidelio.ledger.encoding import hash_blob
from fidelio.workflows.session_definition import SessionDefinition, describe_problem
from fidelio.workflows.unit_of_work import WorkflowUnit

Kind = Literal["skill", "resource", "template"]


class ContentReference(msgspec.Struct, frozen=True):
    """A skill, resource or template as a session asks for it.

    `owner` is the workflow in which a reference without a workflow is looked up after that of the session.
    """

    kind: Kind
    name: str
    owner: str | None = None

    def key(self, workflow: str) -> str:
        """The name under which the record keeps the digest of the text. `3` and `03` are the same resource."""
        folder, _, last = self.name.rpartition("/")
        number = str(int(last)) if last.isdecimal() and last.isascii() else last
        context = f" {self.owner}" if self.owner not in (None, "", workflow) and not folder else ""
        return f"{self.kind} {folder}/{number}" if folder else f"{self.kind} {number}{context}"


class LoadedContent(msgspec.Struct, frozen=True):
    """A loaded text, with warnings. `blob` is stored under `key` if the session loads it for the first time."""

    loaded: LoadedDefinition[Any]
    warnings: tuple[str, ...] = ()
    key: str = ""
    blob: bytes = b""

    @property
    def digests(self) -> dict[str, str]:
        return {self.key: hash_blob(self.blob)} if self.blob else {}


class _StoredText(msgspec.Struct, frozen=True):
    """The stored form of a text."""

    owner: str
    file: str
    text: str


async def load_content(
    unit: WorkflowUnit, record: Record, definition: SessionDefinition, reference: ContentReference
) -> LoadedContent:
    """Load a text from its file, or from the ledger if the session has loaded it before."""
    key, what = reference.key(record.workflow), f"{reference.kind.capitalize()} '{reference.name}'"
    digest = record.loaded.get(key)
    try:
        found = _find_file(unit.library, record.workflow, reference)
    except DefinitionError as problem:
        stored = await _load_stored(unit, reference.kind, digest)
        if stored is None:
            raise _describe_missing(problem, definition, what) from problem
        warning = f"{what} cannot be read: {describe_problem(problem)} The text that this session loaded before is used."
        return LoadedContent(stored, (warning,))
    blob = _encode(found)
    if digest is None:
        return LoadedContent(found, (), key, blob)
    if digest == hash_blob(blob):
        return LoadedContent(found)
    changed = f"{what} has changed since this session loaded it."
    stored = await _load_stored(unit, reference.kind, digest) if unit.effective_fidelity(record) == "enforce" else None
    if stored is None:
        return LoadedContent(found, (changed,))
    return LoadedContent(stored, (f"{changed} The session goes on with the text that it loaded first.",))


def _describe_missing(problem: DefinitionError, definition: SessionDefinition, what: str) -> DefinitionError:
    if not definition.drift:
        return problem
    return ComponentNotFound(
        f"{what} cannot be read, and this session has not loaded it before: {describe_problem(problem)}",
        remedy="Put its file back, or go on without it: the session can still move and end.",
    )


def _find_file(library: Library, workflow: str, reference: ContentReference) -> LoadedDefinition[Any]:
    name, owner = reference.name, reference.owner or None
    if reference.kind == "skill":
        return library.skill(name, workflow=workflow, owner=owner)
    if reference.kind == "resource":
        return library.resource(name, workflow=workflow, last_skill_owner=owner)
    return library.template(name, workflow=workflow, owner=owner)


def _encode(found: LoadedDefinition[Any]) -> bytes:
    file = found.source.file.replace("\\", "/").rpartition("/")[2]
    return msgspec.json.encode(_StoredText(found.owner, file, found.source.content.decode()))


async def _load_stored(unit: WorkflowUnit, kind: Kind, digest: str | None) -> LoadedDefinition[Any] | None:
    """Load a stored text; None if the session has not loaded it, or it is erased."""
    blob = await unit.ledger.blob(digest) if digest else None
    if blob is None:
        return None
    from fidelio.definitions.library.components import parse_component  # noqa: PLC0415  # brings the models of texts, which a start does without

    stored = msgspec.json.decode(blob, type=_StoredText)
    return parse_component(kind, stored.owner, stored.file, stored.text)
