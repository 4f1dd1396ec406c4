"""`fidelio new`: a workflow to start from, which is complete, strict and never replaces another."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from fidelio.definitions.library import Library, Root
from fidelio.definitions.library.search_path import bundled_root
from fidelio.processes.table import AGENT_MARKER
from fidelio.settings import Settings, load_settings
from tests.dialects.conftest import playing
from tests.dialects.gates.conftest import person_answers
from tests.dialects.gates.test_walks import Agent, WithGates, WithSessions, walked
from tests.dialects.navigator.conftest import Guide
from tests.support import proves
from tests.support.command_line import run_fidelio
from tests.surfaces.conftest import Fidelio

AGENT = {AGENT_MARKER: "r_" + "a" * 20}
THEIRS = "id: theirs\nversion: 1.0.0\ntitle: Theirs\nactivities: [{id: one, version: 1.0.0, name: One}]\n"


@pytest.fixture
def environ(environ: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """No named home; the user has a data directory."""
    unnamed = {name: value for name, value in environ.items() if name != "FIDELIO_HOME"}
    return {**unnamed, "XDG_DATA_HOME": str(tmp_path / "data")}


@pytest.fixture
def workflows(tmp_path: Path) -> Path:
    return tmp_path / ".fidelio" / "workflows"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(environ={"FIDELIO_HOME": str(tmp_path / "home"), "FIDELIO_MIN_RESPONSE_SECONDS": "0"})


def listed(fidelio: Fidelio, *options: str) -> list[str]:
    return [entry["id"] for entry in json.loads(fidelio(*options, "list", "--json").stdout)["items"]]


@proves("cli.new")
def test_it_writes_a_strict_workflow_without_findings_that_can_be_drawn(fidelio: Fidelio, workflows: Path) -> None:
    done = fidelio("new", "mine")
    linted, alone = fidelio("lint", "--json"), fidelio("lint", str(workflows / "mine"), "--json")
    definition = Library([Root(workflows, "")]).workflow("mine")
    (checkpoint,) = [checkpoint for activity in definition.activities for checkpoint in activity.checkpoints]

    assert done.returncode == 0
    assert "Wrote .fidelio/workflows/mine/workflow.yaml\n" in done.stdout
    # What people copy first shows the short form.
    assert "condition: approved == false\n" in (workflows / "mine" / "workflow.yaml").read_text()
    assert (json.loads(linted.stdout)["items"], json.loads(alone.stdout)["items"]) == ([], [])
    assert (definition.id, definition.fidelity, checkpoint.answered_by) == ("mine", "enforce", "person")
    assert "Plan" in fidelio("draw", "mine").stdout


@proves("cli.new")
def test_every_command_that_it_prints_is_for_the_new_workflow(fidelio: Fidelio, tmp_path: Path) -> None:
    text = fidelio("new", "two words").stdout
    data = json.loads(fidelio("new", "mine", "--json").stdout)

    assert "  fidelio draw 'two words'  " in text
    assert 'start "two words"' in text
    assert data == {
        "workflow": "mine",
        "home": str(tmp_path / ".fidelio"),
        "file": str(tmp_path / ".fidelio" / "workflows" / "mine" / "workflow.yaml"),
        "trusted": True,
        "next": ["fidelio lint", "fidelio draw mine", "fidelio run mine", "fidelio init"],
    }


@proves("cli.new")
@pytest.mark.parametrize("last", [False, True], ids=["approved", "stopped"])
@pytest.mark.parametrize("kind", [WithSessions, WithGates])
async def test_it_is_walked_to_its_end_with_the_answer_of_a_person(
    fidelio: Fidelio, workflows: Path, settings: Settings, kind: type[Agent], last: bool
) -> None:
    fidelio("new", "mine")

    record, report = await walked(kind, settings, workflows, "mine", last=last)

    assert (record.status, record.fidelity) == ("completed", "enforce")
    assert list(record.completed) == (["plan", "report"] if last else ["plan", "work", "report"])
    assert report.differences == []


@proves("cli.new")
@pytest.mark.parametrize(("option", "way"), [("approve", ["work", "report"]), ("stop", ["report"])])
async def test_the_navigator_leads_to_its_end_and_takes_the_answer_of_nobody_but_a_person(
    fidelio: Fidelio, workflows: Path, settings: Settings, option: str, way: list[str]
) -> None:
    fidelio("new", "mine")
    steps = {"work": ["change", "check"], "report": ["tell"]}

    async with playing(settings, workflows, dialect="navigator") as play:
        guide = await Guide(play).start("mine")
        await guide.step("understand", "propose", output="Done.")
        for past in (
            {"action": "respond_to_checkpoint", "checkpoint_id": "approve-plan", "option_id": option},
            {"action": "complete_step", "step_id": "ask", "output": "Done."},
            {"action": "transition", "activity_id": way[0]},
        ):
            assert not (await guide.do(**past)).last["success"]
        await person_answers(settings, option, "approve-plan")
        await (await guide.look()).step("ask", output="Done.")
        for activity in way:
            await (await guide.go(activity)).step(*steps[activity], output="Done.")
        await guide.go("__terminal__")

    assert guide.last["status"] == "completed"


@proves("cli.new")
@pytest.mark.parametrize("dialect", ["sessions", "gates"])
async def test_no_move_leads_past_the_question_before_a_person_has_answered(
    fidelio: Fidelio, workflows: Path, settings: Settings, dialect: str
) -> None:
    fidelio("new", "mine")
    steps = [{"step_id": name, "output": "Done."} for name in ("understand", "propose", "ask")]

    async with playing(settings, workflows, dialect=dialect) as play:
        token = await play.start("mine")
        token = (await play("next_activity", session_token=token, activity_id="plan")).token
        targets = ("work", "report", "__terminal__")
        moved = [await play("next_activity", session_token=token, activity_id=to, step_manifest=steps) for to in targets]

    assert [("approve-plan" in reply.text, reply.is_error) for reply in moved] == [(True, True)] * 3


@proves("cli.new-existing")
@pytest.mark.parametrize("what", ["directory", "file", "empty", "link", "bundled"])
def test_an_existing_workflow_is_refused_by_name_and_not_changed(
    fidelio: Fidelio, workflows: Path, tmp_path: Path, what: str
) -> None:
    fidelio("init", "--client", "claude")
    name = "hello" if what == "bundled" else "theirs"
    if what == "file":
        (workflows / "theirs.yaml").write_text(THEIRS)
    elif what == "link":
        (workflows / "theirs").symlink_to(tmp_path / "nowhere")
    elif what != "bundled":
        (workflows / "theirs").mkdir()
    if what == "directory":
        (workflows / "theirs" / "workflow.toon").write_text("id: theirs\nversion: 1.0.0\ntitle: Theirs\n")
    before = sorted(workflows.rglob("*"))

    done = fidelio("new", name)

    assert done.returncode == 2
    assert f"The workflow {name} exists already: " in done.stderr
    assert sorted(workflows.rglob("*")) == before


@proves("cli.new-existing")
def test_a_workflow_of_a_project_that_is_not_trusted_exists_too(fidelio: Fidelio, workflows: Path) -> None:
    workflows.mkdir(parents=True)
    (workflows / "theirs.yaml").write_text(THEIRS)

    done = fidelio("new", "theirs")

    assert f"The workflow theirs exists already: {workflows / 'theirs.yaml'}" in done.stderr
    assert not (workflows / "theirs").exists()


@proves("cli.new")
@pytest.mark.parametrize("name", ["", "  ", "../up", "a/b", ".hidden", "a\nb", "a:b", "x" * 201, "-x", "mine.yaml"])
def test_a_name_that_cannot_be_an_id_is_refused_and_nothing_is_created(fidelio: Fidelio, tmp_path: Path, name: str) -> None:
    done = fidelio("new", "--", name)

    assert done.returncode != 0
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / ".fidelio").exists()


@proves("cli.new")
@pytest.mark.parametrize("name", ["true", "1.0", "null", "#x", "it's", "& so", "größe", "[a]", "NAME"])
def test_any_other_id_gives_a_workflow_of_that_id(fidelio: Fidelio, name: str) -> None:
    fidelio("new", name)

    assert name in listed(fidelio)
    assert json.loads(fidelio("lint", "--json").stdout)["items"] == []
    assert json.loads(fidelio("show", name, "--json").stdout)["id"] == name


@proves("cli.new-links")
@pytest.mark.parametrize("link", [".fidelio", ".fidelio/workflows"])
@pytest.mark.parametrize("target", ["outside", "nowhere"])
def test_nothing_is_written_through_a_link_out_of_the_project_and_nothing_is_trusted(
    fidelio: Fidelio, tmp_path: Path, environ: dict[str, str], link: str, target: str
) -> None:
    project, outside = tmp_path / "project", tmp_path / "outside"
    outside.mkdir()
    (project / link).parent.mkdir(parents=True)
    (project / link).symlink_to(tmp_path / target)

    done = run_fidelio(["new", "mine"], environ=environ, directory=project)

    assert done.returncode == 1
    assert f"{project / link} is a symbolic link that leads out of the project" in done.stderr
    assert list(outside.iterdir()) == []
    assert not (tmp_path / "nowhere").exists()
    assert not (tmp_path / "data" / "fidelio" / "trust.json").exists()


@proves("cli.new-links")
def test_a_link_that_stays_in_the_project_is_followed(fidelio: Fidelio, tmp_path: Path, workflows: Path) -> None:
    (tmp_path / "shared").mkdir()
    workflows.parent.mkdir()
    workflows.symlink_to("../shared")

    done = fidelio("new", "mine")

    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "shared" / "mine" / "workflow.yaml").is_file()
    assert "mine" in listed(fidelio)


@proves("cli.new-home")
@pytest.mark.parametrize("by", ["option", "environment"])
def test_a_home_that_was_named_gets_the_workflow(fidelio: Fidelio, tmp_path: Path, by: str) -> None:
    named = str(tmp_path / "named")
    options, changes = (["--home", "./named"], {}) if by == "option" else ([], {"FIDELIO_HOME": named})

    done = fidelio(*options, "new", "mine", **changes)

    assert (tmp_path / "named" / "workflows" / "mine" / "workflow.yaml").is_file()
    assert not (tmp_path / ".fidelio").exists()
    assert ("fidelio --home ./named lint" in done.stdout) is (by == "option")
    assert "mine" in listed(fidelio, "--home", named)


@proves("cli.new-home")
def test_below_a_project_the_workflow_goes_into_the_project(fidelio: Fidelio, tmp_path: Path, environ: dict[str, str]) -> None:
    fidelio("new", "first")
    (tmp_path / "deep" / "down").mkdir(parents=True)

    run_fidelio(["new", "second"], environ=environ, directory=tmp_path / "deep" / "down")

    assert {"first", "second"} <= set(listed(fidelio))
    assert not (tmp_path / "deep" / "down" / ".fidelio").exists()


@proves("cli.new-home")
def test_a_new_home_is_for_git_as_that_of_init_and_names_the_home_that_it_hides(fidelio: Fidelio, tmp_path: Path) -> None:
    fidelio("tour", "--json")

    done = fidelio("new", "mine")

    assert f"Earlier sessions stay in {tmp_path / 'data' / 'fidelio'}." in done.stdout.replace("\n↳ ", " ")
    assert "!workflows/**" in (tmp_path / ".fidelio" / ".gitignore").read_text()
    assert [path.name for path in (tmp_path / ".fidelio" / "workflows").iterdir()] == ["mine"]


@proves("trust.without-asking", "cli.new-home")
def test_what_it_creates_is_used_without_asking(fidelio: Fidelio) -> None:
    done = fidelio("new", "mine")
    shown = fidelio("show", "mine")

    assert "trust" not in done.stdout
    assert (shown.returncode, shown.stderr) == (0, "")


@proves("trust.without-asking", "cli.new-home")
def test_in_a_clone_it_trusts_nothing_and_names_the_command(fidelio: Fidelio, workflows: Path, tmp_path: Path) -> None:
    workflows.mkdir(parents=True)
    (workflows / "theirs.yaml").write_text(THEIRS)

    text, data = fidelio("new", "mine").stdout, json.loads(fidelio("new", "other", "--json").stdout)

    assert f"  fidelio trust {tmp_path}  " in text
    assert (data["trusted"], data["next"][0]) == (False, f"fidelio trust {tmp_path}")
    assert {"mine", "theirs"}.isdisjoint(listed(fidelio))
    fidelio("trust", ".", "--yes")
    assert {"mine", "other", "theirs"} <= set(listed(fidelio))


@proves("trust.agents", "cli.new-home")
def test_an_agent_may_write_a_workflow_but_nothing_is_trusted_by_it(fidelio: Fidelio, tmp_path: Path) -> None:
    done = fidelio("new", "mine", **AGENT)

    assert done.returncode == 0
    assert f"  fidelio trust {tmp_path}  " in done.stdout
    assert (tmp_path / ".fidelio" / "workflows" / "mine" / "workflow.yaml").is_file()
    assert "mine" not in listed(fidelio)


@proves("cli.new-from")
def test_a_workflow_is_copied_with_all_its_files_and_a_new_id(fidelio: Fidelio, workflows: Path) -> None:
    done = fidelio("new", "mine", "--from", "hello")
    assert re.match(r"Wrote \.fidelio/workflows/mine/workflow\.yaml and \d+ files beside it\nNext:\n", done.stdout)
    hello = bundled_root().path / "hello"
    copied = {file.relative_to(workflows / "mine") for file in (workflows / "mine").rglob("*") if file.is_file()}
    manifest = (workflows / "mine" / "workflow.yaml").read_text()

    assert done.returncode == 0, done.stderr
    assert copied == {file.relative_to(hello) for file in Path(hello).rglob("*") if file.is_file()}
    # Its comments and everything else stay as they are.
    assert manifest == (Path(hello) / "workflow.yaml").read_text().replace("id: hello", 'id: "mine"', 1)
    assert json.loads(fidelio("lint", "--json").stdout)["items"] == []
    assert {"hello", "mine"} <= set(listed(fidelio))
    assert fidelio("new", "mine", "--from", "hello").returncode == 2


@proves("cli.new-from")
def test_a_copy_declares_enforce_and_a_single_file_is_copied_alone(fidelio: Fidelio, workflows: Path, tmp_path: Path) -> None:
    assert fidelio("new", "first").returncode == 0
    (workflows / "theirs.yaml").write_text(THEIRS)
    (workflows / "beside.yaml").write_text(THEIRS.replace("theirs", "beside"))
    done = fidelio("new", "copy", "--from", "theirs")

    assert done.returncode == 0, done.stderr
    assert [file.name for file in (workflows / "copy").iterdir()] == ["workflow.yaml"]
    copied = Library([Root(workflows, "")]).workflow("copy")
    assert (copied.id, copied.title, copied.fidelity) == ("copy", "Theirs", "enforce")
    unknown = fidelio("new", "other", "--from", "helo")
    assert (unknown.returncode, "hello" in unknown.stderr) == (4, True)
    assert not (workflows / "other").exists()


@proves("cli.new-from")
def test_links_and_hidden_files_are_not_copied(fidelio: Fidelio, workflows: Path, tmp_path: Path) -> None:
    assert fidelio("new", "first").returncode == 0
    (tmp_path / "secret").write_text("secret")
    (workflows / "first" / "link.md").symlink_to(tmp_path / "secret")
    (workflows / "first" / ".hidden").write_text("hidden")
    assert fidelio("new", "second", "--from", "first").returncode == 0

    assert [file.name for file in (workflows / "second").iterdir()] == ["workflow.yaml"]
