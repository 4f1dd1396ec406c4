"""Which files and directories of a root stand for workflows, and which only look as if they did.

What is passed over here would be missing without a word: a name that can never be asked for, or a second file for a workflow
that already has one. So the same walk that finds the workflows also finds these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from fidelio.definitions.findings import Finding, error, warning
from fidelio.definitions.library.files import Files, join
from fidelio.definitions.library.identifiers import escaped, safe_id
from fidelio.errors import UnreachableDefinition, UnreadableDefinition

MANIFESTS = ("workflow.toon", "workflow.yaml", "workflow.yml", "workflow.json")
_SUFFIXES = (".toon", ".yaml", ".yml", ".json")


class Candidate(NamedTuple):
    """A workflow in a root. `id` is None when nobody can ask for it; `directory` is empty for a single file."""

    id: str | None
    name: str
    manifest: str
    directory: str

    @property
    def label(self) -> str:
        return f"{self.name}/" if self.directory else self.name

    @property
    def path(self) -> str:
        return self.directory or self.manifest


def candidates(files: Files, *, only: str | None = None) -> Iterator[Candidate]:
    """Every workflow of the root, in order of increasing weight: of two with one id, the later one is used.

    `only` this one: then it has to be possible to look whether it is there.
    """
    for name in (name for name in files.everything(files.root) if name.endswith(_SUFFIXES) and _meant(name)):
        identifier = safe_id(name.rpartition(".")[0])
        if only in (None, identifier):
            yield Candidate(identifier, name, join(files.root, name), "")
    for name in filter(_meant, files.directories(files.root)):
        identifier, directory = safe_id(name), join(files.root, name)
        if only in (None, identifier) and (manifest := _manifest(files, directory, certain=only is not None)):
            yield Candidate(identifier, name, manifest, directory)


def _meant(name: str) -> bool:
    """What is hidden is hidden on purpose."""
    return not name.startswith(".")


def _manifest(files: Files, directory: str, *, certain: bool) -> str | None:
    try:
        names = files.everything(directory)
    except UnreadableDefinition as problem:
        if certain and isinstance(problem, UnreachableDefinition):
            raise
        # Whoever asks for it is told why; a workflow that silently is not there would be worse.
        return join(directory, MANIFESTS[0])
    return next((join(directory, name) for name in MANIFESTS if name in names), None)


def passed_over(files: Files) -> Iterator[Finding]:
    """What lies in the root and is not used, and the root itself when it cannot be listed."""
    try:
        found = list(candidates(files))
    except UnreadableDefinition as problem:
        yield from (finding for finding in problem.findings if isinstance(finding, Finding))
        return
    used = {one.id: one for one in found}
    for one in found:
        if one.id is None:
            yield misnamed(files.root, one.name)
        elif used[one.id] is not one:
            yield _hidden(one.path, one.label, used[one.id].label, f"The workflow {one.id}")
        if one.directory and one.id is not None:
            yield from _second_manifests(files, one)


def misnamed(directory: str, name: str) -> Finding:
    sentence = f"Nobody can ask for '{escaped(name)}': no id has such a name, so it is left out."
    remedy = "Rename it with letters, digits and dashes."
    return error(join(directory, escaped(name)), "bad-name", sentence, remedy)


def further(directory: str, names: Iterable[str], wanted: tuple[str, ...], what: str) -> Iterator[Finding]:
    """The files that mean the same as the first of them."""
    there = set(names)
    first, *others = [name for name in wanted if name in there] or [""]
    yield from (_hidden(join(directory, name), name, first, what) for name in others)


def _second_manifests(files: Files, one: Candidate) -> Iterator[Finding]:
    try:
        names = files.everything(one.directory)
    except UnreadableDefinition:
        return
    yield from further(one.directory, names, MANIFESTS, f"The workflow {one.id}")


def _hidden(path: str, name: str, used: str, what: str) -> Finding:
    sentence = f"{what} stands in both {name} and {used}; {used} is used."
    return warning(path, "hidden-file", sentence, "Keep one of the two, and delete or rename the other.")
