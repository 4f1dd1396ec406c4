"""Definitions that people name: environments and agents, as files under trust and as immutable versions in a store.

A file decides what a session may do. So the file of a project is used as a blueprint is: only if a person has trusted the
project, and only with the content that the person has seen. No other user may be able to write it. A file that cannot be used
hides no other. Every different content of a name is a version in the ledger.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import msgspec

from fidelio.definitions.library.files import Files, join_path
from fidelio.definitions.library.memo import Memo
from fidelio.errors import Command, DocumentConflict, FidelioError, Hint, HomeProblem, Text, UntrustedProject
from fidelio.home import Home, load_user_trust, user_home
from fidelio.ledger.model import Document, NewEvent, PutDocument
from fidelio.ownership import Allowance, find_parent_problem, find_path_problem
from fidelio.runtime.stores import Store
from fidelio.runtime.tools.model import RuntimeContext
from fidelio.trust import FOUND_DIRECTORIES, Trust

T = TypeVar("T")
SUFFIX = ".yaml"
_ATTEMPTS = 8


class DefinitionKind(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """A kind of definition. `domain` separates the hashes of kinds; `verb` and `describe` say what a file would bring."""

    noun: str
    directory: str
    domain: bytes
    verb: str
    parse: Callable[[Any, str], T]
    describe: Callable[[T], str]
    check_name: Callable[[str], str]


class DefinitionFile(msgspec.Struct, Generic[T], frozen=True):
    """The file of a definition. `hash` is what a person trusts; `problem` says why it is not used, with the remedy."""

    name: str
    source: str
    hash: str = ""
    content: T | None = None
    problem: Text = ""


class _Root(msgspec.Struct, frozen=True):
    """A directory with files. `level`: all are used, only those trusted by hash, or none."""

    path: Path
    level: Literal["whole", "by-hash", "none"]
    trust: Trust
    allowed: Allowance
    problem: str = ""

    @property
    def project(self) -> Path:
        return self.path.parent.parent

    @property
    def remedy(self) -> Text:
        return Hint(Command("trust", str(self.project)), " shows what would be used, and trusts it. An agent cannot do that.")

    def accepts(self, digest: str) -> bool:
        return self.level == "whole" or (self.level == "by-hash" and self.trust.accepts(digest))


class DefinitionFiles(Generic[T]):
    """Finds the files of a kind and the trust in them."""

    def __init__(self, kind: DefinitionKind[T], home: Home, load: Callable[[], Trust] = load_user_trust) -> None:
        self._kind = kind
        self._home = home
        self._load = load

    def find(self, name: str, project: str) -> DefinitionFile[T] | None:
        """The nearest file with this name that may be used; None if there is none.

        Raises `UntrustedProject` for a file of a trusted project that a person has not seen as it is.
        """
        self._kind.check_name(name)
        for root in self._roots(project):
            path = root.path / f"{name}{SUFFIX}"
            if root.level == "none" or not os.path.lexists(path):
                continue
            file = _read(self._kind, root, path)
            if not root.accepts(file.hash):
                raise UntrustedProject(_describe_distrust(self._kind, root, file), remedy=root.remedy)
            return file
        return None

    def describe_untrusted(self, name: str, project: str) -> UntrustedProject | None:
        """Why a file with this name is not used, if that is because nobody has trusted its project."""
        for root in self._roots(project):
            if root.level == "none" and os.path.lexists(root.path / f"{name}{SUFFIX}"):
                reason = root.problem or f"Nobody has trusted the project {root.project}"
                return UntrustedProject(f"The {self._kind.noun} {name} is not used. {reason}.", remedy=root.remedy)
        return None

    def list(self, project: str) -> tuple[DefinitionFile[T], ...]:
        """Every file, also those that are not used, with the reason."""
        found: dict[str, DefinitionFile[T]] = {}
        for root in self._roots(project):
            for file in read_directory(self._kind, root.path, root.allowed):
                found.setdefault(file.name, file if file.problem else _note_distrust(self._kind, root, file))
        return tuple(found[name] for name in sorted(found))

    def _roots(self, project: str) -> Iterator[_Root]:
        directory, user = self._kind.directory, _user_root(self._kind.directory)
        own = [*([self._home.path / directory] if self._home.is_trusted else []), *user]
        projects = [Path(project) / name / directory for name in FOUND_DIRECTORIES]
        for path in dict.fromkeys([*projects, self._home.path / directory, *user]):
            yield self._find_trust(path, is_own=path in own)

    def _find_trust(self, path: Path, *, is_own: bool) -> _Root:
        trust, directory = self._load(), path.parent
        allowed = trust.allowance(directory)
        parent = find_parent_problem(directory.parent, allowed) if directory.name.startswith(".") else ""
        if problem := parent or find_path_problem(directory, allowed) or find_path_problem(path, allowed):
            return _Root(path, "none", trust, allowed, problem)
        if trust.names(directory) or (is_own and trust.find(directory) is None):
            return _Root(path, "whole", trust, allowed)
        return _Root(path, "by-hash" if trust.trusts(directory) else "none", trust, allowed)


def read_directory(kind: DefinitionKind[T], directory: Path, allowed: Allowance | None = None) -> tuple[DefinitionFile[T], ...]:
    """Every file of a directory with its hash, whether trusted or not; `fidelio trust` shows and stores them."""
    root = _Root(directory, "whole", Trust(), allowed or Allowance())
    files = Files(str(directory), Memo(), root.allowed)
    try:
        names = [name for name in files.files(files.root) if name.endswith(SUFFIX) and not name.startswith(".")]
    except FidelioError as error:
        return (DefinitionFile(directory.name, str(directory), problem=error.text),)
    return tuple(_read_or_describe(kind, root, directory / name) for name in sorted(names))


def _read(kind: DefinitionKind[T], root: _Root, path: Path) -> DefinitionFile[T]:
    """Read a file; what is hashed is what is parsed."""
    name = path.name.removesuffix(SUFFIX)
    file = Files(str(root.path), Memo(), root.allowed).read(join_path(str(root.path), path.name))
    data = file.document().data
    content = kind.parse({} if data is None else data, f"The file {path}")
    digest = hashlib.sha256(kind.domain + name.encode() + b"\0" + file.raw).hexdigest()
    return DefinitionFile(name, str(path), digest, content)


def _read_or_describe(kind: DefinitionKind[T], root: _Root, path: Path) -> DefinitionFile[T]:
    name = path.name.removesuffix(SUFFIX)
    try:
        kind.check_name(name)
        return _read(kind, root, path)
    except FidelioError as error:
        return DefinitionFile(name, str(path), problem=error.text)


def _note_distrust(kind: DefinitionKind[T], root: _Root, file: DefinitionFile[T]) -> DefinitionFile[T]:
    if root.accepts(file.hash):
        return file
    return msgspec.structs.replace(file, problem=Hint(f"{_describe_distrust(kind, root, file)} ", root.remedy))


def _describe_distrust(kind: DefinitionKind[T], root: _Root, file: DefinitionFile[T]) -> str:
    if root.level == "none":
        return f"{root.problem or f'Nobody has trusted the project {root.project}'}."
    reason = "has changed since a person trusted it" if root.trust.knows(os.path.realpath(file.source)) else "was not trusted"
    effect = kind.describe(file.content) if file.content is not None else "unknown"
    return f"The {kind.noun} {file.name} of {root.project} {reason}. It would {kind.verb}: {effect}."


def _user_root(directory: str) -> list[Path]:
    try:
        return [user_home().path / directory]
    except HomeProblem:
        return []


class VersionedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A definition in a store, and what an event says about each of its versions. `body` gets the number."""

    store: Store
    space: str
    path: str
    event: str
    body: dict[str, Any]


async def put_version(context: RuntimeContext, target: VersionedDocument, text: str, *, by: str) -> int | None:
    """Store a content as a new version, unless the newest has it. The number of the version; None if others keep writing."""
    for _ in range(_ATTEMPTS):
        with suppress(DocumentConflict):
            # Another process may store the same at the same moment; then its version is found in the next attempt.
            return await _put_on_top(context, target, text, by=by)
    return None


async def _put_on_top(context: RuntimeContext, target: VersionedDocument, text: str, *, by: str) -> int:
    newest = await context.ledger.document(target.space, target.path)
    if newest is not None and newest.text == text:
        return newest.version
    before = 0 if newest is None else newest.version
    defined = NewEvent(type=target.event, body={**target.body, "version": before + 1, "by": by}, actor=by)
    document = PutDocument(space=target.space, path=target.path, text=text, author=by, expect=before)
    await context.ledger.commit(target.store.change(defined, documents=(document,)))
    return before + 1


async def list_documents(context: RuntimeContext, store: Store | None) -> AsyncIterator[Document]:
    """Every document of a store, in the order of the paths."""
    cursor: str | None = None
    while store is not None:
        page = await context.ledger.documents(store.space, cursor=cursor, limit=200)
        for document in page.items:
            yield document
        cursor = page.next
        if cursor is None:
            return
