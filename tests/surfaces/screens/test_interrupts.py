"""Ctrl-C and detaching: what a command has started is stopped, or goes on because the person wants it."""

from __future__ import annotations

import asyncio
import json
import re
import signal

import pytest

from tests.conductor.run_setup import RunSetup, activity, list_workers, write_workflow
from tests.support import proves
from tests.support.command_line import run_fidelio
from tests.surfaces.screens.conftest import AtTerminal
from tests.surfaces.screens.terminal import DrawnTerminal

CTRL_Z = "\x1a"
SHELL = ("-c", "import os; os.execvp('bash', ['bash', '--norc', '-i'])")
RUN = ("run", "concert", "--agent", "tuner", "--activity-agent", "play=player")


def listed(setup: RunSetup, place: dict[str, str]) -> dict[str, str]:
    done = run_fidelio(("agents", "list", "--json"), environ=place, directory=setup.project)
    return {item["name"]: item["state"] for item in json.loads(done.stdout)["items"]}


@proves("interrupts.stop-agents")
async def test_ctrl_c_stops_the_agents_of_a_run_and_the_same_command_goes_on(
    at_terminal: AtTerminal, concert: RunSetup, place: dict[str, str]
) -> None:
    command = (*RUN, "--workflows", str(concert.workflows))
    async with at_terminal(*command) as terminal:
        await terminal.until("I look at the strings")
        terminal.interrupt()
        assert await terminal.wait() == 130, terminal.text
        session = re.search(r"s_\w+", terminal.text)
        assert session is not None
        assert f"{session[0]}-1-tune is stopped." in terminal.text
        assert "the same command goes on where it was" in " ".join(terminal.text.split())
    assert listed(concert, place) == {f"{session[0]}-1-tune": "stopped"}

    (concert.root / "gate").touch()
    async with at_terminal(*command) as terminal:
        await terminal.until(f"concert continues as {session[0]}.")
        assert await terminal.wait() == 0, terminal.text
        assert "completed" in terminal.text
    async with concert.app() as app:
        assert [worker.run.number for worker in await list_workers(app, session[0])] == [2, 1]


@pytest.fixture
def asking(setup: RunSetup) -> tuple[str, ...]:
    """The command of a run that stops at a question."""
    options = [{"id": "warm", "label": "A warm note"}, {"id": "brief", "label": "A brief note"}]
    checkpoint = {"id": "tone", "name": "Tone", "message": "How shall it sound?", "options": options}
    steps = [{"id": "ask", "name": "Ask", "checkpoint": "tone"}]
    write_workflow(setup.workflows, "concert", activity("tune", steps=steps, checkpoints=[checkpoint]))
    return ("run", "concert", "--agent", "robot", "--workflows", str(setup.workflows))


@proves("interrupts.at-a-question")
async def test_ctrl_c_at_a_question_takes_the_menu_away_and_says_what_has_stopped(
    at_terminal: AtTerminal, asking: tuple[str, ...], setup: RunSetup, place: dict[str, str]
) -> None:
    async with at_terminal(*asking) as terminal:
        await terminal.until("Arrow keys and Enter")
        terminal.interrupt()
        assert await terminal.wait() == 130
        said = " ".join(terminal.text.split())

    (worker,) = listed(setup, place)
    assert "How shall it sound?" in said
    assert f"Stopping. Ctrl-C again does not wait for it. {worker} is stopped. The run s_" in said
    assert said.endswith("is kept: the same command goes on where it was. fidelio: Stopped.")
    assert "Arrow keys" not in said


@proves("interrupts.stop-agents")
@pytest.mark.parametrize("how", ["closed terminal", "SIGHUP", "SIGINT", "SIGTERM"])
async def test_the_agents_of_a_run_are_stopped_however_often_its_command_is_ended(
    at_terminal: AtTerminal, asking: tuple[str, ...], setup: RunSetup, place: dict[str, str], how: str
) -> None:
    setup.write_blueprint("robot", "workflow-worker", process=True)
    async with at_terminal(*asking) as terminal:
        await terminal.until("Arrow keys and Enter")
        if how == "closed terminal":
            # The system sends SIGHUP twice: to the session and to the group in the foreground.
            assert await terminal.hang_up() == 129
        else:
            await signal_again_and_again(terminal, signal.Signals[how])
    (worker,) = listed(setup, place)
    run_fidelio(("agents", "wait", worker, "--timeout", "50"), environ=place, directory=setup.project)

    assert listed(setup, place) == {worker: "stopped"}


async def signal_again_and_again(terminal: DrawnTerminal, number: signal.Signals) -> None:
    """Send the signal every few milliseconds until the command has ended, so that one arrives at every moment of its end."""
    assert terminal.process is not None
    ended = asyncio.create_task(terminal.wait())
    while not ended.done():
        terminal.process.send_signal(number)
        await asyncio.wait({ended}, timeout=0.001)


@proves("interrupts.at-a-question")
async def test_the_key_that_detaches_works_at_a_question(
    at_terminal: AtTerminal, asking: tuple[str, ...], setup: RunSetup, place: dict[str, str]
) -> None:
    async with at_terminal(*asking) as terminal:
        await terminal.until("Arrow keys and Enter")
        terminal.press("d")
        await terminal.until("goes on in the background")
        assert await terminal.wait() == 0
        assert "Arrow keys" not in terminal.text
    assert "How shall it sound?" in run_fidelio(("inbox",), environ=place, directory=setup.project).stdout
    # The run in the background is ended with its question.
    session = json.loads(
        run_fidelio(("sessions", "--kind", "workflow", "--json"), environ=place, directory=setup.project).stdout
    )
    run_fidelio(("sessions", "--end", session["items"][0]["id"]), environ=place, directory=setup.project)


@proves("interrupts.at-a-question")
async def test_ctrl_c_at_the_question_of_the_demo_says_that_it_is_withdrawn(at_terminal: AtTerminal) -> None:
    async with at_terminal("demo") as terminal:
        await terminal.until("Arrow keys and Enter")
        terminal.press("d")
        terminal.interrupt()
        assert await terminal.wait() == 130
        assert "so its session is deleted and its question withdrawn" in " ".join(terminal.text.replace("↳", "").split())
        assert "Arrow keys" not in terminal.text


@proves("interrupts.detach")
@pytest.mark.parametrize("by_key", [True, False])
async def test_a_run_that_is_detached_goes_on_without_its_terminal(
    at_terminal: AtTerminal, concert: RunSetup, by_key: bool
) -> None:
    command = (*RUN, "--workflows", str(concert.workflows))
    async with at_terminal(*command, *(() if by_key else ("--detach",))) as terminal:
        if by_key:
            await terminal.until("I look at the strings")
            terminal.press("d")
        await terminal.until("goes on in the background")
        assert await terminal.wait() == 0
        session = re.search(r"s_\w+", terminal.text)
        assert session is not None
        assert f"fidelio events {session[0]} --follow" in terminal.text
    (concert.root / "gate").touch()
    async with concert.app() as app:
        records = await app.records()
        async for _ in records.follow(session[0]):
            if (await records.find(session[0])).status == "completed":
                break
        # No worker was cut off: each has a single run.
        assert [worker.run.number for worker in await list_workers(app, session[0])] == [1, 1]


@proves("interrupts.job-control")
async def test_a_run_that_was_stopped_by_ctrl_z_goes_on_in_the_background_and_reads_keys_again(
    at_terminal: AtTerminal, concert: RunSetup
) -> None:
    async with at_terminal(program=SHELL, variables={"PS1": "READY "}) as shell:
        await shell.until("READY")
        shell.press(f"fidelio {' '.join(RUN)} --workflows {concert.workflows}\r")
        await shell.until("I look at the strings")
        shell.press(CTRL_Z)
        await shell.until("Stopped")
        shell.press("clear; bg\r")
        await shell.until(lambda: "[1]+" in shell.text and "Stopped" not in shell.text)
        # The shell owns the terminal: what it reads does not stop the run, which draws nothing.
        shell.press("echo one-$((1 + 1))\r")
        await shell.until("one-2")
        shell.press("fg\r")
        await shell.until(lambda: "d leaves it working" in shell.text.rpartition("one-2")[2])
        shell.press("d")
        await shell.until("goes on in the background")


@proves("interrupts.job-control")
async def test_a_run_ends_in_the_background_without_being_stopped(at_terminal: AtTerminal, concert: RunSetup) -> None:
    async with at_terminal(program=SHELL, variables={"PS1": "READY "}) as shell:
        await shell.until("READY")
        shell.press(f"fidelio {' '.join(RUN)} --workflows {concert.workflows}\r")
        await shell.until("I look at the strings")
        shell.press(CTRL_Z)
        await shell.until("Stopped")
        shell.press("clear; bg\r")
        await shell.until(lambda: "[1]+" in shell.text and "Stopped" not in shell.text)
        (concert.root / "gate").touch()
        await shell.until("completed")
        shell.press("wait; echo ended-$?\r")
        await shell.until("ended-0")
        assert "Stopped" not in shell.text


@proves("interrupts.stop-agents")
async def test_ctrl_c_stops_an_agent_that_was_started(
    at_terminal: AtTerminal, concert: RunSetup, place: dict[str, str]
) -> None:
    async with at_terminal("agents", "start", "one", "Tune.", "-b", "tuner") as terminal:
        await terminal.until("I look at the strings")
        terminal.interrupt()
        assert await terminal.wait() == 130
        assert "one is stopped." in terminal.text
    # In this process as in any other: it is stopped, and not lost.
    assert listed(concert, place) == {"one": "stopped"}


@proves("interrupts.stop-agents")
@pytest.mark.parametrize("how", ["twice", "hangup", "termination"])
async def test_an_agent_is_stopped_however_its_command_is_ended(
    at_terminal: AtTerminal, concert: RunSetup, place: dict[str, str], how: str
) -> None:
    async with at_terminal("agents", "start", "one", "Tune.", "-b", "tuner") as terminal:
        await terminal.until("I look at the strings")
        match how:
            case "twice":
                terminal.interrupt()
                await terminal.until("Ctrl-C again does not wait for it.")
                terminal.interrupt()
                assert await terminal.wait() == 130
            case "hangup":
                assert await terminal.hang_up() == 129
            case _:
                assert terminal.process is not None
                terminal.process.send_signal(signal.SIGTERM)
                assert await terminal.wait() == 143
    # After a second Ctrl-C the agent host finishes what the first has begun.
    run_fidelio(("agents", "wait", "one", "--timeout", "50"), environ=place, directory=concert.project)

    assert listed(concert, place) == {"one": "stopped"}


@proves("interrupts.stop-agents")
async def test_an_agent_that_waits_for_a_slot_names_those_that_hold_it(
    at_terminal: AtTerminal, concert: RunSetup, place: dict[str, str]
) -> None:
    place["FIDELIO_AGENTS_PER_PROJECT"] = "1"
    run_fidelio(("agents", "start", "one", "Tune.", "-b", "tuner", "--detach"), environ=place, directory=concert.project)
    async with at_terminal("agents", "start", "two", "Tune.", "-b", "tuner") as terminal:
        await terminal.until("queued: one holds the only slot in this project")
        terminal.interrupt()
        assert await terminal.wait() == 130
    run_fidelio(("agents", "stop", "one"), environ=place, directory=concert.project)

    assert listed(concert, place) == {"one": "stopped", "two": "stopped"}


@proves("interrupts.detach")
async def test_a_script_goes_on_with_the_same_run_when_it_is_left_to_the_background(
    at_terminal: AtTerminal, concert: RunSetup, place: dict[str, str]
) -> None:
    async with at_terminal("agents", "start", "one", "Tune.", "-b", "tuner") as terminal:
        await terminal.until("I look at the strings")
        terminal.press("d")
        await terminal.until("It works in the background.")
        assert await terminal.wait() == 0
    (concert.root / "gate").touch()
    result = run_fidelio(("agents", "wait", "one", "--timeout", "50"), environ=place, directory=concert.project)

    assert "succeeded" in result.stdout
    async with concert.app() as app:
        assert [run.state for run in await (await app.agents()).runs("one")] == ["succeeded"]


@proves("interrupts.detach")
async def test_a_run_at_another_terminal_is_not_said_to_go_on_in_the_background(
    at_terminal: AtTerminal, concert: RunSetup, place: dict[str, str]
) -> None:
    command = (*RUN, "--workflows", str(concert.workflows))
    async with at_terminal(*command) as terminal:
        await terminal.until("I look at the strings")
        second = run_fidelio((*command, "--detach"), environ=place, directory=concert.project)
        async with at_terminal(*command) as other:
            refused = await other.wait()
            shown = " ".join(other.text.split())
        terminal.interrupt()
        await terminal.wait()

    assert (second.returncode, "background" in second.stdout) == (1, False)
    assert "is being carried out by another process" in second.stderr
    assert (refused, "is being carried out by another process" in shown) == (1, True)
    assert "Ctrl-C stops the agents" not in shown


@proves("interrupts.same-input")
async def test_the_same_input_goes_on_and_another_is_refused_with_the_value_of_the_run(
    at_terminal: AtTerminal, concert: RunSetup, place: dict[str, str]
) -> None:
    file = concert.workflows / "concert" / "workflow.yaml"
    file.write_text(file.read_text().replace("variables: []", "variables: [{name: pitch, type: number, description: Hz}]"))
    command = (*RUN, "--workflows", str(concert.workflows))
    async with at_terminal(*command, "--input", "pitch=440") as terminal:
        await terminal.until("I look at the strings")
        terminal.interrupt()
        await terminal.wait()
    other = run_fidelio((*command, "--input", "pitch=442"), environ=place, directory=concert.project)
    (concert.root / "gate").touch()
    async with at_terminal(*command, "--input", "pitch=440") as terminal:
        await terminal.until("concert continues as")
        assert await terminal.wait() == 0, terminal.text

    assert other.returncode == 2
    assert "In this run pitch has the value 440." in other.stderr
    async with concert.app() as app:
        records = await app.records()
        session = (await records.sessions(kind="workflow")).items[0]
        assert session.record["set_by"]["pitch"].startswith("person:")
    events = run_fidelio(("events", session.id), environ=place, directory=concert.project)
    assert re.search(r"  person:\S+ +set pitch: 440$", events.stdout, re.MULTILINE)


@proves("interrupts.deletion-asks")
async def test_deleting_an_agent_asks_first(at_terminal: AtTerminal, concert: RunSetup, place: dict[str, str]) -> None:
    def run(*words: str, text: str = "") -> tuple[int, str]:
        done = run_fidelio(("agents", *words), environ=place, directory=concert.project, text=text)
        return done.returncode, done.stdout + done.stderr

    run("start", "one", "Play.", "-b", "player")
    async with at_terminal("agents", "delete", "one") as terminal:
        await terminal.until("Delete one for good? [y/N]")
        terminal.press("n\r")
        assert await terminal.wait() == 130
    code, printed = run("delete", "one")
    assert (code, "Pass --yes" in printed) == (2, True)
    assert listed(concert, place) == {"one": "succeeded"}
    code, printed = run("delete", "nope")
    assert (code, "for good" in printed, "nope" in printed) == (4, False, True)
    code, printed = run("delete", "on", "--yes", "--json")
    assert (code, json.loads(printed)["deleted"]) == (0, 1)
    assert listed(concert, place) == {}


@proves("orchestrator.blamed-rightly")
def test_a_blueprint_without_servers_is_not_blamed_for_those_of_the_run(setup: RunSetup, place: dict[str, str]) -> None:
    front = "---\nname: cat\ndescription: Repeats.\nexecutor: command\noptions: {command: [cat]}\n"
    (setup.home / "agents" / "cat.md").write_text(f"{front}---\nYou repeat.\n")
    (setup.home / "agents" / "own.md").write_text(
        f"{front.replace('name: cat', 'name: own')}mcp_servers: {{notes: {{command: notes}}}}\n---\nYou repeat.\n"
    )
    added = run_fidelio(("run", "hello", "--agent", "cat"), environ=place, directory=setup.project)
    own = run_fidelio(("run", "hello", "--agent", "own"), environ=place, directory=setup.project)

    assert added.returncode != 0
    assert "needs the MCP server fidelio, and the executor command gives its agents no MCP servers" in added.stderr
    assert "remove them from the blueprint" not in added.stderr
    assert "remove them from the blueprint" in own.stderr
