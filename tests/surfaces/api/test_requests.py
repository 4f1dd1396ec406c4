"""Requests over the API: lists with filters, answers that count once, and who may give them."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import httpx2
import pytest

from fidelio.app.application import Application
from fidelio.app.asking import note_address
from fidelio.inbox import Inbox, demand_proof
from fidelio.orchestrator.blueprints.servers import AGENT_HEADER
from fidelio.processes.caller import UNSEEN
from fidelio.processes.table import AGENT_MARKER
from fidelio.surfaces.http import plain
from tests.support import proves
from tests.surfaces.api.conftest import TOKEN, ask, collect, open_session


async def answer(client: httpx2.AsyncClient, request: str, **body: Any) -> httpx2.Response:
    return await client.post(f"/api/requests/{request}/answer", json=body)


@proves("api.requests")
async def test_requests_are_filtered_and_have_the_keys_of_the_command_line(
    client: httpx2.AsyncClient, application: Application
) -> None:
    permission, question = ask("a command"), ask("q", "question", "Which colour?", workflow="paint")
    await open_session(application, "one", permission, question)
    await open_session(application, "two", ask("another"), project="/work/other")

    async def find(**filters: str) -> set[str]:
        return {found["question"] for found in await collect(client, "/api/requests", **filters)}

    assert await find() == {"May I do a command?", "Which colour?", "May I do another?"}
    assert await find(kind="permission") == {"May I do a command?", "May I do another?"}
    assert await find(kind="permission", project="shop") == {"May I do a command?"}
    assert await find(workflow="paint") == await find(session="one", kind="question") == {"Which colour?"}
    assert await find(state="answered") == set()
    first = (await client.get(f"/api/requests/{permission.id}")).json()
    assert (first["id"], first["session_name"], first["state"]) == (permission.id, "one", "open")
    assert [option["id"] for option in first["options"]] == ["allow", "refuse"]
    assert (await client.get("/api/requests?session=nobody")).status_code == 404
    assert (await client.get("/api/requests/r_nothing")).json()["code"] == "ledger.request-not-found"


@proves("api.answer")
async def test_an_answer_is_recorded_with_its_channel_and_confirmed_when_it_is_repeated(
    client: httpx2.AsyncClient, application: Application
) -> None:
    permission, question = ask("x"), ask("q", "question")
    await open_session(application, "one", permission, question)

    first = (await answer(client, permission.id, option="refuse", text="Not today.")).json()
    second = (await answer(client, permission.id, option="refuse")).json()
    told = (await answer(client, question.id, text="Green.")).json()

    assert first["answer"] == {"option": "refuse", "text": "Not today."}
    assert (first["channel"], first["assurance"], first["repeated"]) == ("api", "local", False)
    assert first["answered_by"].startswith("person:")
    assert second["repeated"] is True
    assert told["answer"]["text"] == "Green."


@proves("api.answer")
async def test_of_two_answers_at_once_one_counts_and_the_other_learns_which(
    client: httpx2.AsyncClient, application: Application
) -> None:
    request = ask("x")
    await open_session(application, "one", request)

    answers = await asyncio.gather(*(answer(client, request.id, option=option) for option in ("allow", "refuse") * 3))

    taken = [found.json() for found in answers if found.status_code == 200]
    refused = [found.json() for found in answers if found.status_code == 409]
    assert len(taken) == len(refused) == 3
    assert {found["answer"]["option"] for found in taken} == {found["recorded"]["answer"]["option"] for found in refused}
    assert {(found["recorded"]["channel"], found["recorded"]["state"]) for found in refused} == {("api", "answered")}
    assert [found["repeated"] for found in taken].count(False) == 1


@proves("api.answer")
@pytest.mark.parametrize("body", [{"option": "maybe"}, {}, {"option": "allow", "text": "x" * 20_001}])
async def test_what_is_no_answer_changes_nothing(
    client: httpx2.AsyncClient, application: Application, body: dict[str, str]
) -> None:
    request = ask("x")
    await open_session(application, "one", request)

    refused = await answer(client, request.id, **body)

    assert refused.status_code in (400, 422)
    assert (await client.get(f"/api/requests/{request.id}")).json()["state"] == "open"


@proves("api.proven")
async def test_a_request_that_demands_a_signature_is_refused_with_the_address_of_its_page(
    client: httpx2.AsyncClient, application: Application
) -> None:
    request = ask("x", "checkpoint", **demand_proof({}, refusals=("refuse",)))
    await open_session(application, "one", request)
    note_address(application.settings.home, "http://127.0.0.1:7333")

    refused = await answer(client, request.id, option="allow")

    assert refused.status_code == 403
    assert refused.json()["url"] == f"http://127.0.0.1:7333/inbox/{request.id}"
    assert (await answer(client, request.id, option="refuse")).status_code == 200


PROGRAM = """
import sys, urllib.error, urllib.request
headers = {"x-api-key": sys.argv[2], "content-type": "application/json"}
for method, path in (("GET", "/api/requests"), ("POST", f"/api/requests/{sys.argv[3]}/answer")):
    body = b'{"option": "allow"}' if method == "POST" else None
    try:
        request = urllib.request.Request(sys.argv[1] + path, body, headers, method=method)
        print(urllib.request.urlopen(request, timeout=30).status)
    except urllib.error.HTTPError as error:
        print(error.code, error.read().decode())
"""


@proves("api.agents-read-only")
async def test_a_process_of_an_agent_may_read_and_not_answer(url: str, application: Application) -> None:
    request = ask("x")
    await open_session(application, "one", request)
    command = [sys.executable, "-c", PROGRAM, url, TOKEN, request.id]
    environ = {**os.environ, AGENT_MARKER: "s_0123456789ab.1"}

    process = await asyncio.create_subprocess_exec(*command, env=environ, stdout=asyncio.subprocess.PIPE)
    async with asyncio.timeout(60):
        output, _ = await process.communicate()

    read, refused = output.decode().splitlines()
    assert read == "200"
    assert refused.startswith("403")
    assert '"code":"api.agent"' in refused
    assert (await (await application.inbox()).find(request.id)).state == "open"


CHANGES = (
    ("POST", "/api/requests/r_1/answer"),
    ("DELETE", "/api/sessions/s_1?reason=x"),
    ("POST", "/api/sessions/s_1/messages"),
    ("POST", "/api/sessions/s_1/resume"),
    ("POST", "/api/sessions/s_1/stop"),
    ("POST", "/api/workflows/hello/runs"),
    ("POST", "/api/agents/echo/sessions"),
    ("POST", "/api/webhooks"),
    ("DELETE", "/api/webhooks/wh_1"),
    ("POST", "/api/webhooks/wh_1/test"),
)


@proves("api.agents-read-only")
@pytest.mark.parametrize(("method", "path"), CHANGES)
async def test_a_request_that_names_an_agent_changes_nothing(client: httpx2.AsyncClient, method: str, path: str) -> None:
    refused = await client.request(method, path, headers={AGENT_HEADER: "s_0123456789ab.1"})

    assert refused.status_code == 403
    assert refused.json()["code"] == "api.agent"
    assert "person" in refused.json()["remedy"]


@proves("api.unseen")
async def test_an_answer_of_a_program_on_another_machine_is_relayed_and_approves_nothing(
    client: httpx2.AsyncClient, application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    question, approval = ask("q", "question"), ask("x", "tool_approval")
    await open_session(application, "one", question, approval)
    monkeypatch.setattr(plain, "identify_peer", lambda *_: UNSEEN)

    told = (await answer(client, question.id, text="Green.")).json()
    refused = await answer(client, approval.id, option="allow")

    assert (told["channel"], told["assurance"]) == ("api", "relayed")
    assert (refused.status_code, refused.json()["code"]) == (403, "workflow.person-needed")


@proves("api.paging")
async def test_ten_thousand_requests_are_read_page_by_page_without_loss_while_more_are_opened(
    client: httpx2.AsyncClient, application: Application
) -> None:
    requests = [ask(f"thing {number}") for number in range(10_000)]
    rare = ask("q", "question", "Which colour?")
    for first in range(0, 10_000, 1_000):
        await open_session(application, f"m{first}", *requests[first : first + 1_000])
    await open_session(application, "rare", rare)
    seen: list[str] = []
    after: dict[str, str] = {}
    for number in range(60):
        page = (await client.get("/api/requests", params={"limit": 200, **after})).json()
        seen += [found["id"] for found in page["items"]]
        if number == 3:
            await open_session(application, "late", ask("late"))
        if page["next"] is None:
            break
        after = {"after": page["next"]}

    assert len(seen) == len(set(seen)) == 10_002
    assert {request.id for request in requests} < set(seen)
    assert [found["id"] for found in await collect(client, "/api/requests", kind="question", limit="200")] == [rare.id]


@proves("api.paging")
async def test_a_page_of_what_a_filter_accepts_has_at_most_its_limit(
    client: httpx2.AsyncClient, application: Application
) -> None:
    kinds = ("permission", "question", "question") * 5
    requests = [ask(f"thing {number}", kind) for number, kind in enumerate(kinds)]
    await open_session(application, "one", *requests)

    page = (await client.get("/api/requests?kind=question&limit=4")).json()
    rest = await collect(client, "/api/requests", kind="question", limit="4", after=page["next"])

    assert len(page["items"]) == 4
    assert [found["id"] for found in (*page["items"], *rest)] == [each.id for each in requests if each.kind == "question"]


@proves("api.answer")
async def test_a_request_that_differs_from_its_event_says_so_and_takes_no_answer(
    client: httpx2.AsyncClient, application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = ask("x")
    await open_session(application, "one", request)

    async def find_mismatch(*_: object) -> str:
        return "Its options were changed."

    monkeypatch.setattr(Inbox, "find_mismatch", find_mismatch)

    assert (await client.get(f"/api/requests/{request.id}")).json()["mismatch"] == "Its options were changed."
