"""Find the files and directories of a root that are workflows, and report those that are ignored.

Ignored are names that are not valid ids, and further files of a workflow that already has one. They are reported as findings,
so that they do not disappear silently.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from fidelio.definitions.findings import Finding, error, warning
from fidelio.definitions.library.files import Files, join_path
from fidelio.definitions.library.identifiers import escape_name, normalize_id
from fidelio.errors import InaccessibleDefinition, UnreadableDefinition

MANIFESTS = ("workflow.toon", "workflow.yaml", "workflow.yml", "workflow.json")
_SUFFIXES = (".toon", ".yaml", ".yml", ".json")


class WorkflowCandidate(NamedTuple):
    """A workflow in a root. `id` is None if the name is not a valid id; `directory` is empty for a single file."""

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


def find_candidates(files: Files, *, only: str | None = None) -> Iterator[WorkflowCandidate]:
    """The workflows of the root, in order of increasing precedence: of two with the same id, the later is used.

    With `only`, just the workflow with this id; an inaccessible directory is then an error.
    """
    for name in (name for name in files.everything(files.root) if name.endswith(_SUFFIXES) and _is_visible(name)):
        identifier = normalize_id(name.rpartition(".")[0])
        if only in (None, identifier):
            yield WorkflowCandidate(identifier, name, join_path(files.root, name), "")
    for name in filter(_is_visible, files.directories(files.root)):
        identifier, directory = normalize_id(name), join_path(files.root, name)
        if only in (None, identifier) and (manifest := _find_manifest(files, directory, certain=only is not None)):
            yield WorkflowCandidate(identifier, name, manifest, directory)


def _is_visible(name: str) -> bool:
    """Whether the name is not hidden by a leading dot."""
    return not name.startswith(".")


def _find_manifest(files: Files, directory: str, *, certain: bool) -> str | None:
    try:
        names = files.everything(directory)
    except UnreadableDefinition as problem:
        if certain and isinstance(problem, InaccessibleDefinition):
            raise
        # Assume a manifest: reading it reports the error, while leaving the workflow out would hide it.
        return join_path(directory, MANIFESTS[0])
    return next((join_path(directory, name) for name in MANIFESTS if name in names), None)


def find_unused_files(files: Files) -> Iterator[Finding]:
    """Findings for files in the root that are not used, and for the root if it cannot be listed."""
    try:
        candidates = list(find_candidates(files))
    except UnreadableDefinition as problem:
        yield from (finding for finding in problem.findings if isinstance(finding, Finding))
        return
    used = {candidate.id: candidate for candidate in candidates}
    for candidate in candidates:
        if candidate.id is None:
            yield report_misnamed(files.root, candidate.name)
        elif used[candidate.id] is not candidate:
            yield _make_hidden_finding(
                candidate.path, candidate.label, used[candidate.id].label, f"The workflow {candidate.id}"
            )
        if candidate.directory and candidate.id is not None:
            yield from _report_second_manifests(files, candidate)


def report_misnamed(directory: str, name: str) -> Finding:
    sentence = f"'{escape_name(name)}' is not a valid id, so it is left out."
    remedy = "Rename it with letters, digits and dashes."
    return error(join_path(directory, escape_name(name)), "bad-name", sentence, remedy)


def report_hidden(directory: str, names: Iterable[str], wanted: tuple[str, ...], what: str) -> Iterator[Finding]:
    """Findings for the files that are hidden by the first existing file of `wanted`."""
    existing = set(names)
    first, *others = [name for name in wanted if name in existing] or [""]
    yield from (_make_hidden_finding(join_path(directory, name), name, first, what) for name in others)


def _report_second_manifests(files: Files, candidate: WorkflowCandidate) -> Iterator[Finding]:
    try:
        names = files.everything(candidate.directory)
    except UnreadableDefinition:
        return
    yield from report_hidden(candidate.directory, names, MANIFESTS, f"The workflow {candidate.id}")


def _make_hidden_finding(path: str, name: str, used: str, what: str) -> Finding:
    sentence = f"{what} is in both {name} and {used}; {used} is used."
    return warning(path, "hidden-file", sentence, "Keep one of the two, and delete or rename the other.")
