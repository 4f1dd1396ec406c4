"""A walk through a workflow in the `navigator` dialect: step by step, with the state of each reply."""

from __future__ import annotations

import json
from typing import Any

from benchmarks.workflows import ACTIVITIES, STEPS, Call, Client, Recording


class NavigatorRecording(Recording):
    """Passes on the state that each reply returns."""

    def token_of(self, result: dict[str, Any]) -> str:
        return str(json.loads(result["content"][0]["text"])["state"])


def walk_navigator(client: Client, workflow: str) -> list[Call]:
    """Run a session to its end: answer the checkpoint of every activity, complete every step with a call of its own."""
    call = NavigatorRecording(client)
    state = call("nav_start", workflow_id=workflow)
    for number in range(ACTIVITIES):
        if number:
            state = call("nav_action", state=state, action="transition", activity_id=f"activity-{number:02}")
        state = call("nav_checkpoint", state=state)
        answer = {"action": "respond_to_checkpoint", "checkpoint_id": "ask", "option_id": "yes"}
        state = call("nav_action", state=state, **answer)
        for step in range(STEPS):
            state = call("nav_action", state=state, action="complete_step", step_id=f"step-{step}")
        state = call("nav_situation", state=state)
    call("nav_action", state=state, action="transition", activity_id="__terminal__")
    return call.calls
