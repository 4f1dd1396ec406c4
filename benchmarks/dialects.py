"""Benchmark of the dialects: CPU time per call, compared with the `sessions` dialect.

python -m benchmarks dialects

The same workflow is walked from its start to its end in every dialect, the way an agent does it there. What is compared is the
CPU of the whole walk divided by its calls: dialects cut the same work into calls of different weight.
"""

from __future__ import annotations

import asyncio
import compileall
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from benchmarks.dialects_navigator import walk_navigator
from benchmarks.figures import Figure
from benchmarks.mcp import ROOT
from benchmarks.measure import interleaved, ratio
from benchmarks.workflows import ACTIVITIES, MANIFEST, Call, Client, Recording, let_settle, ours, started, walk, write_workflow

# Short rounds, so that a busy moment of the machine slows all measurements of a round.
ROUNDS = 25
WALKS = 1
MOST = 1.3
YARDSTICK = "sessions"


def walk_gates(client: Client, workflow: str) -> list[Call]:
    """Run a session to its end; every activity opens its checkpoint when it is entered."""
    call = Recording(client)
    token = call("start_session", workflow_id=workflow)
    token = call("get_skills", session_token=token)
    token = call("get_workflow", session_token=token)
    for number in range(ACTIVITIES):
        activity = f"activity-{number:02}"
        more = {"step_manifest": MANIFEST} if number else {}
        token = call("next_activity", session_token=token, activity_id=activity, **more)
        token = call("get_checkpoint", session_token=token, activity_id=activity, checkpoint_id="ask")
        token = call("respond_checkpoint", session_token=token, checkpoint_id="ask", option_id="yes")
    call("next_activity", session_token=token, activity_id="__terminal__", step_manifest=MANIFEST)
    return call.calls


# How an agent walks in each dialect. A dialect that is added here is measured like the others.
DIALECTS: dict[str, Callable[[Client, str], list[Call]]] = {
    YARDSTICK: walk,
    "gates": walk_gates,
    "navigator": walk_navigator,
}


async def cpu_per_call(client: Client, dialect: str, walks: int) -> float:
    calls = [call for _ in range(walks) for call in DIALECTS[dialect](client, "large")]
    return sum(call.cost for call in calls) / len(calls)


async def measure(rounds: int, walks: int) -> list[Figure]:
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        library = Path(place) / "workflows"
        write_workflow(library, "large")
        let_settle()
        measured = {}
        for name in DIALECTS:
            command = [*ours(library), "--dialect", name]
            client = stack.enter_context(started(command, str(Path(place) / name)))
            measured[name] = partial(cpu_per_call, client, name, walks)
        found = await interleaved(rounds, measured)
    return [
        Figure(
            name=f"CPU per call of the {name} dialect / of the {YARDSTICK} dialect",
            value=ratio(found[name], found[YARDSTICK]),
            unit="x",
            at_most=MOST,
        )
        for name in DIALECTS
        if name != YARDSTICK
    ]


def main(rounds: int = ROUNDS, walks: int = WALKS) -> list[Figure]:
    compileall.compile_dir(ROOT / "src", quiet=2)
    return asyncio.run(measure(rounds, walks))
