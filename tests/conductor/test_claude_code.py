"""`fidelio run` with a real coding agent: Claude Code does the work of every activity, a scripted model thinks for it."""

from __future__ import annotations

import asyncio
import json
import os
import sys

from fidelio.inbox import Inbox
from tests.agents.agent import QUIET
from tests.agents.model import Call, Heard, Reply, Say, scripted_model
from tests.agents.programs import require_claude
from tests.conductor.orchestra import Orchestra, report, workers_of
from tests.support import proves

SECONDS = 110
STEPS = {"greet": ("look", "ask"), "compose": ("read-advice", "write"), "farewell": ("tell", "show-record")}


def worker(heard: Heard) -> Reply:
    """What a model would do that is told to carry out an activity of `hello`."""
    prompt = next(text for text in reversed(heard.said) if "session_token: " in text)
    token = prompt.partition("session_token: ")[2].split()[0]
    if prompt.startswith("Your checkpoint was answered"):
        last = heard.seen[-1].text if heard.seen else ""
        return Say(report(*STEPS["greet"])) if '"resumed"' in last else Call("resume_checkpoint", {"session_token": token})
    if not heard.seen:
        return Call("get_activity", {"session_token": token})
    if '"yielded"' in heard.seen[-1].text:
        return Say("I have looked around. Somebody has to decide about the note.")
    activity = next(name for name in STEPS if f"({name})" in prompt)
    if activity == "greet":
        return Call("yield_checkpoint", {"session_token": heard.seen[-1].token, "checkpoint_id": "choose-tone"})
    return Say(f"Done.\n\n```json\n{report(*STEPS[activity])}\n```")


def environ(orchestra: Orchestra, model: str) -> dict[str, str]:
    home = orchestra.place / "user"
    home.mkdir()
    proxies = {"HTTP_PROXY": model, "HTTPS_PROXY": model, "NO_PROXY": "127.0.0.1,localhost"}
    return {
        "HOME": str(home),
        "PATH": os.defpath,
        "FIDELIO_HOME": str(orchestra.home),
        "FIDELIO_AGENTS_EXECUTOR": "claude",
        "ANTHROPIC_BASE_URL": model,
        "ANTHROPIC_API_KEY": "test",
        **QUIET,
        **proxies,
    }


@proves("conductor.claude-code")
async def test_hello_is_carried_out_by_claude_code_with_the_answer_of_a_person(orchestra: Orchestra) -> None:
    require_claude()
    async with asyncio.timeout(SECONDS), scripted_model(worker) as model:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "fidelio", "run", "hello", "--json"),
            cwd=orchestra.project,
            env=environ(orchestra, model.address),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with orchestra.house() as house:
            inbox = Inbox((await house.workflows()).unit.ledger)
            request = await anext(aiter(inbox.follow()))
            await inbox.answer(request.id, "warm", by="person:tester", channel="cli")
            out, errors = await process.communicate()
            assert process.returncode == 0, (out.decode(), errors.decode())
            session = json.loads(out.splitlines()[0])["session"]
            desk = (await house.workflows()).unit
            record = await desk.load_record(await desk.ledger.session(session))
            assert (record.status, list(record.completed)) == ("completed", ["greet", "compose", "farewell"])
            workers = await workers_of(house, session)
            assert [(one.executor, one.run.number) for one in workers] == [("claude", 2), ("claude", 1), ("claude", 1)]
            assert all(one.run.tool_calls for one in workers)
    assert model.strays == []
