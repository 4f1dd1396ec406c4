"""The script of the guide at a real `fidelio up`, and the reference that is generated."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fidelio.app.application import open_bundled
from fidelio.settings import load_settings
from scripts import generate_json_api_docs as generator
from tests.support import proves
from tests.surfaces.api.conftest import TOKEN, CheckedClient, ask, open_session
from tests.surfaces.api.test_events import append, read_stream

GUIDE = generator.REFERENCE.parent / "guides" / "scripts.md"
SECONDS = 60


@contextmanager
def serve(home: Path) -> Iterator[str]:
    """A server in a process of its own, and its address."""
    environ = {**os.environ, "FIDELIO_HOME": str(home), "FIDELIO_TOKEN": TOKEN}
    command = [sys.executable, "-u", "-m", "fidelio", "up", "--port", "0"]
    server = subprocess.Popen(command, cwd=home.parent, env=environ, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        yield next(found[1] for line in server.stdout if (found := re.search(r"(http://\S+)/mcp", line)))
    finally:
        server.kill()
        server.communicate(timeout=SECONDS)


def start_script(url: str) -> subprocess.Popen[str]:
    """The script of the guide, which waits for a question."""
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    environ = {**os.environ, "FIDELIO_URL": url, "FIDELIO_TOKEN": TOKEN}
    return subprocess.Popen([sys.executable, "-c", blocks[0]], env=environ, stdout=subprocess.PIPE, text=True)


@proves("api.guide", "api.streams")
async def test_the_script_of_the_guide_answers_at_a_real_server_and_a_stream_survives_its_restart(tmp_path: Path) -> None:
    request = ask("x")
    async with open_bundled(load_settings(str(tmp_path / "home"), environ={})) as application:
        await append(application, "first")
        with serve(tmp_path / "home") as url:
            script = start_script(url)
            (first,) = await read_stream(url, "/api/events/stream?after=0", 1)
            session = await open_session(application, "one", request)
            output, _ = script.communicate(timeout=SECONDS)
            async with CheckedClient(base_url=url, headers={"x-api-key": TOKEN}, trust_env=False) as client:
                found = (await client.get(f"/api/requests/{request.id}")).json()
            async with CheckedClient(base_url=url, trust_env=False) as stranger:
                page = await stranger.get("/api")
        with serve(tmp_path / "home") as url:
            (second, *_) = await read_stream(url, "/api/events/stream", 2, **{"Last-Event-ID": str(first["stream_id"])})

    assert script.returncode == 0
    assert output.splitlines() == ["May I do x?", "allow api local"]
    assert (found["session"], found["state"]) == (session, "answered")
    assert page.json()["code"] == "api.token"
    assert second["position"] == first["position"] + 1


@proves("api.reference")
def test_the_stored_document_and_the_list_of_operations_are_up_to_date() -> None:
    assert generator.DOCUMENT.read_text("utf-8") == generator.render_document(), "openapi.json is stale: run `make docs`"
    assert generator.PAGE.read_text("utf-8") == generator.render(), "json-api.md is stale: run `make docs`"
    assert json.loads(generator.DOCUMENT.read_text("utf-8"))["openapi"] == "3.1.0"
