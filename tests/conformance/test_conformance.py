"""The official conformance suite against our HTTP stack, every scenario that a revision lists, scored or not."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.conformance.node import environment
from tests.support import proves

EXPECTED = Path(__file__).with_name("expected-failures.yaml")
REVISIONS = ("2025-11-25", "2026-07-28")
# The suite is large; a run in which it found almost nothing to do would prove nothing.
AT_LEAST = {"2025-11-25": 30, "2026-07-28": 40}
_RESULT = re.compile(r"server-(.+)-\d{4}-\d\d-\d\dT[\d-]+Z")


@dataclass(frozen=True)
class SuiteRun:
    """What the suite said: scenarios with a failed check, and all of them."""

    failed: frozenset[str]
    all: frozenset[str]


def run_suite(javascript: Path, address: str, revision: str, results: Path) -> SuiteRun:
    suite = javascript / "node_modules" / ".bin" / "conformance"
    command = [str(suite), "server", "--url", f"{address}/mcp", "--requirements", revision, "-o", str(results)]
    subprocess.run(command, env=environment(), check=False, capture_output=True, timeout=180)
    statuses = dict(map(statuses_in, results.iterdir()))
    return SuiteRun(frozenset(name for name, found in statuses.items() if "FAILURE" in found), frozenset(statuses))


def statuses_in(result: Path) -> tuple[str, set[str]]:
    named = _RESULT.fullmatch(result.name)
    assert named is not None, result.name
    checks = json.loads((result / "checks.json").read_text("utf-8"))
    return named[1], {check["status"] for check in checks}


def expected(revision: str) -> set[str]:
    entries = yaml.safe_load(EXPECTED.read_text("utf-8"))
    assert all(entry["reason"].strip() for entry in entries)
    return {entry["scenario"] for entry in entries if entry["revision"] == revision}


@proves("mcp.conformance")
@pytest.mark.parametrize("revision", REVISIONS)
def test_the_conformance_suite_passes_but_for_what_is_listed_with_a_reason(
    javascript: Path, fixture_server: str, revision: str, tmp_path: Path
) -> None:
    run = run_suite(javascript, fixture_server, revision, tmp_path)

    assert run.failed == expected(revision)
    assert len(run.all) >= AT_LEAST[revision]


@proves("mcp.conformance")
def test_only_the_tasks_extension_is_excepted() -> None:
    assert all(name.startswith("tasks-") for revision in REVISIONS for name in expected(revision))
