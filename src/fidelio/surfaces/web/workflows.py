"""Pages of the library: the workflows on the search path, and a workflow with its drawing.

The drawing in a page is the picture of `fidelio draw`, with the position of a session marked in it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
from markupsafe import Markup

from fidelio.conductor.plan import DEFAULT_WORKER
from fidelio.definitions.drawing.graph import Graph, build_graph, find_target_node
from fidelio.definitions.drawing.svg import NO_MARKS, draw_svg_for_page
from fidelio.definitions.findings import Finding
from fidelio.definitions.library import Library
from fidelio.definitions.library.listing import WorkflowSummary
from fidelio.definitions.lint import count_findings, lint
from fidelio.definitions.models import Workflow
from fidelio.errors import FidelioError
from fidelio.surfaces.web.inputs import make_fields, read_inputs
from fidelio.surfaces.web.pages import PageContent, PageRequest, PageRoute, Redirect, Result

# Files of definitions: their names end like this, and more or larger ones are not shown.
_TEXTS = frozenset({".yaml", ".yml", ".toon", ".md", ".json"})
_MOST_FILES, _LONGEST_FILE = 100, 256 * 1024


class ActivityEntry(msgspec.Struct, frozen=True):
    """An activity with the text of its definition."""

    id: str
    name: str
    text: str


class LibraryEntry(msgspec.Struct, frozen=True):
    """A workflow in the list of the library, with the numbers of its findings of lint."""

    summary: WorkflowSummary
    errors: int
    warnings: int


async def _list_workflows(request: PageRequest) -> Result:
    library = await request.services.application.library()
    counts = await asyncio.to_thread(count_findings, library)
    entries = [LibraryEntry(entry, counts[entry.id]["error"], counts[entry.id]["warning"]) for entry in library.list()]
    return PageContent("workflows.html", {"entries": entries, "untrusted": [str(root.path) for root in library.untrusted]})


async def _show_workflow(request: PageRequest) -> Result:
    return await _show_form(request, {}, {})


async def _show_form(request: PageRequest, typed: Mapping[str, str], problems: Mapping[str, str]) -> Result:
    """A workflow with its drawing and the form that starts a run; after a problem with what was typed."""
    library, name = await request.services.application.library(), request.path("workflow")
    entry = library.entry(name)
    if entry.broken:
        # A broken file cannot be drawn; its findings say where it is broken.
        return PageContent("workflow.html", {"entry": entry, "drawing": Markup(""), "activities": []})
    blueprints = await asyncio.to_thread(request.services.application.blueprints().list, request.services.project)
    workflow = library.workflow(name)
    values = {
        "workflow": workflow,
        "blueprints": blueprints.agents,
        "default": DEFAULT_WORKER,
        "project": request.services.project,
        "fields": make_fields(workflow, typed, problems),
        "typed": typed,
        "problems": problems,
        "activities": _list_activities(library, name),
    }
    status = HTTPStatus.BAD_REQUEST if problems else HTTPStatus.OK
    return PageContent("workflow.html", {**values, "entry": entry, "drawing": draw_workflow(library, name)}, status)


def _list_activities(library: Library, name: str) -> list[ActivityEntry]:
    """The definition of each activity, as the file has it."""
    activities = library.workflow(name).activities
    return [ActivityEntry(each.id, each.name, library.source("activity", each.id, workflow=name).toon) for each in activities]


def draw_workflow(library: Library, workflow: str) -> Markup:
    """The drawing of a workflow in its page."""
    return _draw(build_graph(library.workflow(workflow)), "", {}, {})


def draw_session(
    workflow: Workflow, record: Mapping[str, Any], taken: Sequence[str], states: Mapping[str, str] = NO_MARKS
) -> Markup:
    """The drawing of the workflow of a session: where it is, where it has been, and which transitions are open now.

    `taken` are the activities in the order in which it entered them, `states` those of the transitions by their targets.
    """
    activity = find_activity(record)
    marks = dict.fromkeys((*(record.get("completed") or ()), *taken), "visited")
    if record.get("status") not in ("completed", "cancelled"):
        marks[activity] = "current"
    edges = dict.fromkeys(pairwise(taken), "taken")
    edges |= {(activity, find_target_node(workflow, target)): state for target, state in states.items()}
    return _draw(build_graph(workflow), f"/workflows/{quote(workflow.id)}", marks, edges)


def _draw(graph: Graph, address: str, marks: Mapping[str, str], edge_marks: Mapping[tuple[str, str], str]) -> Markup:
    """Every text in a drawing is escaped by the drawing itself."""
    return Markup(draw_svg_for_page(graph, address, marks=marks, edge_marks=edge_marks))  # noqa: S704  # escaped by the drawing


def find_activity(record: Mapping[str, Any]) -> str:
    """The activity that a workflow session is in."""
    return str((record.get("here") or {}).get("activity", ""))


class ListedLine(msgspec.Struct, frozen=True):
    """A line of a file with what lint found in it."""

    number: int
    text: str
    findings: tuple[Finding, ...]


class ListedFile(msgspec.Struct, frozen=True):
    """A file of a workflow. `findings` are those of the whole file."""

    name: str
    lines: tuple[ListedLine, ...]
    findings: tuple[Finding, ...]

    @property
    def all_findings(self) -> tuple[Finding, ...]:
        return (*self.findings, *(finding for line in self.lines for finding in line.findings))


async def _show_source(request: PageRequest) -> Result:
    """The files of a workflow, each line with its findings of lint."""
    library, name = await request.services.application.library(), request.path("workflow")
    title = library.entry(name).title
    files = await asyncio.to_thread(_read_sources, library, name)
    count = sum(len(file.all_findings) for file in files)
    return PageContent("source.html", {"workflow": name, "title": title, "files": files, "count": count})


def _read_sources(library: Library, name: str) -> list[ListedFile]:
    path, findings = library.path(name), defaultdict[Path, list[Finding]](list)
    for finding in lint(library, name):
        findings[Path(finding.file)].append(finding)
    found = sorted(each for each in path.rglob("*") if each.suffix in _TEXTS) if path.is_dir() else [path]
    # A link may lead out of the directory of definitions.
    files = [each for each in found if each.is_file() and not each.is_symlink() and each.stat().st_size <= _LONGEST_FILE]
    return [_read_source(each, path, findings[each]) for each in files[:_MOST_FILES]]


def _read_source(file: Path, directory: Path, findings: list[Finding]) -> ListedFile:
    texts = file.read_text("utf-8", "replace").split("\n")
    by_line = {number: tuple(each for each in findings if each.line == number) for number in {each.line for each in findings}}
    lines = tuple(ListedLine(number, text, by_line.get(number, ())) for number, text in enumerate(texts, 1))
    name = file.name if file == directory else str(file.relative_to(directory))
    return ListedFile(name, lines, tuple(each for each in findings if not 1 <= each.line <= len(texts)))


async def _run_workflow(request: PageRequest) -> Result:
    """Let agents carry out the workflow, with the inputs of the form. The run goes on in this server."""
    person = await request.require_person()
    services, fields = request.services, request.fields
    workflow = (await services.application.library()).workflow(request.path("workflow"))
    inputs, problems = read_inputs(workflow, fields)
    if problems:
        return await _show_form(request, fields, problems)
    project, agent = fields.get("project", "").strip(), fields.get("agent", "")
    try:
        session = await services.actions.run_workflow(workflow.id, inputs, agent=agent, project=project, by=person)
    except FidelioError as problem:
        return await _show_form(request, fields, {"": str(problem)})
    return Redirect(f"/sessions/{session}?done=started")


ROUTES = (
    PageRoute(path="/workflows", show=_list_workflows),
    PageRoute(path="/workflows/{workflow}/source", show=_show_source),
    PageRoute(path="/workflows/{workflow}", show=_show_workflow, change=_run_workflow),
)
