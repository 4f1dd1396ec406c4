"""A host in a process of its own, to be killed: `python -m tests.sandbox.host.hosting_process HOME`."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fidelio.app.sandboxes import host_sandboxes
from fidelio.home import Home
from fidelio.processes.table import ProcessIdentity, iterate_processes

ROOT = Path(__file__).resolve().parents[3]
LOG = "host.log"


@contextmanager
def spawn_host(home: Path, **environ: str) -> Iterator[subprocess.Popen[str]]:
    """A host that listens. What it complains about is in `host.log`. It is killed at the end of the block."""
    command = [sys.executable, "-m", "tests.sandbox.host.hosting_process", str(home)]
    with (home / LOG).open("ab") as log:
        host = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, **environ},
        )
    with host:
        assert host.stdout is not None
        try:
            assert host.stdout.readline() == "ready\n", (home / LOG).read_text("utf-8")
            yield host
        finally:
            host.kill()


def find_descendants(pid: int) -> set[ProcessIdentity]:
    """Every process below this one now."""
    table = list(iterate_processes())
    found, above = set[ProcessIdentity](), {pid}
    while above:
        below = {entry.identity for entry in table if entry.parent in above}
        found, above = found | below, {identity.pid for identity in below}
    return found


async def main(home: Path) -> None:
    async with host_sandboxes(Home(home)):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
