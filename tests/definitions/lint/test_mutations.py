"""Breaks one thing in a sound workflow and expects the finding that fits."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fidelio.definitions.describe import render_workflow
from fidelio.definitions.drawing.graph import build_graph
from fidelio.definitions.drawing.mermaid import draw_mermaid
from fidelio.definitions.drawing.svg import draw_svg
from fidelio.definitions.drawing.text import draw_text
from fidelio.definitions.findings import Finding
from fidelio.definitions.library import Library, Root
from fidelio.definitions.lint import has_errors, lint_directory
from fidelio.errors import UnreadableDefinition
from tests.definitions.drawing.workflows import otherwise, way
from tests.definitions.libraries import FORMATS, save, skill, written
from tests.support import proves

MARK = "mutated_name"
_READY = {"type": "simple", "variable": "is_ready", "operator": "==", "value": True}
_LARGE = {"type": "simple", "variable": "size", "operator": "==", "value": "large"}
_TASK = {"type": "simple", "variable": "task.done", "operator": "!=", "value": True}

SOUND: dict[str, Any] = {
    "id": "demo",
    "version": "1.0.0",
    "title": "Demo",
    "initialActivity": "plan",
    "variables": [
        {"name": "is_ready", "type": "boolean", "defaultValue": False},
        {"name": "size", "type": "string"},
        {"name": "tasks", "type": "array"},
    ],
    "artifactLocations": {"notes": "docs/notes"},
    "modes": [{"id": "quick", "name": "Quick", "activationVariable": "is_ready", "skipActivities": ["build"]}],
    "activities": [
        {
            "id": "plan",
            "version": "1.0.0",
            "name": "Plan",
            "steps": [
                {"id": "read", "name": "Read", "skill": "reading"},
                {"id": "agree", "name": "Agree", "checkpoint": "agreed", "condition": _LARGE},
            ],
            "checkpoints": [
                {
                    "id": "agreed",
                    "name": "Agreed?",
                    "message": "Is {size} right?",
                    "blocking": False,
                    "autoAdvanceMs": 3000,
                    "defaultOption": "yes",
                    "options": [
                        {"id": "yes", "label": "Yes", "effect": {"setVariable": {"is_ready": True}}},
                        {"id": "no", "label": "No", "effect": {"transitionTo": "plan"}},
                    ],
                }
            ],
            "artifacts": [{"id": "doc", "name": "plan.md", "location": "notes"}],
            "transitions": [way("build", condition=_READY), otherwise("review")],
        },
        {
            "id": "build",
            "version": "1.0.0",
            "name": "Build",
            "loops": [
                {
                    "id": "each",
                    "name": "Each",
                    "type": "forEach",
                    "variable": "task",
                    "over": "tasks",
                    "steps": [{"id": "saw", "name": "Saw", "skill": "reading", "condition": _TASK}],
                }
            ],
            "transitions": [otherwise("review")],
        },
        {"id": "review", "version": "1.0.0", "name": "Review", "triggers": [{"workflow": "demo", "passContext": ["size"]}]},
    ],
}
BY_KEY = {
    "to": "unresolved-activity",
    "transitionTo": "unresolved-activity",
    "initialActivity": "unresolved-activity",
    "skill": "unresolved-skill",
    "checkpoint": "unresolved-checkpoint",
    "location": "unresolved-location",
    "workflow": "unresolved-workflow",
    "variable": "undeclared-variable",
    "over": "undeclared-variable",
    "activationVariable": "undeclared-mode",
    "defaultOption": "unknown-default-option",
}
Place = tuple[str | int, ...]


def places(data: Any, path: Place = ()) -> Iterator[Place]:
    entries = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in entries:
        yield (*path, key)
        yield from places(value, (*path, key))


def at(data: Any, path: Place) -> Any:
    for key in path:
        data = data[key]
    return data


NAMES = [path for path in places(SOUND) if (path[-1] in BY_KEY and path[-3:-2] != ("loops",)) or path[-1] == "over"]
KEYS = [
    path for path in places(SOUND) if isinstance(path[-1], str) and not {"setVariable", "artifactLocations"} & set(path[:-1])
]
REQUIRED = [path for path in places(SOUND) if path[-1] in ("id", "version", "name", "label", "title", "type", "operator")]
LISTS = [
    path
    for path in places(SOUND)
    if path[-1] in ("variables", "modes", "activities", "steps", "checkpoints", "options", "artifacts", "loops")
]


def linted(data: dict[str, Any], format_: str) -> list[tuple[Finding, str]]:
    with tempfile.TemporaryDirectory() as directory:
        files = {f"demo/workflow.{format_}": written(data, format_), "demo/skills/01-reading.yaml": skill("reading")}
        findings = lint_directory(save(Path(directory), files))
        lines = files[f"demo/workflow.{format_}"].splitlines()
        return [(finding, shown(lines, finding.line)) for finding in findings]


def shown(lines: list[str], number: int) -> str:
    """The line, and before a row of a TOON table also the one with the names of its columns."""
    line = lines[number - 1] if number else ""
    return line if ":" in line else "\n".join(lines[max(number - 2, 0) : number])


few = settings(max_examples=40, deadline=None)
formats = st.sampled_from(FORMATS)


@proves("lint.mutations")
@few
@given(formats)
def test_the_sound_workflow_is_clean(format_: str) -> None:
    assert linted(SOUND, format_) == []


@proves("lint.mutations", "lint.place")
@few
@given(st.sampled_from(NAMES), formats)
def test_a_name_that_leads_nowhere_is_found_at_its_line(path: Place, format_: str) -> None:
    data = copy.deepcopy(SOUND)
    at(data, path[:-1])[path[-1]] = MARK
    expected = BY_KEY[str(path[-1])]

    assert any(finding.rule == expected and MARK in line for finding, line in linted(data, format_))


@proves("lint.mutations", "lint.place", "lint.unknown-keys")
@few
@given(st.sampled_from(KEYS), formats)
def test_a_misspelt_key_is_found_at_its_line(path: Place, format_: str) -> None:
    data = copy.deepcopy(SOUND)
    parent = at(data, path[:-1])
    parent[MARK] = parent.pop(path[-1])
    findings = linted(data, format_)

    rules = ("unknown-key", "lost-effect")
    assert any((finding.rule in rules and MARK in line) or finding.rule == "schema" for finding, line in findings)


@proves("lint.mutations")
@few
@given(st.sampled_from(REQUIRED), formats)
def test_a_missing_key_is_an_error(path: Place, format_: str) -> None:
    data = copy.deepcopy(SOUND)
    del at(data, path[:-1])[path[-1]]

    assert any(finding.severity == "error" for finding, _ in linted(data, format_))


@proves("lint.mutations", "lint.duplicates")
@few
@given(st.sampled_from(LISTS), st.integers(0, 9), formats)
def test_a_repeated_entry_is_found(path: Place, which: int, format_: str) -> None:
    data = copy.deepcopy(SOUND)
    entries = at(data, path)
    entries.append(copy.deepcopy(entries[which % len(entries)]))

    assert "duplicate-id" in {finding.rule for finding, _ in linted(data, format_)}


@proves("lint.mutations")
@few
@given(st.sampled_from(["is_ready", "size", "tasks"]), formats)
def test_a_variable_that_is_no_longer_declared_is_missed(name: str, format_: str) -> None:
    data = copy.deepcopy(SOUND)
    data["variables"] = [variable for variable in data["variables"] if variable["name"] != name]

    assert any(finding.rule == "undeclared-variable" and name in line for finding, line in linted(data, format_))


@proves("lint.mutations")
@few
@given(st.sampled_from(["string", "number", "array", "object"]), formats)
def test_a_variable_of_another_type_is_noticed_wherever_it_is_used(kind: str, format_: str) -> None:
    data = copy.deepcopy(SOUND)
    data["variables"][0]["type"] = kind
    rules = [finding.rule for finding, _ in linted(data, format_)]

    assert rules.count("compared-types") == 1
    assert rules.count("wrong-type") == 2


JUNK = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.text(max_size=8)
    | st.sampled_from([[], {}, [{}], "../x", "a/b/c", "{x}"])
)


@proves("lint.mutations", "drawing.real-files")
@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(list(places(SOUND))), JUNK), min_size=1, max_size=3), formats)
def test_whatever_a_file_says_it_is_linted_and_drawn(changes: list[tuple[Place, Any]], format_: str) -> None:
    data = copy.deepcopy(SOUND)
    for path, value in sorted(changes, key=lambda change: -len(change[0])):
        at(data, path[:-1])[path[-1]] = value
    with tempfile.TemporaryDirectory() as directory:
        root = save(Path(directory), {f"demo/workflow.{format_}": written(data, format_)})
        findings = lint_directory(root)
        try:
            workflow = Library([Root(root, "root")]).workflow("demo")
        except UnreadableDefinition:
            assert has_errors(findings)
        else:
            graph = build_graph(workflow)
            assert draw_svg(graph)
            assert draw_mermaid(graph)
            assert render_workflow(workflow)
            assert draw_text(graph, 40) or not workflow.activities
