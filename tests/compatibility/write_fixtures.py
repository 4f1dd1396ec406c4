"""Writes the fixtures of the compatibility suite: a small home as this version leaves it, and the tokens of its sessions.

    python -m tests.compatibility.write_fixtures NAME

writes `tests/compatibility/fixtures/NAME/`. A folder that is committed is never written anew: it shows what a released version
left on disk. A later version adds a folder of its own.

Everything happens through the command line and MCP. The home is written below `/tmp/fidelio-fixture`, because sessions
remember absolute paths; the suite opens a copy elsewhere. `scenario` is also run by the snapshot test, which looks at the shape
of what the present code writes.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.compatibility.program import SECONDS, Json, Program, ServerProcess

FIXTURES = Path(__file__).parent / "fixtures"
NEUTRAL = Path("/tmp/fidelio-fixture")
# Agents belong to a project. This directory exists on every machine, and nothing is written into it.
PROJECT = "/tmp"
# Other files of a home are locks and logs.
KEPT = ("ledger.db", "keys.json", "workflows", "agents", "runs", "agent-homes")

SURVEY = """
id: survey
version: 1.0.0
title: Survey
description: Read, ask, write and close.
variables:
  - {name: tone, type: string, defaultValue: plain}
  - {name: chapters, type: array}
initialActivity: gather
activities:
  - id: gather
    version: 1.0.0
    name: Gather
    steps:
      - {id: read, name: Read}
      - {id: ask, name: Ask, checkpoint: tone}
    checkpoints:
      - id: tone
        name: Tone
        message: Which tone?
        options:
          - {id: short, label: Short, effect: {setVariable: {tone: short}}}
          - {id: long, label: Long, effect: {setVariable: {tone: long}}}
    transitions: [{to: write}]
  - id: write
    version: 1.0.0
    name: Write
    steps:
      - {id: check, name: Check, triggers: {workflow: review, passContext: [tone]}}
    loops:
      - {id: each, name: Each chapter, type: forEach, over: chapters, variable: chapter, steps: [{id: draft, name: Draft}]}
    transitions: [{to: close}]
  - {id: close, version: 1.0.0, name: Close, steps: [{id: send, name: Send}]}
"""
REVIEW = """
id: review
version: 1.0.0
title: Review
variables: [{name: tone, type: string}]
initialActivity: look
activities:
  - {id: look, version: 1.0.0, name: Look, steps: [{id: compare, name: Compare}]}
"""
LETTER = """
id: letter
version: 1.0.0
title: Letter
initialActivity: plan
activities:
  - {id: plan, version: 1.0.0, name: Plan, steps: [{id: draft, name: Draft}], transitions: [{to: post}]}
  - {id: post, version: 1.0.0, name: Post, steps: [{id: stamp, name: Stamp}]}
"""
ECHO = """---
name: echo
description: Repeats the prompt.
executor: scripted
options: {script: {turns: [[{use: {input_tokens: 3, output_tokens: 2}}, {result: 'Turn {turn}: {prompt}'}]]}}
---
Repeat the prompt.
"""
# A process of its own, which writes a spool and goes on after the agent host has ended.
PATIENT = """---
name: patient
description: Waits for a file and then finishes.
executor: scripted
options: {process: true, script: {turns: [[{say: Waiting.}, {pause: {until: FLAG, seconds: 60}}, {result: Finished alone.}]]}}
---
Wait.
"""
# Whether a program has succeeded is known only from the exit status in its spool.
PROGRAM = """---
name: program
description: A program that waits for a file.
executor: command
options: {command: [sh, -c, 'echo Started.; while [ ! -e FLAG ]; do sleep 0.05; done; echo Done.']}
---
Wait.
"""
ASKING = """---
name: asking
description: Asks for permission.
executor: scripted
options: {script: {turns: [[{ask: {text: May I?, kind: permission, options: {yes: Go on, no: Stop}}}, {result: '{answer}'}]]}}
---
Ask.
"""
# Workers that need no tool: the addresses of tool servers are stored with a session and do not exist where a copy is opened.
CLERK = """---
name: clerk
description: Carries out one activity.
executor: scripted
options: {script: {turns: [[{result: '{"steps": [{"step_id": "draft", "output": "Drafted."}], "variables": {}}'}]]}}
---
Carry out the activity.
"""
LATE = """---
name: late
description: Fails at first.
executor: scripted
options:
  script:
    turns:
      - [{fail: Not today.}]
      - [{result: '{"steps": [{"step_id": "stamp", "output": "Stamped."}], "variables": {}}'}]
---
Carry out the activity.
"""
# The files of a spool while its agent runs.
DURING_RUN = (".stdin", ".hold", ".first", ".stdout", ".stderr", ".new")
CONDUCT = ("run", "letter", "--agent", "clerk", "--activity-agent", "post=late", "--tries", "1", "--project", PROJECT)


def scenario(program: Program) -> Json:
    """Write a home with sessions of every kind and return what opens them. The directory above the home is used as well."""
    flag = program.home.parent / "flag"
    prepare(program.home, flag)
    tokens: Json = {}
    with program.serve() as server:
        tokens |= {"yielded": _yielded(server), "answered": _answered(server), "completed": _completed(server)}
        tokens |= {"parent": _parent(server)}
    with program.serve("--dialect", "gates") as server:
        tokens["gates"] = _gates(server)
    with program.serve("--dialect", "navigator") as server:
        tokens |= {"navigator": _navigator(server), "nested": _nested(server)}
        finish_nested(server, _nested(server)["state"])
    program("agents", "start", "first", "Hello.", "--blueprint", "echo")
    with program.serve("--toolset", "orchestrator") as server:
        _stopped(server)
        _permitted(server, program)
    tokens["conducted"] = _conducted(program)
    _unwatched(program, flag)
    return tokens


def prepare(home: Path, flag: Path) -> None:
    """Write the definitions of the home."""
    texts = {
        "workflows/survey.yaml": SURVEY,
        "workflows/review.yaml": REVIEW,
        "workflows/letter.yaml": LETTER,
        "agents/echo.md": ECHO,
        "agents/patient.md": PATIENT.replace("FLAG", str(flag)),
        "agents/program.md": PROGRAM.replace("FLAG", str(flag)),
        "agents/asking.md": ASKING,
        "agents/clerk.md": CLERK,
        "agents/late.md": LATE,
    }
    home.mkdir(mode=0o700, parents=True)
    for name, text in texts.items():
        file = home / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, "utf-8")


def _yielded(server: ServerProcess) -> Json:
    """A session that waits at its checkpoint: an open request."""
    token = _in_gather(server)
    reply = server("yield_checkpoint", session_token=token, checkpoint_id="tone")
    return {"session_token": reply.token, "checkpoint_handle": reply.json["checkpoint_handle"], "early_token": token}


def _answered(server: ServerProcess) -> Json:
    """A session whose checkpoint was answered by its agent and not resumed yet."""
    reply = server("yield_checkpoint", session_token=_in_gather(server), checkpoint_id="tone")
    handle = reply.json["checkpoint_handle"]
    answer = server("respond_checkpoint", checkpoint_handle=handle, option_id="long")
    return {"session_token": answer.token, "checkpoint_handle": handle}


def _completed(server: ServerProcess) -> Json:
    """A session that has ended, with the trace tokens of its activities."""
    token = server("start_session", workflow_id="review").token
    entered = server("next_activity", session_token=token, activity_id="look")
    manifest = [{"step_id": "compare", "output": "Both are equal."}]
    ended = server("next_activity", session_token=entered.token, activity_id="__terminal__", step_manifest=manifest)
    traces = [reply.meta["trace_token"] for reply in (entered, ended) if "trace_token" in reply.meta]
    return {"session_token": ended.token, "trace_tokens": traces}


def _parent(server: ServerProcess) -> Json:
    """A session with a child."""
    token = server("start_session", workflow_id="survey").token
    child = server("start_session", workflow_id="review", parent_session_token=token).token
    inside = server("next_activity", session_token=child, activity_id="look").token
    return {"session_token": token, "child_token": inside}


def _in_gather(server: ServerProcess) -> str:
    token = server("start_session", workflow_id="survey").token
    chapters = {"chapters": ["one", "two"]}
    return str(server("next_activity", session_token=token, activity_id="gather", variables=chapters).token)


def _gates(server: ServerProcess) -> Json:
    token = server("start_session", workflow_id="survey").token
    return {"session_token": server("next_activity", session_token=token, activity_id="gather").token}


def _navigator(server: ServerProcess) -> Json:
    """A session whose checkpoint was answered, with the step that asked still to complete."""
    chapters = {"chapters": ["one", "two"]}
    state = server("nav_start", workflow_id="survey", initial_variables=chapters).json["state"]
    state = act(server, state, "complete_step", step_id="read")
    return {"state": act(server, state, "respond_to_checkpoint", checkpoint_id="tone", option_id="short")}


def _nested(server: ServerProcess) -> Json:
    """A session that waits for the child that one of its steps has started. The token opens the child."""
    state = act(server, _navigator(server)["state"], "complete_step", step_id="ask")
    state = act(server, state, "transition", activity_id="write")
    state = act(server, state, "complete_step", step_id="check")
    return {"state": state}


def finish_nested(server: ServerProcess, state: str) -> Json:
    """Lead the child to its end, then its parent through a loop to its end. Returns the last reply."""
    state = act(server, state, "complete_step", step_id="compare")
    state = act(server, state, "transition", activity_id="__terminal__")
    for _ in range(2):
        state = act(server, state, "advance_loop", loop_id="each")
        state = act(server, state, "complete_step", step_id="draft")
    state = act(server, state, "transition", activity_id="close")
    state = act(server, state, "complete_step", step_id="send")
    return dict(server("nav_action", state=state, action="transition", activity_id="__terminal__").json)


def act(server: ServerProcess, state: str, action: str, **more: str) -> str:
    reply = server("nav_action", state=state, action=action, **more).json
    assert reply["success"], reply
    return str(reply["state"])


def _start_patient(server: ServerProcess, name: str) -> None:
    """Start an agent that waits for the flag, and return when its first message is on record."""
    options = {"agent_blueprint_name": "patient", "project_dir": PROJECT, "async": True}
    server("start_agent_session", session_name=name, prompt="Wait.", **options)
    _wait(lambda: "agent.said" in server("get_agent_session_events", session_name=name, project_dir=PROJECT).text)


def _stopped(server: ServerProcess) -> None:
    """A run that was stopped."""
    _start_patient(server, "stopped")
    server("stop_agent_session", session_name="stopped", project_dir=PROJECT)


def _permitted(server: ServerProcess, program: Program) -> None:
    """A run whose agent asked for permission and got it."""
    options = {"agent_blueprint_name": "asking", "project_dir": PROJECT, "async": True}
    server("start_agent_session", session_name="permitted", prompt="Ask.", **options)
    _wait(lambda: request_of(program, "permitted"))
    program("answer", request_of(program, "permitted"), "yes")
    server("wait_for_agent_sessions", session_names=["permitted"], project_dir=PROJECT)


def request_of(program: Program, about: str) -> str:
    """The open request of a session, empty if there is none."""
    found = [one["id"] for one in program.json("inbox")["items"] if about in json.dumps(one)]
    return str(found[0]) if found else ""


def _conducted(program: Program) -> Json:
    """A run of a workflow by agents that failed in its second activity and can be started again."""
    lines = program.lines(*CONDUCT, code=1)
    return {"session": next(line["session"] for line in lines if line["kind"] == "begun")}


def _unwatched(program: Program, flag: Path) -> None:
    """Two runs whose agent host was killed: their agents ended alone, so only their spools know the results."""
    server = program.serve("--toolset", "orchestrator")
    with server:
        _start_patient(server, "alone")
        options = {"agent_blueprint_name": "program", "project_dir": PROJECT, "async": True}
        server("start_agent_session", session_name="program", prompt="Wait.", **options)
        _wait(lambda: any(b"Started." in file.read_bytes() for file in _spooled(program.home)))
        server.kill()
    flag.write_text("go", "utf-8")
    # The exit status is the last file of a spool. Its name is left to the snapshot.
    _wait(lambda: sum(file.suffix not in DURING_RUN for file in _spooled(program.home)) == 2)


def _spooled(home: Path) -> list[Path]:
    return [file for file in home.glob("runs/*/*/*/*") if file.is_file()]


def _wait(is_so: Callable[[], object]) -> None:
    """Wait, with a bound, for what another process writes. Nothing announces a file of a spool, so it is looked for."""
    end = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < end, "The other process did not get there in time."
        time.sleep(0.02)


def write(name: str) -> Path:
    """Write the fixture folder `name`."""
    target = FIXTURES / name
    assert not target.exists(), f"{target} exists. A fixture is never written anew; choose another name."
    shutil.rmtree(NEUTRAL, ignore_errors=True)
    try:
        NEUTRAL.mkdir()
        # The path of the interpreter is stored as well.
        (NEUTRAL / "python").symlink_to(sys.prefix)
        tokens = scenario(Program(NEUTRAL / "home", python=str(NEUTRAL / "python" / "bin" / "python")))
        _into_one_file(NEUTRAL / "home" / "ledger.db")
        (target / "home").mkdir(parents=True)
        for part in KEPT:
            _copy(NEUTRAL / "home" / part, target / "home" / part)
    finally:
        shutil.rmtree(NEUTRAL, ignore_errors=True)
    (target / "tokens.json").write_text(json.dumps(tokens, indent=2) + "\n", "utf-8")
    return target


def _into_one_file(ledger: Path) -> None:
    """Bring the write-ahead log into the file."""
    connection = sqlite3.connect(ledger)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.execute("VACUUM")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def _copy(source: Path, target: Path) -> None:
    """Copy files; a named pipe of a spool cannot be kept in git, and nobody reads it after the agent has ended."""
    if source.is_dir():
        target.mkdir()
        for inner in source.iterdir():
            _copy(inner, target / inner.name)
    elif source.exists() and stat.S_ISREG(source.stat().st_mode):
        shutil.copyfile(source, target)


def main() -> None:
    name = sys.argv[1]
    place = write(name)
    size = sum(file.stat().st_size for file in place.rglob("*") if file.is_file())
    sys.stdout.write(f"{place}: {size // 1024} KB\n")
    here = str(Path.cwd()).encode()
    for file in place.rglob("*"):
        if file.is_file() and here in file.read_bytes():
            sys.stdout.write(f"{file} holds the path of this checkout.\n")


if __name__ == "__main__":
    main()
