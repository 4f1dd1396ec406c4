"""Operations on workflows: the library with its findings, a drawing, and starting a run."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace
from starlette.responses import Response

from fidelio.app.acting import find_input_problems
from fidelio.app.application import Application
from fidelio.definitions.drawing.graph import build_graph
from fidelio.definitions.drawing.svg import draw_svg
from fidelio.definitions.library.listing import WorkflowSummary
from fidelio.definitions.lint import count_findings, encode_findings, lint
from fidelio.surfaces.http.api.dispatch import refuse_fields
from fidelio.surfaces.http.api.operations import (
    ApiCall,
    ApiOperation,
    Created,
    CreatedReply,
    HttpProblem,
    Listed,
    Name,
    NoQuery,
    Paging,
    cut_page,
    list_items,
)
from fidelio.surfaces.views.definitions import FindingView, WorkflowEntry, view_workflow

_SVG = "image/svg+xml"
# A drawing has its style inline, and nothing else may run or be loaded.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; sandbox"


class CheckedWorkflow(WorkflowEntry, frozen=True, kw_only=True):
    """A workflow in a list, with the numbers of its findings of lint."""

    errors: int
    warnings: int


class LinkedFinding(FindingView, frozen=True, kw_only=True):
    """A finding of lint, with the page of the repository and the command that explain its rule."""

    link: str
    explained_by: str


class NewRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How agents carry out a workflow.

    `inputs` are values of its variables, `agent` the blueprint of the workers, `project` the directory in which they work.
    """

    inputs: dict[str, Any] = {}
    agent: Name = ""
    project: Name = ""


async def list_workflows(call: ApiCall[Paging, None]) -> Listed[CheckedWorkflow]:
    application = call.services.application
    library = await application.library()
    counts = await asyncio.to_thread(count_findings, library)
    entries, more = cut_page(library.checked_list(), _read_id, call.query)
    shown = (_count(view_workflow(each), counts[each.id]["error"], counts[each.id]["warning"], application) for each in entries)
    return list_items(shown, more)


def _read_id(entry: WorkflowSummary) -> str:
    return entry.id


def _count(entry: WorkflowEntry, errors: int, warnings: int, application: Application) -> CheckedWorkflow:
    findings = tuple(_hide(finding, application) for finding in entry.findings)
    values = msgspec.structs.asdict(replace(entry, findings=findings))
    return CheckedWorkflow(**values, errors=errors, warnings=warnings)


def _hide(finding: FindingView, application: Application) -> FindingView:
    """A finding without the directories of this machine."""
    clean = application.remove_root_paths
    return replace(finding, file=clean(finding.file), sentence=clean(finding.sentence), remedy=clean(finding.remedy))


async def read_workflow(call: ApiCall[NoQuery, None]) -> dict[str, Any]:
    library, name = await call.services.application.library(), call.path("workflow")
    return {**library.snapshot(name), "hash": library.content_hash(name)}


async def list_findings(call: ApiCall[Paging, None]) -> Listed[LinkedFinding]:
    application = call.services.application
    library, name = await application.library(), call.path("workflow")
    library.entry(name)
    found = encode_findings(await asyncio.to_thread(lint, library, name))
    first = _read_offset(call.query.after)
    page = found[first : first + call.query.limit]
    more = str(first + len(page)) if first + len(page) < len(found) else None
    return list_items((_hide(LinkedFinding(**finding), application) for finding in page), more)


def _read_offset(after: str | None) -> int:
    text = after or "0"
    if not (text.isascii() and text.isdigit() and len(text) < 8):
        raise HttpProblem(400, "api.parameter", f"after: {text!r:.40} is no `next` of this list.", "Leave it out.")
    return int(text)


async def draw_workflow(call: ApiCall[NoQuery, None]) -> Response:
    library = await call.services.application.library()
    drawing = draw_svg(build_graph(library.workflow(call.path("workflow"))))
    headers = {"content-security-policy": _POLICY, "x-content-type-options": "nosniff", "cache-control": "private, no-cache"}
    return Response(drawing, media_type=_SVG, headers=headers)


async def run_workflow(call: ApiCall[NoQuery, NewRun]) -> CreatedReply:
    sender, wanted = call.sender, call.body
    workflow = (await call.services.application.library()).workflow(call.path("workflow"))
    if problems := find_input_problems(workflow, wanted.inputs):
        raise refuse_fields({f"inputs.{name}": sentence for name, sentence in problems.items()})
    session = await call.services.actions.run_workflow(
        workflow.id, wanted.inputs, agent=wanted.agent, project=wanted.project, by=sender.person
    )
    return CreatedReply(Created(session), {"location": f"/api/sessions/{session}"})


_WORKFLOW = "/api/workflows/{workflow}"
_define = partial(ApiOperation, group="Workflows", failures=(404, 409))
OPERATIONS = (
    ApiOperation(
        method="GET",
        path="/api/workflows",
        name="listWorkflows",
        group="Workflows",
        summary="List the workflows on the search path, with the numbers of their findings.",
        handler=list_workflows,
        query=Paging,
        result=Listed[CheckedWorkflow],
    ),
    _define(
        method="GET",
        path=_WORKFLOW,
        name="readWorkflow",
        summary="Read the definition of a workflow: the same keys as on the command line.",
        handler=read_workflow,
        result=dict[str, Any],
    ),
    _define(
        method="GET",
        path=f"{_WORKFLOW}/findings",
        name="listFindings",
        summary="Check the files of a workflow and list the findings.",
        handler=list_findings,
        query=Paging,
        result=Listed[LinkedFinding],
    ),
    _define(
        method="GET",
        path=f"{_WORKFLOW}/drawing",
        name="drawWorkflow",
        summary="Draw a workflow as SVG.",
        handler=draw_workflow,
        result=_SVG,
    ),
    _define(
        method="POST",
        path=f"{_WORKFLOW}/runs",
        name="runWorkflow",
        summary="Let agents carry out a workflow. The run goes on in the server.",
        handler=run_workflow,
        body=NewRun,
        result=Created,
        status=201,
    ),
)
