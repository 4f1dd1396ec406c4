"""The catalogue of blueprints that a project can use: the nearest of each name, and the unusable ones with their problem.

An unusable blueprint hides no other name. It does hide blueprints of its own name in later roots: running another blueprint
than the nearest, only because that has an error, would be worse than reporting the error.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ParamSpec, TypeVar

import msgspec

from fidelio.definitions.library.files import Files, join_path
from fidelio.definitions.library.identifiers import escape_name, suggest_names
from fidelio.definitions.library.memo import Memo
from fidelio.definitions.reading.positions import make_error
from fidelio.errors import BlueprintNotFound, BrokenBlueprint, Command, Hint, HomeProblem, UnreadableDefinition
from fidelio.home import Home, user_home
from fidelio.orchestrator.blueprints.model import Blueprint
from fidelio.orchestrator.blueprints.reading import read_folder, read_page
from fidelio.orchestrator.blueprints.trust import BlueprintTrust, RootTrust
from fidelio.trust import FOUND_DIRECTORIES

DISABLED_SUFFIX = ".disabled"
PAGE_SUFFIX = ".md"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_NAME_RULE = "Use 1 to 64 letters, digits, dashes, dots and underscores, beginning with a letter or a digit."
# Reading a blueprint validates its schemas, which must not block the event loop. Threads of their own, because each thread that
# validates keeps a process for it; two of them, so that a start, which reads one blueprint, does not wait for a list, which
# reads all.
_LIST_THREAD = ThreadPoolExecutor(1, thread_name_prefix="blueprints")
_READ_THREAD = ThreadPoolExecutor(1, thread_name_prefix="blueprint")
_LIST_HINT = Hint(Command("agents", "blueprints"), " or the tool list_agent_blueprints shows them.")

P = ParamSpec("P")
T = TypeVar("T")


async def list_in_thread(read: Callable[P, T], *args: P.args, **more: P.kwargs) -> T:
    """Call a function that lists blueprints in the thread for lists."""
    return await asyncio.get_running_loop().run_in_executor(_LIST_THREAD, lambda: read(*args, **more))


async def read_in_thread(read: Callable[P, T], *args: P.args, **more: P.kwargs) -> T:
    """Call a function that reads a blueprint in the thread for single blueprints."""
    return await asyncio.get_running_loop().run_in_executor(_READ_THREAD, lambda: read(*args, **more))


class UnusableBlueprint(msgspec.Struct, frozen=True, kw_only=True):
    """A blueprint with a problem: its location (line 0: the file as a whole), what is wrong, and what to do."""

    name: str
    file: str
    line: int
    sentence: str
    remedy: str

    @property
    def error(self) -> str:
        location = f"{self.file}, line {self.line}" if self.line else self.file
        return f"{location}: {self.sentence} {self.remedy}".rstrip()


class BlueprintListing(msgspec.Struct, frozen=True):
    """The usable blueprints of a project by name, and the unusable ones."""

    agents: tuple[Blueprint, ...]
    broken: tuple[UnusableBlueprint, ...]


class _Entry(msgspec.Struct, frozen=True):
    """A name in a root: a folder, a page, or by mistake both. `off` is the path of the file that disables it."""

    name: str
    files: Files
    folder: str = ""
    page: str = ""
    off: str = ""
    trust: RootTrust | None = None

    def read(self) -> Blueprint:
        path = self.folder or self.page
        if self.folder and self.page:
            raise make_error(path, "hidden-file", f"{self.page} has the same name.", "Keep one of the two.")
        if not _NAME.fullmatch(self.name):
            raise make_error(path, "bad-name", "This is not a valid blueprint name.", _NAME_RULE)
        return read_folder(self.files, path, self.name) if self.folder else read_page(self.files, path, self.name)


class BlueprintCatalogue:
    """Looks blueprints up in the roots in their order; the first root that has a name wins.

    A root is a directory with blueprints; a relative path is resolved in the project.
    """

    def __init__(self, roots: Sequence[Path], trust: BlueprintTrust | None = None) -> None:
        self._roots = tuple(roots)
        self._trust = trust

    def list(self, project: str | Path | None = None) -> BlueprintListing:
        entries, unused, broken = self._entries(project)
        read = [_read_trusted(entry) for _, entry in sorted(entries.items()) if not entry.off]
        return BlueprintListing(
            tuple(result for result in read if isinstance(result, Blueprint)),
            (
                *broken,
                *(result for result in read if isinstance(result, UnusableBlueprint)),
                *(_untrusted_blueprint(entry, entry.trust.describe_root()) for entry in unused.values() if entry.trust),
            ),
        )

    def get(self, name: str, project: str | Path | None = None) -> Blueprint:
        """Load a blueprint. Raises `BlueprintNotFound`, `UntrustedProject`, or `BrokenBlueprint` with its problem."""
        if not _NAME.fullmatch(name):
            raise BlueprintNotFound(f"{name!r:.80} is not a valid blueprint name.", remedy=_NAME_RULE)
        entries, unused, _ = self._entries(project)
        entry = entries.get(name)
        if entry is None and name in unused and (trust := unused[name].trust):
            raise trust.error(name, None)
        if entry is None:
            remedy = Hint(f"{suggest_names(name, entries)} ".lstrip(), _LIST_HINT)
            raise BlueprintNotFound(f"Agent not found: no blueprint is called {name}.", remedy=remedy)
        if entry.off:
            raise BlueprintNotFound(
                f"Agent not found: the blueprint {name} is switched off.",
                remedy=f"Take {DISABLED_SUFFIX} away from {entry.off}.",
            )
        read = _read(entry)
        if isinstance(read, UnusableBlueprint):
            raise BrokenBlueprint(f"The blueprint {name} is broken: {read.error}")
        if entry.trust and not entry.trust.accepts(read):
            raise entry.trust.error(name, read)
        return read

    def _entries(
        self, project: str | Path | None
    ) -> tuple[dict[str, _Entry], dict[str, _Entry], tuple[UnusableBlueprint, ...]]:
        """The nearest entry of every name, those of roots that nobody has trusted, and the roots that cannot be listed."""
        entries: dict[str, _Entry] = {}
        unused: dict[str, _Entry] = {}
        broken: tuple[UnusableBlueprint, ...] = ()
        base = Path.cwd() if project is None else Path(project)
        for path in dict.fromkeys(base / root for root in self._roots):
            trust = self._trust.find(path) if self._trust else None
            files = Files(str(path), Memo(), trust.allowed if trust else None)
            try:
                found = {name: msgspec.structs.replace(entry, trust=trust) for name, entry in _list_entries(files).items()}
            except UnreadableDefinition as problem:
                broken = (*broken, _unusable_blueprint(files.root, problem))
                continue
            if trust and trust.level == "none":
                unused = {**found, **unused}
            else:
                entries = {**found, **entries}
        return entries, unused, broken


def _list_entries(files: Files) -> dict[str, _Entry]:
    """The entries of a root: every folder, and every page except the readme."""
    pages, folders = files.files(files.root), files.directories(files.root)
    names = {
        file.removesuffix(DISABLED_SUFFIX).removesuffix(PAGE_SUFFIX)
        for file in pages
        if file.endswith((PAGE_SUFFIX, PAGE_SUFFIX + DISABLED_SUFFIX))
    }
    shown = [name for name in {*names, *folders} if not name.startswith(".") and name.casefold() != "readme"]
    return {escape_name(name): _build_entry(files, name, name in folders, pages) for name in shown}


def _build_entry(files: Files, name: str, is_folder: bool, pages: Sequence[str]) -> _Entry:
    folder, page = join_path(files.root, name), join_path(files.root, name + PAGE_SUFFIX)
    marks = (join_path(folder, DISABLED_SUFFIX) if is_folder and _is_disabled(files, folder) else "", page + DISABLED_SUFFIX)
    off = marks[0] or (marks[1] if name + PAGE_SUFFIX + DISABLED_SUFFIX in pages else "")
    return _Entry(escape_name(name), files, folder if is_folder else "", page if name + PAGE_SUFFIX in pages else "", off)


def _is_disabled(files: Files, folder: str) -> bool:
    try:
        return DISABLED_SUFFIX in files.everything(folder)
    except UnreadableDefinition:
        # Reading the entry will report the problem.
        return False


def _read(entry: _Entry) -> Blueprint | UnusableBlueprint:
    try:
        return entry.read()
    except UnreadableDefinition as problem:
        return _unusable_blueprint(entry.name, problem)


def _read_trusted(entry: _Entry) -> Blueprint | UnusableBlueprint:
    read = _read(entry)
    if isinstance(read, Blueprint) and entry.trust and not entry.trust.accepts(read):
        return _untrusted_blueprint(entry, entry.trust.describe(read))
    return read


def _untrusted_blueprint(entry: _Entry, sentence: str) -> UnusableBlueprint:
    file, remedy = escape_name(entry.folder or entry.page), str(entry.trust.remedy) if entry.trust else ""
    return UnusableBlueprint(name=entry.name, file=file, line=0, sentence=sentence, remedy=remedy)


def _unusable_blueprint(name: str, problem: UnreadableDefinition) -> UnusableBlueprint:
    first = problem.findings[0]
    return UnusableBlueprint(
        name=name,
        file=escape_name(first.file),
        line=first.line,
        sentence=escape_name(first.sentence),
        remedy=escape_name(first.remedy),
    )


# Relative to the project.
PROJECT_ROOTS = tuple(Path(directory) / "agents" for directory in FOUND_DIRECTORIES)


def open_blueprints(home: Home) -> BlueprintCatalogue:
    bundled = Path(__file__).resolve().parents[2] / "bundled" / "blueprints"
    own = [*([home.agents] if home.is_trusted else []), *_user_roots()]
    return BlueprintCatalogue([*PROJECT_ROOTS, home.agents, *_user_roots(), bundled], BlueprintTrust(own, bundled))


def _user_roots() -> list[Path]:
    try:
        return [user_home().agents]
    except HomeProblem:
        # A container may run as a user without an entry in the user database, who has no home directory.
        return []
