"""Pages of the library: the workflows on the search path, and a workflow with its drawing.

The drawing in a page is the picture of `fidelio draw`, with the position of a session marked in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from fidelio.definitions.drawing.graph import build_graph
from fidelio.definitions.drawing.svg import draw_svg
from fidelio.definitions.library import Library
from fidelio.surfaces.text import escape_text
from fidelio.surfaces.web.pages import PageContent, PageRequest, PageRoute, Result


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
        return PageContent("workflow.html", {"entry": entry, "drawing": Markup("")})
    return PageContent("workflow.html", {"entry": entry, "drawing": draw_workflow(library, name)})


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


ROUTES = (
    PageRoute(path="/workflows", show=_list_workflows),
    PageRoute(path="/workflows/{workflow}", show=_show_workflow),
)
