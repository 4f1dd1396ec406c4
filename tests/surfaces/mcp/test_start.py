"""An agent starts us anew for every conversation, so nothing heavy is loaded before the first reply."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import proves
from tests.surfaces.mcp.wire import META, SECONDS, initialize, request

HEAVY = ("pydantic", "click", "rich", "starlette", "uvicorn", "mcp", "apsw", "yaml")
# Runs the command, and says at its end what it has loaded.
PROGRAM = (
    "import atexit, sys\n"
    f"atexit.register(lambda: print(*(name for name in {HEAVY!r} if name in sys.modules), file=sys.stderr))\n"
    "sys.argv = ['fidelio', 'mcp']\n"
    "from fidelio.__main__ import main\n"
    "sys.exit(main())\n"
)


@proves("mcp.light-start")
@pytest.mark.parametrize("first", [initialize(), request(1, "server/discover", _meta=META), request(1, "tools/list")])
def test_the_first_reply_comes_before_anything_heavy_is_loaded(first: dict[str, object], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps(first) + "\n",
        env={**os.environ, "FIDELIO_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )

    assert "result" in json.loads(done.stdout)
    assert done.stderr.split() == []
