"""Pages of the library: the workflows on the search path, and a workflow with its drawing.

The drawing in a page is the picture of `fidelio draw`, with the position of a session marked in it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from markupsafe import Markup

from fidelio.conductor.context import ignore_event
from fidelio.conductor.plan import DEFAULT_WORKER, Plan, parse_inputs
from fidelio.definitions.drawing.graph import build_graph
from fidelio.definitions.drawing.svg import draw_svg
from fidelio.definitions.findings import Finding
from fidelio.definitions.library import Library
from fidelio.definitions.lint import lint
from fidelio.surfaces.text import escape_text
from fidelio.surfaces.web.pages import PageContent, PageRequest, PageRoute, Redirect, Result

# Files of definitions: their names end like this, and more or larger ones are not shown.
_TEXTS = frozenset({".yaml", ".yml", ".toon", ".md", ".json"})
_MOST_FILES, _LONGEST_FILE = 100, 256 * 1024


class ActivityEntry(msgspec.Struct, frozen=True):
    """An activity with the text of its definition."""

    id: str
    name: str
    text: str


async def _list_workflows(request: PageRequest) -> Result:
    library = await request.services.application.library()
    return PageContent(
        "workflows.html", {"workflows": library.list(), "untrusted": [str(root.path) for root in library.untrusted]}
    )


async def _show_workflow(request: PageRequest) -> Result:
    library, name = await request.services.application.library(), request.path("workflow")
    entry = library.entry(name)
    if entry.broken:
        # A broken file cannot be drawn; its findings say where it is broken.
        return PageContent("workflow.html", {"entry": entry, "drawing": Markup(""), "activities": []})
    blueprints = await asyncio.to_thread(request.services.application.blueprints().list, request.services.project)
    values = {
        "workflow": library.workflow(name),
        "blueprints": blueprints.agents,
        "default": DEFAULT_WORKER,
        "activities": _list_activities(library, name),
    }
    return PageContent("workflow.html", {**values, "entry": entry, "drawing": draw_workflow(library, name)})


def _list_activities(library: Library, name: str) -> list[ActivityEntry]:
    """The definition of each activity, as the file has it."""
    activities = library.workflow(name).activities
    return [ActivityEntry(each.id, each.name, library.source("activity", each.id, workflow=name).toon) for each in activities]


def draw_workflow(library: Library, workflow: str) -> Markup:
    """The drawing of a workflow. Every text in it is escaped by the drawing itself."""
    return Markup(draw_svg(build_graph(library.workflow(workflow)), styled=False))  # noqa: S704  # escaped by draw_svg


def draw_session(library: Library, record: Mapping[str, Any]) -> Markup:
    """The drawing of the workflow of a session: where it is and which activities it has been in."""
    marks = dict.fromkeys(record.get("completed") or (), "visited")
    if record.get("status") not in ("completed", "cancelled"):
        marks[find_activity(record)] = "current"
    graph = build_graph(library.workflow(escape_text(str(record.get("workflow") or ""))))
    return Markup(draw_svg(graph, marks=marks, styled=False))  # noqa: S704  # escaped by draw_svg


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


async def _show_source(request: PageRequest) -> Result:
    """The files of a workflow, each line with its findings of lint."""
    library, name = await request.services.application.library(), request.path("workflow")
    title = library.entry(name).title
    files = await asyncio.to_thread(_read_sources, library, name)
    count = sum(len(file.findings) + sum(len(line.findings) for line in file.lines) for file in files)
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
    await request.require_person()
    services, fields = request.services, request.fields
    workflow = (await services.application.library()).workflow(request.path("workflow"))
    pairs = [f"{name[6:]}={text}" for name, text in fields.items() if name.startswith("input-") and text.strip()]
    plan = Plan(
        workflow=workflow.id,
        project=services.project,
        agent=fields.get("agent") or DEFAULT_WORKER,
        inputs=parse_inputs(pairs, workflow),
    )
    conductor = await services.application.conductor(ignore_event)
    run = await conductor.find_or_start(plan, force_new=True)
    services.keep_running(conductor.run(run.session))
    return Redirect(f"/sessions/{run.session}")


ROUTES = (
    PageRoute(path="/workflows", show=_list_workflows),
    PageRoute(path="/workflows/{workflow}/source", show=_show_source),
    PageRoute(path="/workflows/{workflow}", show=_show_workflow, change=_run_workflow),
)
