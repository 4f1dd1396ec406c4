"""A server that is killed after every call of a walk."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from fidelio.settings import Settings
from tests.support import proves

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "killer", "version": "0"}}


def call_and_kill(settings: Settings, library: Path, tool: str, **arguments: Any) -> dict[str, Any]:
    """One call on a fresh server, which dies without a chance to clean up as soon as it has answered."""
    environ = {**os.environ, "FIDELIO_HOME": str(settings.home.path), "FIDELIO_MIN_RESPONSE_SECONDS": "0"}
    command = [sys.executable, "-m", "fidelio", "mcp", "--workflows", str(library)]
    with subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        for number, (method, params) in enumerate(
            [("initialize", HELLO), ("tools/call", {"name": tool, "arguments": arguments})]
        ):
            message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            server.stdin.write(json.dumps(message).encode() + b"\n")
            server.stdin.flush()
            reply = json.loads(server.stdout.readline())
        server.send_signal(signal.SIGKILL)
    result: dict[str, Any] = reply["result"]
    assert not result.get("isError"), result["content"][0]["text"]
    return result


@proves("sessions.kill", "workflows.restart")
def test_a_walk_goes_on_although_the_server_dies_after_every_call(settings: Settings, library: Path) -> None:
    def call(tool: str, **arguments: Any) -> dict[str, Any]:
        return call_and_kill(settings, library, tool, **arguments)

    def token(result: dict[str, Any]) -> str:
        return str(result["_meta"]["session_token"])

    held = token(call("start_session", workflow_id="score"))
    held = token(call("next_activity", session_token=held, activity_id="tune"))
    call("get_activity", session_token=held)
    handle = token(call("yield_checkpoint", session_token=held, checkpoint_id="how"))
    call("present_checkpoint", checkpoint_handle=handle)
    call("respond_checkpoint", checkpoint_handle=handle, option_id="piano")
    call("resume_checkpoint", session_token=held)
    steps = [{"step_id": step, "output": "done"} for step in ("hear", "ask", "soften")]
    moved = call("next_activity", session_token=held, activity_id="bow", step_manifest=steps)
    smile = [{"step_id": "smile", "output": "done"}]
    ended = call("next_activity", session_token=token(moved), activity_id="workflow-end", step_manifest=smile)
    status = json.loads(call("get_workflow_status", session_token=token(ended))["content"][0]["text"])
    trace = json.loads(call("get_trace", session_token=held)["content"][0]["text"])

    assert status["status"] == "completed"
    assert status["variables"] == {"loud": False}
    assert moved["_meta"]["validation"]["warnings"] == []
    assert trace["event_count"] == 9
