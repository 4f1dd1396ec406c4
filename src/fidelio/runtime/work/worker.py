"""A worker of a self-hosted environment: it polls for sessions, carries out their tool calls here, and sends the results.

It speaks the protocol of the work queue, so it works for any server that has it. The tools run in a sandbox of this machine. It
says which call it carries out before it begins, so that nothing is repeated unknowingly after its death.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import httpx2
import msgspec

from fidelio.errors import UsageProblem
from fidelio.retry import cancel_tasks, sleep_until
from fidelio.runtime.agent_toolset.definitions import HOSTED_TOOLS
from fidelio.runtime.agent_toolset.tools import build_tools
from fidelio.runtime.agents.tools import AGENT_TOOLSET, AgentTools
from fidelio.runtime.calls import Calls, Finished
from fidelio.runtime.service import RuntimeService, SessionRequest
from fidelio.runtime.specs import build_spec
from fidelio.runtime.work.queue import NO_HEARTBEAT
from fidelio.runtime.work.rules import CALL_KEY

BLOCK_MS = 999
REQUEST_SECONDS = 30.0
# How often a session is asked for new calls, and for how long after its turn has ended.
LOOK_SECONDS, IDLE_SECONDS = 1.0, 30.0
# How long the worker waits after a failed request, at most.
MAX_PAUSE = 30.0
MAX_REPLY = 64 << 20
_PAGE = 1_000
_TYPES = ("agent.tool_use", "agent.tool_result", "user.tool_result", "user.tool_confirmation")
_STATES = ("session.status_idle", "session.status_running", "session.status_terminated", "session.deleted")
_NO_WAIT = "The call waits for a person on the machine of the worker."


class WorkProblem(Exception):
    """A request of the worker failed. `status` is 0 if there was no reply."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status

    @property
    def is_permanent(self) -> bool:
        """Whether the same request would fail again."""
        return 400 <= self.status < 500 and self.status not in (408, 409, 412, 429)


class ToolOutput(msgspec.Struct, frozen=True):
    """The result of a call as it is sent: text and image blocks."""

    content: list[dict[str, Any]]
    is_error: bool = False


class Tools(Protocol):
    """Carries out the calls of a session on this machine."""

    async def carry_out(self, session: str, tool: str, arguments: Mapping[str, Any]) -> ToolOutput: ...


class SandboxTools:
    """The tools in a sandbox of this machine. Each remote session has a session of its own here, with files and a shell."""

    def __init__(self, service: RuntimeService, project: str, *, environment: str | None, mount: str | None) -> None:
        self._service, self._calls = service, Calls(service.context)
        self._project, self._environment, self._mount = project, environment, mount
        wanted = AgentTools(toolset=AGENT_TOOLSET, only=HOSTED_TOOLS)
        self._extra = build_tools(wanted, None, None, is_self_hosted=False)

    async def check(self) -> None:
        """Find out at the start whether sandboxes can be begun. Raises what is wrong with mount and environment."""
        name = f"worker-check-{secrets.token_hex(6)}"
        own = await self._open(name)
        await build_spec(self._service.context, await self._service.load(own))
        await self._service.end_session(own, by="system")

    async def _open(self, name: str) -> str:
        request = SessionRequest(project=self._project, name=name, environment=self._environment, mount=self._mount)
        return await self._service.open_session(request)

    async def carry_out(self, session: str, tool: str, arguments: Mapping[str, Any]) -> ToolOutput:
        own = await self._open(f"worker-{session}"[:60])
        done = await self._calls.carry_out(own, tool, arguments, tools=frozenset(), extra=self._extra, waits=False)
        if not isinstance(done, Finished):
            return ToolOutput([_text(_NO_WAIT)], is_error=True)
        text = done.output.get("text") if not done.is_error else None
        shown = text if isinstance(text, str) else msgspec.json.encode(done.output).decode()
        return ToolOutput([_text(shown), *(dict(image) for image in done.images)], is_error=done.is_error)


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


class WorkApi:
    """The requests of a worker."""

    def __init__(self, client: httpx2.AsyncClient, environment: str) -> None:
        self._client, self._root = client, f"/v1/environments/{environment}/work"

    async def poll(self) -> dict[str, Any] | None:
        found: dict[str, Any] | None = await self._request("GET", f"{self._root}/poll", params={"block_ms": str(BLOCK_MS)})
        return found

    async def acknowledge(self, work: str) -> None:
        await self._request("POST", f"{self._root}/{work}/ack")

    async def beat(self, work: str, last: str) -> dict[str, Any]:
        query = {"expected_last_heartbeat": last}
        found: dict[str, Any] = await self._request("POST", f"{self._root}/{work}/heartbeat", params=query)
        return found

    async def stop(self, work: str) -> None:
        await self._request("POST", f"{self._root}/{work}/stop", json={"force": True})

    async def name_call(self, work: str, call: str) -> None:
        """Say which call is carried out now; empty for none."""
        await self._request("POST", f"{self._root}/{work}", json={"metadata": {CALL_KEY: call}})

    async def send_result(self, session: str, call: str, output: ToolOutput) -> None:
        event = {"type": "user.tool_result", "tool_use_id": call, "content": output.content, "is_error": output.is_error}
        await self._request("POST", f"/v1/sessions/{session}/events", json={"events": [event]})

    async def list_events(self, session: str, after: str) -> list[dict[str, Any]]:
        """The events of a session after an event, as far as they matter to a worker."""
        found: list[dict[str, Any]] = []
        query: dict[str, Any] = {"limit": str(_PAGE), "types[]": [*_TYPES, *_STATES], **({"after": after} if after else {})}
        while True:
            page = await self._request("GET", f"/v1/sessions/{session}/events", params=query)
            found += page["data"]
            if not page.get("next_page"):
                return found
            query["page"] = page["next_page"]

    async def _request(self, method: str, path: str, **more: Any) -> Any:
        try:
            response = await self._client.request(method, path, **more)
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as error:
            # Without the text of the error: it may contain the key.
            raise WorkProblem(f"The server cannot be reached ({type(error).__name__}).") from None
        if len(response.content) > MAX_REPLY:
            raise WorkProblem(f"The server sent more than {MAX_REPLY:,} bytes.")
        try:
            body = msgspec.json.decode(response.content or b"null")
        except (msgspec.DecodeError, RecursionError) as error:
            raise WorkProblem("The server sent a reply that is no JSON.", response.status_code) from error
        if response.status_code >= 400:
            details = body.get("error") if isinstance(body, dict) else None
            reason = details.get("message") if isinstance(details, dict) else ""
            raise WorkProblem(f"The server answered {response.status_code}: {str(reason)[:300]}", response.status_code)
        return body


class SessionCalls:
    """The calls of a session that this worker may carry out, read from its events."""

    def __init__(self, api: WorkApi, session: str) -> None:
        self._api, self._session, self._last = api, session, ""
        self._open: dict[str, dict[str, Any]] = {}
        self._allowed: set[str] = set()
        self.is_over = self.has_ended = False

    async def update(self) -> list[dict[str, Any]]:
        """Read what is new; the calls that can be carried out, in their order."""
        for event in await self._api.list_events(self._session, self._last):
            self._last = str(event["id"])
            self._apply(event)
        return [call for id_, call in self._open.items() if _may_run(call) or id_ in self._allowed]

    def close(self, call: str) -> None:
        """The call has a result."""
        self._open.pop(call, None)

    def _apply(self, event: Mapping[str, Any]) -> None:
        kind, call = event["type"], str(event.get("tool_use_id", ""))
        if kind == "agent.tool_use":
            if event.get("name") in HOSTED_TOOLS and event.get("evaluated_permission") != "deny":
                self._open[str(event["id"])] = dict(event)
        elif kind == "user.tool_confirmation":
            if event.get("result") == "allow":
                self._allowed.add(call)
            else:
                self.close(call)
        elif kind in _TYPES:
            self.close(call)
        else:
            reason = (event.get("stop_reason") or {}).get("type")
            self.is_over = kind == "session.status_idle" and reason != "requires_action"
            self.has_ended = self.has_ended or kind in ("session.status_terminated", "session.deleted")


def _may_run(call: Mapping[str, Any]) -> bool:
    return call.get("evaluated_permission") != "ask"


class EnvironmentWorker:
    """Serves the sessions of an environment, each after the last. `report` gets what a person may want to know."""

    def __init__(self, api: WorkApi, tools: Tools, stop: asyncio.Event, report: Callable[[str], object] = print) -> None:
        self._api, self._tools, self._stop, self._report = api, tools, stop, report
        self.look_seconds, self.idle_seconds = LOOK_SECONDS, IDLE_SECONDS

    async def run(self) -> None:
        """Work until the event is set. Raises `UsageProblem` if the server refuses the worker for good."""
        pause = 1.0
        while not self._stop.is_set():
            try:
                item = await self._api.poll()
                pause = 1.0
                if item is not None:
                    await self._serve(item)
            except WorkProblem as problem:
                if problem.is_permanent:
                    raise UsageProblem(str(problem), remedy="Check URL, key and environment.") from problem
                self._report(f"{problem} Trying again.")
                await sleep_until(pause, until=self._stop)
                pause = min(MAX_PAUSE, pause * 2)

    async def _serve(self, item: Mapping[str, Any]) -> None:
        """Carry out the calls of a session for as long as this worker has it."""
        work, session = str(item["id"]), str(item["data"]["id"])
        await self._api.acknowledge(work)
        await self._api.name_call(work, "")
        lease = _Lease(self._api, work)
        await lease.begin()
        self._report(f"Working for session {session}.")
        keeping = asyncio.create_task(lease.keep())
        serving = asyncio.create_task(self._carry_out(work, session, lease))
        try:
            await asyncio.wait({keeping, serving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancel_tasks(keeping, serving)
        if serving.done() and not serving.cancelled() and (error := serving.exception()) is not None:
            raise error
        if not lease.is_lost:
            await self._end(work)

    async def _end(self, work: str) -> None:
        try:
            await self._api.stop(work)
        except WorkProblem as problem:
            if problem.status not in (404, 409):
                raise

    async def _carry_out(self, work: str, session: str, lease: _Lease) -> None:
        calls, idle = SessionCalls(self._api, session), 0.0
        while not (self._stop.is_set() or calls.has_ended or lease.is_stopping):
            ready = await calls.update()
            for call in ready:
                await self._carry_out_call(work, session, call)
                calls.close(str(call["id"]))
                if self._stop.is_set() or lease.is_stopping:
                    return
            if not ready:
                idle = idle + self.look_seconds if calls.is_over else 0.0
                if idle >= self.idle_seconds:
                    return
                await sleep_until(self.look_seconds, until=self._stop)

    async def _carry_out_call(self, work: str, session: str, call: Mapping[str, Any]) -> None:
        name, id_ = str(call["name"]), str(call["id"])
        await self._api.name_call(work, id_)
        self._report(f"{name} ({id_})")
        output = await self._tools.carry_out(session, name, call.get("input") or {})
        try:
            await self._send(session, id_, output)
        except WorkProblem as problem:
            if not problem.is_permanent:
                raise
            # The call has ended meanwhile: it was interrupted, or its result came from elsewhere.
            self._report(f"The result of {id_} was refused: {problem}")
        await self._api.name_call(work, "")

    async def _send(self, session: str, call: str, output: ToolOutput) -> None:
        """Send a result, again and again until it has arrived: a lost lease ends it."""
        pause = 1.0
        while True:
            try:
                await self._api.send_result(session, call, output)
            except WorkProblem as problem:
                if problem.is_permanent:
                    raise
            else:
                return
            await sleep_until(pause, until=asyncio.Event())
            pause = min(MAX_PAUSE, pause * 2)


class _Lease:
    """The lease of an item, which heartbeats keep."""

    def __init__(self, api: WorkApi, work: str) -> None:
        self._api, self._work, self._last, self._ttl = api, work, NO_HEARTBEAT, 30.0
        self.is_lost = self.is_stopping = False

    async def begin(self) -> None:
        await self._beat()

    async def keep(self) -> None:
        """Send heartbeats until the item is lost. A server that cannot be reached for the time of the lease has it again."""
        clock = asyncio.get_running_loop().time
        since = clock()
        while not self.is_lost:
            await sleep_until(min(30.0, self._ttl / 3), until=asyncio.Event())
            try:
                await self._beat()
                since = clock()
            except WorkProblem as problem:
                self.is_lost = problem.status in (404, 412) or clock() - since > self._ttl

    async def _beat(self) -> None:
        beat = await self._api.beat(self._work, self._last)
        self._last, self._ttl = str(beat["last_heartbeat"]), float(beat["ttl_seconds"] or 30)
        self.is_stopping = beat["state"] == "stopping"
        self.is_lost = beat["state"] == "stopped" or not beat["lease_extended"]


def open_client(url: str, key: str) -> httpx2.AsyncClient:
    """A client of the server. Raises `UsageProblem` for an address that cannot be used."""
    if not url.startswith(("http://", "https://")):
        raise UsageProblem(f"{url!r:.200} is no address of a server.", remedy="Write one that begins with https:// or http://.")
    return httpx2.AsyncClient(
        base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=REQUEST_SECONDS, follow_redirects=False
    )
