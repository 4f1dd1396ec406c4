"""A runtime without processes for outcomes: file actions run in the test, commands are answered by a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fidelio.home import Home
from fidelio.inbox import Inbox
from fidelio.ledger import Ledger
from fidelio.ledger.model import NewEvent
from fidelio.ledger.unit_of_work import SessionDecision
from fidelio.providers.model import ModelReply, ModelRequest, ToolUseBlock
from fidelio.runtime import events as e
from fidelio.runtime.outcomes.decisions import plan_outcome
from fidelio.runtime.outcomes.evaluation import EvaluationRun, evaluate
from fidelio.runtime.ports import RuntimePorts
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.service import Finished, RuntimeService, SessionRequest, WaitingForPerson
from fidelio.runtime.specs import session_directory
from fidelio.runtime.tools.definitions import DEFINITIONS
from fidelio.runtime.tools.model import LoadedRuntime, RuntimeContext
from fidelio.sandbox.model import LevelReport, SandboxSpec, SandboxState
from fidelio.tokens.keyring import FileKeys
from tests.runtime.resources.support import FileSandboxes
from tests.support.ledgers import MovingClock

ALL = frozenset(DEFINITIONS)
PROMOTE = "resources_promote_to_substrate"


class CheckSandboxes(FileSandboxes):
    """Sandboxes that also run commands, as `run` says: it gets the specification and the command, and gives an exit status."""

    def __init__(self) -> None:
        super().__init__()
        self.run: Callable[[SandboxSpec, str], int] = lambda _, __: 0
        self.specs: list[SandboxSpec] = []
        self.live: dict[str, SandboxState] = {}
        self.replies["run_shell"] = self._run_shell

    def _run_shell(self, spec: SandboxSpec, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        self.specs.append(spec)
        is_copying = "cp -a" in arguments["command"]
        code = 0 if is_copying else self.run(spec, arguments["command"])
        return {"commandId": "c", "status": "completed", "exitCode": code, "stdout": "", "stderr": "said this\n"}

    async def level(self) -> LevelReport:
        return LevelReport("bubblewrap", "a test")

    async def start(self, spec: SandboxSpec) -> SandboxState:
        return self.live.get(spec.session) or SandboxState(spec.session, "first", "bubblewrap", 1)

    async def state(self, session: str) -> SandboxState | None:
        return self.live.get(session)


class OutcomeBench:
    """Sessions of one agent, a person who answers, and evaluations."""

    def __init__(self, home: Home, ledger: Ledger, ports: RuntimePorts | None = None) -> None:
        self.clock, self.sandboxes = MovingClock(), CheckSandboxes()
        keys = FileKeys(home.keys)
        self.context = RuntimeContext(ledger, self.clock, home, self.sandboxes, lambda: keys, ports or RuntimePorts())
        self.service = RuntimeService(self.context)
        self.project = str(home.path / "project")

    async def open(self, name: str = "one", **more: Any) -> str:
        return await self.service.open_session(SessionRequest(project=self.project, name=name, **more))

    async def load(self, session: str) -> LoadedRuntime:
        return await self.context.unit.load(session)

    async def record(self, session: str) -> RuntimeRecord:
        return (await self.load(session)).record

    async def workspace(self, session: str) -> Path:
        return session_directory(self.context, await self.record(session)) / "workspace"

    async def call(self, session: str, tool: str, *, tools: frozenset[str] = ALL, **arguments: Any) -> Mapping[str, Any]:
        done = await self.service.call(session, tool, arguments, tools=tools)
        assert isinstance(done, Finished), done
        assert not done.is_error, done.output
        return done.output

    async def refuse(self, session: str, tool: str, *, tools: frozenset[str] = ALL, **arguments: Any) -> dict[str, Any]:
        done = await self.service.call(session, tool, arguments, tools=tools)
        assert isinstance(done, Finished), done
        assert done.is_error, done.output
        return dict(done.output)

    async def ask(self, session: str, tool: str, **arguments: Any) -> str:
        done = await self.service.call(session, tool, arguments, tools=ALL, waits=False)
        assert isinstance(done, WaitingForPerson), done
        return done.request

    async def question(self, request: str) -> str:
        return (await self.context.ledger.request(request)).question

    async def allow(self, request: str) -> None:
        await Inbox(self.context.ledger).answer(request, "allow", by="person:anna", channel="cli")

    async def append(self, session: str, *events: NewEvent) -> None:
        await self.context.unit.update(session, lambda _: SessionDecision(None, events=events))

    async def define(self, session: str, title: str = "Ship it", *criteria: Any, **more: Any) -> str:
        """Define an outcome as a person; its id."""
        body = {"title": title, "successCriteria": list(criteria), **more}
        event = await plan_outcome(await self.load(session), body, author="person", by="anna")
        await self.append(session, event)
        return str(event.body["outcome_id"])

    async def evaluate(self, session: str, wake: str = "wake_1", grader: Grader | None = None, **more: Any) -> EvaluationRun:
        """Evaluate at the end of a wake, and commit it."""
        run = await evaluate(self.context, await self.load(session), wake=wake, grade=grader, **more)
        if run.events:
            await self.append(session, *run.events)
        return run

    async def send_message(self, session: str, text: str) -> None:
        body = {"content": [{"type": "text", "text": text}], "wake_id": "wake_1"}
        await self.append(session, NewEvent(type=e.AGENT_MESSAGE, body=body, actor="agent"))


class Grader:
    """A model grader. `answer` gives the verdict about a criterion, from its name and the citable ids."""

    def __init__(self, answer: Callable[[str, list[str]], Any] | None = None) -> None:
        self._answer = answer or (lambda _, citable: {"verdict": "met", "citations": citable[:1], "reason": "It is shown."})
        self.requests: list[ModelRequest] = []

    async def __call__(self, request: ModelRequest) -> ModelReply:
        self.requests.append(request)
        properties = request.tools[0].input_schema["properties"]
        verdicts = {
            name: self._answer(name, schema["properties"]["citations"]["items"]["enum"]) for name, schema in properties.items()
        }
        return ModelReply(content=(ToolUseBlock("toolu_g", "grade", verdicts),), stop_reason="tool_use")
