"""The blueprints that come with Fidelio."""

from __future__ import annotations

from pathlib import Path

import fidelio
from fidelio.definitions.library import Library
from fidelio.definitions.library.search_path import bundled_root as bundled_workflows
from fidelio.orchestrator.blueprints.catalogue import BlueprintCatalogue
from fidelio.orchestrator.blueprints.model import Blueprint
from fidelio.orchestrator.executors.common import decide_permission, mcp_tool_name
from tests.support import proves


def bundled(tmp_path: Path) -> dict[str, Blueprint]:
    listing = BlueprintCatalogue([Path(fidelio.__file__).parent / "bundled" / "blueprints"]).list(tmp_path)
    assert listing.broken == ()
    return {one.name: one for one in listing.agents}


@proves("blueprints.bundled")
def test_five_blueprints_are_bundled_and_sound(tmp_path: Path) -> None:
    found = bundled(tmp_path)

    assert list(found) == ["code-reviewer", "documentation-writer", "echo", "system-architect", "workflow-worker"]
    assert {name: one.executor for name, one in found.items() if one.executor} == {"echo": "scripted"}
    assert all(len(one.system_prompt) > 1_000 for name, one in found.items() if name != "echo")


@proves("blueprints.bundled")
def test_the_reading_blueprints_may_change_nothing(tmp_path: Path) -> None:
    found = bundled(tmp_path)

    for name in ("code-reviewer", "system-architect", "echo"):
        assert decide_permission(found[name].permissions, ["Edit"], "files") == "deny"
    assert decide_permission(found["documentation-writer"].permissions, ["Edit"], "files") == "allow"


@proves("blueprints.bundled")
def test_a_worker_uses_the_workflow_tools_without_asking_and_knows_its_duties(tmp_path: Path) -> None:
    worker = bundled(tmp_path)["workflow-worker"]

    assert decide_permission(worker.permissions, [mcp_tool_name("fidelio", "yield_checkpoint")], "something") == "allow"
    assert decide_permission(worker.permissions, ["Bash"], "something") == "ask"
    for word in (
        "get_activity",
        "get_skill",
        "get_resource",
        "yield_checkpoint",
        "resume_checkpoint",
        '"steps"',
        '"variables"',
    ):
        assert word in worker.system_prompt
    assert "Call `next_activity`" in worker.system_prompt.partition("What you never do")[2]


@proves("blueprints.bundled")
def test_blueprints_are_not_taken_for_workflows() -> None:
    library = Library([bundled_workflows()])

    assert "blueprints" not in [entry.id for entry in library.list()]
    assert library.findings() == ()
