"""Short ids, `last`, completion by the shell, and the filters of the inbox."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fidelio.app.asking import note_address
from fidelio.app.webhooks.settings import Webhooks
from fidelio.home import Home
from fidelio.ledger import open_ledger
from fidelio.ledger.model import Change, NewEvent, OpenRequest
from tests.conductor.run_setup import RunSetup, activity, write_workflow
from tests.support import proves
from tests.support.command_line import run_fidelio
from tests.surfaces.screens.conftest import AtTerminal
from tests.surfaces.screens.test_questions import SESSION, ask, open_requests


def fidelio(setup: RunSetup, place: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return run_fidelio(words, environ=place, directory=setup.project)


@proves("references.short")
def test_a_session_and_an_agent_are_found_by_a_beginning_and_as_the_last(setup: RunSetup, place: dict[str, str]) -> None:
    for name in ("first", "second"):
        fidelio(setup, place, "agents", "start", name, "Play.", "-b", "robot")
    newest, oldest = json.loads(fidelio(setup, place, "sessions", "--json").stdout)["items"]

    by_beginning = fidelio(setup, place, "verify", oldest["id"][:9], "--json")
    last = fidelio(setup, place, "verify", "last", "--json")
    assert json.loads(by_beginning.stdout)["sessions"][0]["session"] == oldest["id"]
    assert json.loads(last.stdout)["sessions"][0]["session"] == newest["id"]
    assert json.loads(fidelio(setup, place, "agents", "status", "fir", "--json").stdout)["session_name"] == "first"
    assert json.loads(fidelio(setup, place, "agents", "status", "last", "--json").stdout)["session_name"] == "second"

    unclear = fidelio(setup, place, "verify", "s_")
    assert unclear.returncode == 2
    assert newest["id"] in unclear.stderr
    assert oldest["id"] in unclear.stderr
    assert fidelio(setup, place, "verify", "s_zzzz").returncode == 4
    # A whole id that is unknown is no beginning of another.
    assert fidelio(setup, place, "verify", f"{oldest['id'][:-1]}!").returncode == 4


@proves("references.short")
def test_the_last_session_is_the_run_and_not_what_it_has_started(setup: RunSetup, place: dict[str, str]) -> None:
    write_workflow(setup.workflows, "ferry", activity("sail", triggers=[{"workflow": "crossing"}]))
    write_workflow(setup.workflows, "crossing", activity("row"))
    done = fidelio(setup, place, "run", "ferry", "--agent", "robot", "--workflows", str(setup.workflows))
    assert done.returncode == 0, done.stderr

    assert " of the workflow ferry 1.0.0" in fidelio(setup, place, "report", "last").stdout


@proves("references.short")
async def test_a_request_is_found_by_a_beginning_and_as_the_last(setup: RunSetup, place: dict[str, str]) -> None:
    await open_requests(setup.home, ask("r_abc1"), ask("r_abd2"))

    assert "r_abc1, r_abd2" in fidelio(setup, place, "answer", "r_ab", "warm").stderr
    assert "r_abc1 is answered with warm" in fidelio(setup, place, "answer", "r_abc", "warm").stdout
    assert "r_abd2 is answered with brief" in fidelio(setup, place, "answer", "last", "brief").stdout
    # Answered requests are found by their whole id only: nothing new is answered by an old beginning.
    assert fidelio(setup, place, "answer", "r_abc", "warm").returncode == 4


def complete(setup: RunSetup, place: dict[str, str], line: str, *, kind: str = "plain") -> list[str]:
    """What bash would offer at the end of the line."""
    words = line.split(" ")
    environ = {**place, "_FIDELIO_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    script = "import sys; sys.argv[0] = 'fidelio'; from fidelio.__main__ import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script], env=environ, cwd=setup.project, capture_output=True, text=True, timeout=60, check=False
    )
    found = [line.partition(",") for line in done.stdout.splitlines() if line]
    assert all(item[0] == kind for item in found), found
    return [item[2] for item in found]


@proves("references.completion")
async def test_the_shell_completes_what_a_command_takes(setup: RunSetup, place: dict[str, str]) -> None:
    await open_requests(setup.home, ask("r_abc1"))
    fidelio(setup, place, "agents", "start", "first", "Play.", "-b", "robot")
    session = json.loads(fidelio(setup, place, "sessions", "--json").stdout)["items"][0]["id"]

    assert "hello" in complete(setup, place, "fidelio run he")
    assert complete(setup, place, "fidelio answer r_a") == ["r_abc1"]
    assert complete(setup, place, "fidelio agents status fi") == ["first"]
    assert session in complete(setup, place, "fidelio events s_")
    assert complete(setup, place, "fidelio run hello --agent rob") == ["robot"]


@proves("references.completion")
def test_completion_makes_no_home_and_prints_no_error(setup: RunSetup, place: dict[str, str], tmp_path: Path) -> None:
    missing = tmp_path / "missing"

    assert complete(setup, {**place, "FIDELIO_HOME": str(missing)}, "fidelio events s_") == []
    assert not missing.exists()


@proves("inbox.filters")
async def test_the_inbox_is_counted_filtered_and_listed_compactly(setup: RunSetup, place: dict[str, str]) -> None:
    questions = [ask(f"r_{number}", kind="question" if number % 2 else "checkpoint") for number in range(7)]
    await open_requests(setup.home, *questions)

    def listed(*options: str) -> list[str]:
        found, cursor = list[str](), None
        while True:
            page = json.loads(
                fidelio(
                    setup, place, "inbox", "--json", "--limit", "2", *options, *(("--after", cursor) if cursor else ())
                ).stdout
            )
            found += [item["id"] for item in page["items"]]
            cursor = page["next"]
            if cursor is None:
                return found

    assert fidelio(setup, place, "inbox", "--count").stdout == "7\n"
    assert fidelio(setup, place, "inbox", "--count", "--kind", "question").stdout == "3\n"
    assert listed("--kind", "question") == ["r_1", "r_3", "r_5"]
    assert listed("--older-than", "1h") == []
    assert len(listed("--newer-than", "1h")) == 7
    assert listed("--workflow", "hello") == []
    # Nothing of what was chosen is not the same as nothing.
    none = fidelio(setup, place, "inbox", "--workflow", "hello").stdout
    assert none == f"Nothing like that waits for you in {setup.home}.\n`fidelio inbox` lists all that waits.\n"
    compact = fidelio(setup, place, "inbox", "--compact").stdout.splitlines()
    assert len(compact) == 8
    assert compact[1].startswith("r_0")
    assert "What about r_0?" in compact[1]
    misspelt = fidelio(setup, place, "inbox", "--workflow", "helo")
    assert (misspelt.returncode, misspelt.stdout) == (4, "")
    assert "Workflow not found: helo. Did you mean hello?" in misspelt.stderr
    wrong = fidelio(setup, place, "inbox", "--older-than", "soon")
    assert (wrong.returncode, "--older-than has the invalid value" in wrong.stderr) == (2, True)


@proves("inbox.filters")
@pytest.mark.parametrize("columns", [60, 80])
async def test_a_compact_inbox_has_a_line_for_each_request(setup: RunSetup, place: dict[str, str], columns: int) -> None:
    question = f"May the agent publish it? {'It has looked at every file. ' * 8}"
    asked = OpenRequest(
        id="r_one",
        kind="checkpoint",
        key="one",
        question=question,
        options=(),
        detail={"workflow": "a-workflow-with-a-long-name", "activity": "an-activity-with-a-long-name"},
    )
    await open_requests(setup.home, asked)

    header, line = fidelio(setup, {**place, "COLUMNS": str(columns)}, "inbox", "--compact").stdout.splitlines()

    assert header.split() == ["ID", "AGE", "ABOUT", "QUESTION"]
    assert line.startswith("r_one")
    assert "May the" in line
    assert line.endswith("…")
    assert len(line) <= columns


@proves("inbox.filters")
async def test_a_workflow_whose_files_are_gone_is_known_by_its_requests(setup: RunSetup, place: dict[str, str]) -> None:
    asked = OpenRequest(id="r_one", kind="checkpoint", key="k", question="Which?", options=(), detail={"workflow": "gone"})
    await open_requests(setup.home, asked)

    assert fidelio(setup, place, "inbox", "--workflow", "gone", "--count").stdout == "1\n"


@proves("references.short")
async def test_without_a_request_the_last_one_is_not_there(setup: RunSetup, place: dict[str, str]) -> None:
    await open_requests(setup.home)

    done = fidelio(setup, place, "answer", "last", "yes")

    assert done.returncode == 4
    assert done.stderr.startswith(f"fidelio: Nothing waits for you in {setup.home}.")


@proves("references.completion")
def test_the_shell_completes_webhooks(setup: RunSetup, place: dict[str, str]) -> None:
    webhook = Webhooks(Home(setup.home).ensure()).add("http://127.0.0.1:9/hook", "a secret of the person", now=0)

    assert complete(setup, place, "fidelio webhooks remove ") == [webhook.id]
    assert complete(setup, place, "fidelio webhooks test wh_") == [webhook.id]


@proves("inbox.notifies", "webhooks.link")
async def test_watching_rings_and_runs_a_command_for_each_new_request(
    at_terminal: AtTerminal, setup: RunSetup, tmp_path: Path
) -> None:
    await open_requests(setup.home, ask("r_old"))
    note_address(Home(setup.home), "http://127.0.0.1:7333")
    seen = tmp_path / "seen"
    hook = f"cat >> {seen}; echo >> {seen}; echo $FIDELIO_REQUEST >> {seen}; echo $FIDELIO_REQUEST_URL >> {seen}"
    async with at_terminal("inbox", "--watch", "--hook", hook) as terminal:
        await terminal.until("What about r_old?")
        assert b"\x07" not in terminal.raw
        await add_request(setup.home, "r_new")
        await terminal.until("What about r_new?")
        await terminal.until(lambda: b"\x07" in terminal.raw)
        await add_request(setup.home, "r_next")
        await terminal.until("What about r_next?")
        # The second is shown after the hook of the first has ended.
        found, name, url = seen.read_text().splitlines()[:3]
    assert json.loads(found)["question"] == "What about r_new?"
    assert name == "r_new"
    assert url == "http://127.0.0.1:7333/inbox/r_new"


async def add_request(home: Path, name: str) -> None:
    async with await open_ledger(home / "ledger.db") as ledger:
        await ledger.commit(Change(session=SESSION, events=(NewEvent(type="asked"),), requests=(ask(name),)))


@proves("references.next-page")
async def test_the_next_page_is_one_of_the_same_list(setup: RunSetup, place: dict[str, str]) -> None:
    await open_requests(
        setup.home, *(ask(f"r_{number}", kind="question" if number % 2 else "checkpoint") for number in range(6))
    )
    filters = ("--kind", "question", "--limit", "2", "--compact")

    first = fidelio(setup, place, "inbox", *filters).stdout.splitlines()
    command, after = first[-1].removeprefix("More: ").split(" --after ")
    second = fidelio(setup, place, "inbox", *filters, "--after", after).stdout.splitlines()

    assert sorted(command.split(" --")) == ["compact", "fidelio inbox", "kind question", "limit 2"]
    assert [line.split()[0] for line in (*first[1:3], *second[1:])] == ["r_1", "r_3", "r_5"]


@proves("references.status")
def test_an_unknown_status_is_an_error_that_lists_those_that_exist(setup: RunSetup, place: dict[str, str]) -> None:
    fidelio(setup, place, "agents", "start", "one", "Play.", "-b", "robot")
    wrong = fidelio(setup, place, "sessions", "--status", "done")
    of_kind = fidelio(setup, place, "sessions", "--kind", "workflow", "--status", "lost")
    found = json.loads(fidelio(setup, place, "sessions", "--json").stdout)["items"]

    assert wrong.returncode == of_kind.returncode == 2
    assert "'done' is not a status of a session. Use one of: active, blocked, " in wrong.stderr
    assert "is not a status of a session of kind workflow" in of_kind.stderr
    # Every status that the ledger has can be asked for.
    for session in found:
        listed = fidelio(setup, place, "sessions", "--kind", session["kind"], "--status", session["status"], "--json")
        assert session["id"] in listed.stdout, listed.stderr
    assert fidelio(setup, place, "sessions", "--status", "deleted").returncode == 0


@proves("references.completion")
async def test_the_shell_completes_sessions_and_agents_of_the_runtime_options_and_paths(
    setup: RunSetup, place: dict[str, str]
) -> None:
    await open_requests(setup.home, ask("r_abc1"))
    fidelio(setup, place, "runtime", "send", "default", "Say hello.", "--model", "scripted:demo", "--name", "greeting")
    fidelio(setup, place, "runtime", "send", "default", "Say hello.", "--model", "scripted:demo", "--new")
    listed = json.loads(fidelio(setup, place, "runtime", "sessions", "--json").stdout)["items"]

    # A session without a name has only its id.
    names = sorted(item["name"] or item["sessionId"] for item in listed)
    assert sorted(complete(setup, place, "fidelio chat --session ")) == names
    assert sorted(complete(setup, place, "fidelio sandbox describe --session ")) == names
    assert "default" in complete(setup, place, "fidelio chat de")
    assert complete(setup, place, "fidelio answer r_abc1 w") == ["warm"]
    assert complete(setup, place, "fidelio answer r_abc9 w") == []
    # The shell itself completes paths.
    assert complete(setup, place, "fidelio run hello --project s", kind="dir") == ["s"]
    assert complete(setup, place, "fidelio report last --html s", kind="file") == ["s"]


@proves("references.completion")
def test_a_description_with_a_comma_is_whole_in_fish(setup: RunSetup, place: dict[str, str]) -> None:
    script = fidelio(setup, place, "completion", "fish").stdout

    assert 'string split -m 1 "," $completion' in script
