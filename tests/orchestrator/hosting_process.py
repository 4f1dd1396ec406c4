"""A host in a process of its own, to be killed: `python -m tests.orchestrator.hosting_process HOME PROJECT`."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

from fidelio.clock import Clock, now_ms
from fidelio.home import Home
from fidelio.ledger import Ledger, open_ledger
from fidelio.orchestrator.blueprints.model import Blueprint, Limits
from fidelio.orchestrator.executors.registry import get_executors
from fidelio.orchestrator.runs.host import AgentHost
from fidelio.orchestrator.service.service import AgentService
from tests.orchestrator.fakes import HIGH_LIMITS, FakeBlueprints

LOG = "host.log"
ROOT = Path(__file__).resolve().parents[2]
# Says that it begins, works for a moment, prints its result, and says that it has ended. Each line is one write.
SINGER = """
echo "$FIDELIO_AGENT" >> began
cat > /dev/null
sleep 0.$1
echo "sung by $FIDELIO_AGENT"
echo "$FIDELIO_AGENT" >> ended
"""
SCRIPT = {"turns": [[{"say": "one"}, {"pause": 0.15}, {"say": "two"}, {"pause": 0.15}, {"say": "three"}, {"result": "sung"}]]}
WAITING = {"turns": [[{"say": "one"}, {"pause": {"until": "go", "seconds": 60}}, {"say": "two"}, {"result": "sung"}]]}
ASKING = {"turns": [[{"ask": {"text": "How?", "options": {"loud": "Loud", "soft": "Soft"}}}, {"result": "{answer}"}]]}


def fake_blueprints() -> FakeBlueprints:
    def blueprint(name: str, executor: str, *, resume_lost: bool = False, seconds: float = 60, **options: object) -> Blueprint:
        limits = Limits(wall_seconds=seconds)
        return Blueprint(name=name, description="", executor=executor, options=options, resume_lost=resume_lost, limits=limits)

    known = [
        blueprint("singer", "command", command=["/bin/sh", "-c", SINGER, "singer", "3"]),
        blueprint("steady-singer", "command", resume_lost=True, command=["/bin/sh", "-c", SINGER, "singer", "2"]),
        blueprint("player", "scripted", script=SCRIPT, process=True),
        blueprint("steady-player", "scripted", resume_lost=True, script=SCRIPT, process=True),
        blueprint("indoors", "scripted", script=SCRIPT),
        blueprint("waiting", "scripted", script=WAITING, process=True),
        blueprint("brief", "scripted", script=WAITING, process=True, seconds=5),
        blueprint("asking", "scripted", script=ASKING, process=True),
    ]
    return FakeBlueprints({one.name: one for one in known})


def real_service(ledger: Ledger, home: Path, project: Path, *, clock: Clock = now_ms) -> AgentService:
    return AgentService(
        ledger, fake_blueprints(), get_executors(), home=Home(home), project=str(project), limits=HIGH_LIMITS, clock=clock
    )


def spawn_host(home: Path, project: Path) -> subprocess.Popen[str]:
    """Returns once it hosts. What it complains about is in `host.log`."""
    command = [sys.executable, "-m", "tests.orchestrator.hosting_process", str(home), str(project)]
    with (home / LOG).open("ab") as log:
        host = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True)
    assert host.stdout is not None
    assert host.stdout.readline() == "ready\n"
    return host


def kill(host: subprocess.Popen[str]) -> None:
    host.kill()
    host.wait(timeout=10)
    assert host.stdout is not None
    host.stdout.close()


async def main(home: Path, project: Path) -> None:
    async with await open_ledger(home / "ledger.db") as ledger, AgentHost(real_service(ledger, home, project).context) as host:
        async with asyncio.timeout(60):
            while not host.is_hosting:  # noqa: ASYNC110  # a file lock of another process cannot be awaited
                await asyncio.sleep(0.01)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
