"""An agent starts us anew for every conversation, so nothing heavy is loaded before the first reply."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fidelio.surfaces.mcp.dialects import DIALECTS
from tests.support import proves
from tests.surfaces.mcp.wire import META, SECONDS, initialize, request

HEAVY = ("pydantic", "click", "rich", "starlette", "uvicorn", "mcp", "apsw", "asyncpg", "yaml")
# Parts of our own: the services of the workflows and the agents, and every module of handlers.
OURS = ("fidelio.engine", "fidelio.workflows", "fidelio.orchestrator", "fidelio.conductor", "handlers")
# Runs the command, and says at its end what it has loaded.
PROGRAM = (
    "import atexit, sys\n"
    "atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
    "sys.argv[0] = 'fidelio'\n"
    "from fidelio.__main__ import main\n"
    "sys.exit(main())\n"
)


@proves("mcp.light-start")
@pytest.mark.parametrize("first", [initialize(), request(1, "server/discover", _meta=META), request(1, "tools/list")])
@pytest.mark.parametrize("tools", [*(f"--dialect={dialect}" for dialect in DIALECTS), "--toolset=orchestrator"])
def test_the_first_reply_comes_before_anything_heavy_is_loaded(first: dict[str, object], tools: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "mcp", tools],
        input=json.dumps(first) + "\n",
        env={**os.environ, "FIDELIO_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )

    assert "result" in json.loads(done.stdout)
    loaded = done.stderr.split()
    assert {"fidelio.surfaces.mcp.protocol", "sys"} <= set(loaded)
    assert [name for name in loaded if name in HEAVY or name.startswith(OURS[:-1]) or name.endswith(OURS[-1])] == []
