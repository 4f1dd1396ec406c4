"""`fidelio run` with Claude Code as the worker of every activity; its model is scripted."""

from __future__ import annotations

import asyncio
import json
import os
import sys

from fidelio.inbox import Inbox
from tests.agents.agent import QUIET
from tests.agents.model import Heard, MessageReply, ModelCall, ModelText, scripted_model
from tests.agents.programs import require_claude
from tests.conductor.run_setup import RunSetup, list_workers, report
from tests.support import proves

SECONDS = 110
STEPS = {"greet": ("look", "ask"), "compose": ("read-advice", "write"), "farewell": ("tell", "show-record")}


def worker(heard: Heard) -> MessageReply:
    """Reply like a model that does an activity of `hello`."""
    prompt = next(text for text in reversed(heard.said) if "session_token: " in text)
    token = prompt.partition("session_token: ")[2].split()[0]
    if prompt.startswith("Your checkpoint was answered"):
        last = heard.seen[-1].text if heard.seen else ""
        return (
            ModelText(report(*STEPS["greet"]))
            if '"resumed"' in last
            else ModelCall("resume_checkpoint", {"session_token": token})
        )
    if not heard.seen:
        return ModelCall("get_activity", {"session_token": token})
    if '"yielded"' in heard.seen[-1].text:
        return ModelText("I have looked around. Somebody has to decide about the note.")
    activity = next(name for name in STEPS if f"({name})" in prompt)
    if activity == "greet":
        return ModelCall("yield_checkpoint", {"session_token": heard.seen[-1].token, "checkpoint_id": "choose-tone"})
    return ModelText(f"Done.\n\n```json\n{report(*STEPS[activity])}\n```")


def environ(setup: RunSetup, model: str) -> dict[str, str]:
    home = setup.root / "user"
    home.mkdir()
    proxies = {"HTTP_PROXY": model, "HTTPS_PROXY": model, "NO_PROXY": "127.0.0.1,localhost"}
    return {
        "HOME": str(home),
        "PATH": os.defpath,
        "FIDELIO_HOME": str(setup.home),
        "FIDELIO_AGENTS_EXECUTOR": "claude",
        "ANTHROPIC_BASE_URL": model,
        "ANTHROPIC_API_KEY": "test",
        **QUIET,
        **proxies,
    }


@proves("conductor.claude-code")
async def test_claude_code_completes_hello_with_the_answer_of_a_person(setup: RunSetup) -> None:
    require_claude()
    async with asyncio.timeout(SECONDS), scripted_model(worker) as model:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "fidelio", "run", "hello", "--json"),
            cwd=setup.project,
            env=environ(setup, model.address),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with setup.app() as app:
            inbox = Inbox((await app.workflows()).unit.ledger)
            request = await anext(aiter(inbox.follow()))
            await inbox.answer(request.id, "warm", by="person:tester", channel="cli")
            out, errors = await process.communicate()
            assert process.returncode == 0, (out.decode(), errors.decode())
            session = json.loads(out.splitlines()[0])["session"]
            unit = (await app.workflows()).unit
            record = await unit.load_record(await unit.ledger.session(session))
            assert (record.status, list(record.completed)) == ("completed", ["greet", "compose", "farewell"])
            workers = await list_workers(app, session)
            assert [(worker.executor, worker.run.number) for worker in workers] == [("claude", 2), ("claude", 1), ("claude", 1)]
            assert all(worker.run.tool_calls for worker in workers)
    assert model.strays == []
