"""Definitions on the command line: list, show, draw, lint, and the tour."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree as ET

from tests.support import proves
from tests.surfaces.conftest import Fidelio

GOOD = """id: {id}
version: 1.0.0
title: A good one
initialActivity: only
activities:
  - id: only
    version: 1.0.0
    name: Only
"""


def write(root: Path, name: str, text: str) -> Path:
    (root / name).mkdir(parents=True)
    (root / name / "workflow.yaml").write_text(text.format(id=name))
    return root


@proves("cli.definitions", "cli.json")
def test_the_bundled_workflows_are_listed(fidelio: Fidelio) -> None:
    listed = json.loads(fidelio("list", "--json").stdout)["items"]

    assert {"hello", "meta"} <= {workflow["id"] for workflow in listed}
    assert not any(workflow["broken"] for workflow in listed)
    assert "hello" in fidelio("list").stdout


@proves("cli.definitions")
def test_a_project_brings_its_own_workflows_and_a_directory_replaces_them_all(
    fidelio: Fidelio, home: Path, tmp_path: Path
) -> None:
    write(home / "workflows", "mine", GOOD)
    other = write(tmp_path / "other", "theirs", GOOD)

    def ids(*options: str) -> list[str]:
        return [workflow["id"] for workflow in json.loads(fidelio("list", *options, "--json").stdout)["items"]]

    assert {"hello", "mine"} <= set(ids())
    assert ids("--workflows", str(other)) == ["theirs"]
    assert {"hello", "theirs"} <= set(ids("--workflows", str(other), "--with-bundled"))


@proves("cli.definitions", "cli.errors")
def test_what_is_missing_is_named_with_what_is_near(fidelio: Fidelio) -> None:
    unknown, nowhere = fidelio("show", "helo"), fidelio("list", "--workflows", "nowhere")

    assert (unknown.returncode, nowhere.returncode) == (4, 2)
    assert "hello" in unknown.stderr
    assert "There is no directory nowhere." in nowhere.stderr


@proves("cli.definitions")
def test_a_workflow_is_shown_in_words_and_as_json(fidelio: Fidelio) -> None:
    shown = fidelio("show", "hello").stdout
    data = json.loads(fidelio("show", "hello", "--json").stdout)

    assert "Shall I leave a note about this project" in shown
    assert [activity["id"] for activity in data["activities"]] == ["greet", "compose", "farewell"]
    assert len(data["hash"]) == 64


@proves("cli.definitions")
def test_a_workflow_is_drawn_as_picture_flowchart_and_text(fidelio: Fidelio, tmp_path: Path) -> None:
    done = fidelio("draw", "hello", "-o", "hello.svg")
    picture = ET.fromstring((tmp_path / "hello.svg").read_text())

    assert done.returncode == 0
    assert picture.tag.endswith("svg")
    assert "flowchart" in fidelio("draw", "hello", "--format", "mermaid").stdout
    assert "Write the note" in fidelio("draw", "hello").stdout
    assert fidelio("draw", "hello", "-o", "hello.png").returncode == 2
    assert fidelio("draw", "hello", "-o", "no/such/hello.svg").returncode == 2


@proves("cli.definitions", "cli.json")
def test_lint_ends_with_1_when_there_are_errors_and_names_the_line(fidelio: Fidelio, tmp_path: Path) -> None:
    good = write(tmp_path / "good", "fine", GOOD)
    bad = write(tmp_path / "bad", "lost", GOOD.replace("initialActivity: only", "initialActivity: gone"))

    clean, broken = fidelio("lint", str(good)), fidelio("lint", str(bad))
    findings = json.loads(fidelio("lint", str(bad), "--json").stdout)["items"]

    assert (clean.returncode, clean.stdout) == (0, "No findings.\n")
    assert broken.returncode == 1
    assert "bad/lost/workflow.yaml:4:" in broken.stdout
    assert all({"file", "line", "rule", "sentence", "remedy"} <= set(finding) for finding in findings)


@proves("cli.definitions")
def test_the_bundled_workflows_have_no_findings(fidelio: Fidelio) -> None:
    assert fidelio("lint").stdout == "No findings.\n"


@proves("cli.tour")
def test_the_tour_shows_workflows_a_drawing_and_a_session_that_verifies(fidelio: Fidelio) -> None:
    tour = fidelio("tour")

    assert (tour.returncode, tour.stderr) == (0, "")
    for sight in ("hello", "0 errors, 0 warnings", "Write the note", "entered greet", "events holds", " up --demo "):
        assert sight in tour.stdout
    assert re.fullmatch(r"(\d+) of \1 sessions hold\.\n", fidelio("verify", "--all").stdout)


@proves("cli.tour", "cli.json")
def test_the_tour_tells_programs_what_it_found(fidelio: Fidelio) -> None:
    tour = json.loads(fidelio("tour", "--json").stdout)

    assert {"hello", "meta"} <= set(tour["workflows"])
    assert tour["lint"] == {"errors": 0, "warnings": 0}
    assert fidelio("verify", tour["session"]["id"], "--head", tour["session"]["head"]).returncode == 0


@proves("cli.definitions", "cli.json")
def test_a_drawing_is_told_to_programs_and_its_name_may_be_in_capitals(fidelio: Fidelio, tmp_path: Path) -> None:
    drawn = json.loads(fidelio("draw", "hello", "--format", "mermaid", "--json").stdout)
    saved = json.loads(fidelio("draw", "hello", "-o", "HELLO.SVG", "--json").stdout)

    assert drawn["format"] == "mermaid"
    assert "\nflowchart " in drawn["content"]
    assert (saved["format"], saved["file"]) == ("svg", "HELLO.SVG")
    assert (tmp_path / "HELLO.SVG").read_text() == saved["content"] + "\n"


@proves("cli.lint-nothing")
def test_a_directory_without_workflows_is_not_called_sound(fidelio: Fidelio, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    write(tmp_path / "parent" / "library", "fine", GOOD)

    for place in ("empty", "parent"):
        done = fidelio("lint", place)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"No workflow was found in {place}." in done.stderr
    assert fidelio("lint", "parent/library").stdout == "No findings.\n"
    assert fidelio("lint", "parent/library/fine").stdout == "No findings.\n"


@proves("cli.definitions")
def test_lint_reads_a_directory_as_it_is_served(fidelio: Fidelio, tmp_path: Path) -> None:
    borrowed = (
        GOOD.replace("activities:", "skills:\n  primary: hello/greeting\nactivities:")
        + "    triggers:\n      workflow: hello\n"
    )
    write(tmp_path / "own", "borrower", borrowed)

    alone = json.loads(fidelio("lint", "own", "--json").stdout)["items"]
    together = json.loads(fidelio("lint", "own", "--with-bundled", "--json").stdout)["items"]

    assert "unresolved-workflow" in {finding["rule"] for finding in alone}
    assert "unresolved-workflow" not in {finding["rule"] for finding in together}
    assert all("--with-bundled" in finding["remedy"] for finding in alone if finding["rule"] == "unresolved-workflow")


@proves("cli.doctor", "cli.definitions")
def test_a_part_that_cannot_be_read_is_not_called_sound(fidelio: Fidelio, home: Path) -> None:
    write(home / "workflows", "mine", GOOD)
    (home / "workflows" / "mine" / "activities").mkdir()
    (home / "workflows" / "mine" / "activities" / "01-more.yaml").write_text("id: [")

    (check,) = (check for check in json.loads(fidelio("doctor", "--json").stdout)["checks"] if check["name"] == "workflows")

    assert check["state"] == "warning"
    assert "01-more.yaml" in check["sentence"]


@proves("cli.definitions")
def test_what_a_list_leaves_out_is_said(fidelio: Fidelio, home: Path) -> None:
    write(home / "workflows", "mine", GOOD)
    (home / "workflows" / "mine" / "workflow.toon").write_text("id: mine")

    listed, data = fidelio("list"), json.loads(fidelio("list", "--json").stdout)

    assert listed.returncode == 0
    assert "mine/workflow.yaml" in listed.stderr
    assert len(data["findings"]) == 1


MISSPELT = GOOD.replace("    name: Only\n", "    name: Only\n    outcom: [x]\n")


@proves("lint.sarif")
def test_strict_fails_on_warnings_and_sarif_is_printed(fidelio: Fidelio, tmp_path: Path) -> None:
    root = str(write(tmp_path / "w", "one", MISSPELT))
    plain, strict, sarif = fidelio("lint", root), fidelio("lint", root, "--strict"), fidelio("lint", root, "--sarif")

    assert (plain.returncode, strict.returncode) == (0, 1)
    assert "Did you mean outcome?" in plain.stdout
    (result,) = json.loads(sarif.stdout)["runs"][0]["results"]
    assert result["ruleId"] == "unknown-key"


@proves("lint.unopened")
def test_lint_names_what_it_did_not_open(fidelio: Fidelio, tmp_path: Path) -> None:
    root = write(tmp_path / "w", "one", GOOD)
    (root / "one" / "notes.txt").write_text("")

    assert "one/notes.txt" in fidelio("lint", str(root)).stderr
    assert json.loads(fidelio("lint", str(root), "--json").stdout)["unopened"] == ["one/notes.txt"]


@proves("lint.unopened")
def test_lint_names_what_it_did_not_open_on_the_search_path(fidelio: Fidelio, home: Path) -> None:
    root = write(home / "workflows", "mine", GOOD)
    (root / "mine" / "workflow.yaml").rename(root / "mine" / "flow.yaml")

    (named,) = json.loads(fidelio("lint", "--json").stdout)["unopened"]
    assert named.endswith("mine/flow.yaml")
    assert "mine/flow.yaml" in fidelio("lint").stderr


@proves("dialects.list")
def test_a_workflow_that_breaks_the_schema_is_marked_in_the_list(fidelio: Fidelio, home: Path) -> None:
    write(home / "workflows", "mine", GOOD + "tags: 3\n")
    listed = fidelio("list")
    (entry,) = [each for each in json.loads(fidelio("list", "--json").stdout)["items"] if each["id"] == "mine"]

    assert "(broken) A good one" in listed.stdout
    assert entry["broken"]
    assert "`tags` has to be a list" in entry["findings"][0]["sentence"]


@proves("cli.schema")
def test_an_editor_finds_the_schema_of_each_kind_of_file(fidelio: Fidelio, tmp_path: Path) -> None:
    shown = fidelio("schema").stdout
    line = next(line for line in shown.splitlines() if line.endswith("activity.json")).strip()
    copied = json.loads(fidelio("schema", "--output", str(tmp_path / "schemas"), "--json").stdout)

    assert line.startswith("# yaml-language-server: $schema=")
    assert json.loads(Path(line.partition("=")[2]).read_text()) == json.loads(fidelio("schema", "activity").stdout)
    assert set(copied) == {"activity", "resource", "rules", "skill", "workflow"}
    assert {"string"} == {
        kind["type"]
        for kind in json.loads(Path(copied["activity"]).read_text())["$defs"]["Step"]["properties"]["condition"]["anyOf"]
        if kind.get("type") == "string"
    }


@proves("cli.schema")
def test_a_project_with_copies_names_them_by_paths_from_the_file_in_which_they_stand(fidelio: Fidelio, tmp_path: Path) -> None:
    home = tmp_path / "shared" / ".fidelio"
    shown = fidelio("--home", str(home), "schema", "--output", str(home / "schemas")).stdout
    paths = dict(re.findall(r"^(\w+)\n  # yaml-language-server: \$schema=(\S+)$", shown, re.MULTILINE))

    assert paths["workflow"] == "../../schemas/workflow.json"
    assert paths["activity"] == "../../../schemas/activity.json"
    assert (home / "workflows" / "NAME" / "skills" / paths["skill"]).resolve() == home / "schemas" / "skill.json"
    # Elsewhere only a whole path is right.
    assert (
        f"$schema={tmp_path}/other/rules.json\n" in fidelio("--home", str(home), "schema", "-o", str(tmp_path / "other")).stdout
    )


@proves("lint.guidance")
def test_a_finding_names_the_command_that_explains_its_rule(fidelio: Fidelio, tmp_path: Path) -> None:
    (tmp_path / "w.yaml").write_text("id: w\nversion: 1.0.0\ntitle: W\nfidelty: enforce\nactivities: []\n")
    found = fidelio("lint", str(tmp_path))
    explained, unknown = fidelio("lint", "--explain", "unknown-key"), fidelio("lint", "--explain", "unknown-kee")

    assert "    More: `fidelio lint --explain unknown-key`" in found.stdout
    assert explained.stdout.startswith("unknown-key: warning\n")
    assert "Not reported:" in explained.stdout
    assert json.loads(fidelio("lint", "--explain", "schema", "--json").stdout)["rule"] == "schema"
    assert (unknown.returncode, "There is no rule 'unknown-kee'. Did you mean unknown-key" in unknown.stderr) == (2, True)
