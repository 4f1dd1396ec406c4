"""What every operation of the API has: its document, entity tags, problem details, limits, and the guard."""

from __future__ import annotations

import asyncio

import httpx2
import msgspec
import openapi_spec_validator
import pytest

from fidelio.app.application import Application
from fidelio.orchestrator.blueprints.servers import AGENT_HEADER
from fidelio.surfaces.http.api.application import OPERATIONS
from fidelio.surfaces.http.api.dispatch import MAX_BODY, make_tag, matches_tag, read_query
from fidelio.surfaces.http.api.document import PROBLEMS
from fidelio.surfaces.http.api.operations import ApiOperation, HttpProblem
from fidelio.surfaces.http.api.requests import RequestQuery
from tests.support import proves
from tests.surfaces.api.conftest import KEY, CheckedClient, ask, open_session
from tests.surfaces.api.document import load_document

READS = [operation.path for operation in OPERATIONS if operation.has_etag and "{" not in operation.path]


@proves("api.document")
def test_the_document_is_valid_openapi() -> None:
    openapi_spec_validator.validate(load_document())


@proves("api.document")
async def test_the_server_sends_the_document_and_every_operation_is_in_it(client: httpx2.AsyncClient) -> None:
    document = (await client.get("/api/openapi.json")).json()

    described = {(method, path) for path, methods in document["paths"].items() for method in methods}
    assert document == load_document()
    assert described == {(operation.method.lower(), operation.path) for operation in OPERATIONS}
    assert len({operation.name for operation in OPERATIONS}) == len(OPERATIONS)
    assert set(document["x-problems"]) == set(PROBLEMS)


@proves("api.etag")
@pytest.mark.parametrize("path", READS)
async def test_what_has_not_changed_is_not_sent_again(client: httpx2.AsyncClient, application: Application, path: str) -> None:
    await open_session(application, "one", ask("x"))
    parameters = {"text": "x"} if path == "/api/search" else {}
    first = await client.get(path, params=parameters)
    tag = first.headers["etag"]

    for value in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        assert (await client.get(path, params=parameters, headers={"If-None-Match": value})).status_code == 304
    head = await client.head(path, params=parameters)

    assert tag == make_tag(first.content)
    assert (head.status_code, head.headers["etag"], head.content) == (200, tag, b"")
    assert (await client.get(path, params=parameters, headers={"If-None-Match": '"other"'})).status_code == 200


@proves("api.etag")
async def test_a_tag_changes_with_its_object_and_guards_a_change(client: httpx2.AsyncClient, application: Application) -> None:
    request = ask("x")
    await open_session(application, "one", request)
    path = f"/api/requests/{request.id}"
    tag = (await client.get(path)).headers["etag"]

    stale = await client.post(f"{path}/answer", json={"option": "allow"}, headers={"If-Match": '"other"'})
    weak = await client.post(f"{path}/answer", json={"option": "allow"}, headers={"If-Match": f"W/{tag}"})
    done = await client.post(f"{path}/answer", json={"option": "allow"}, headers={"If-Match": tag})
    after = await client.get(path, headers={"If-None-Match": tag})

    assert (stale.status_code, stale.json()["code"], stale.headers["etag"]) == (412, "api.changed", tag)
    assert (weak.status_code, done.status_code, after.status_code) == (412, 200, 200)
    assert after.headers["etag"] != tag


@proves("api.etag")
async def test_a_session_is_stopped_only_if_it_is_as_it_was_read(client: httpx2.AsyncClient, application: Application) -> None:
    session = await open_session(application, "one")
    tag = (await client.get(f"/api/sessions/{session}")).headers["etag"]
    await open_session(application, "other")
    same = (await client.get(f"/api/sessions/{session}")).headers["etag"]
    creating = await client.post(
        "/api/webhooks", json={"url": "https://x.example", "secret": "x" * 16}, headers={"If-Match": tag}
    )

    assert tag == same
    assert (creating.status_code, creating.json()["code"]) == (400, "api.precondition")
    changed = await client.delete(f"/api/sessions/{session}?reason=x", headers={"If-Match": '"x"'})
    assert changed.status_code == 412


@proves("api.etag")
@pytest.mark.parametrize(
    ("headers", "is_weak", "expected"),
    [
        ([], True, False),
        (['"a"'], False, True),
        (['W/"a"'], True, True),
        (['W/"a"'], False, False),
        (['"b", "a"'], False, True),
        (['"b"', '"a"'], False, True),
        (["*"], False, True),
        (["a"], True, False),
        (['"a'], True, False),
        (['"b*'], False, False),
        ([" * "], False, True),
    ],
)
def test_tags_are_compared_as_the_standard_says(headers: list[str], is_weak: bool, expected: bool) -> None:
    assert matches_tag('"a"', headers, is_weak=is_weak) is expected


@proves("api.problems")
@pytest.mark.parametrize(
    ("query", "field", "words"),
    [
        ("limt=3", "limt", "Did you mean limit?"),
        ("zzz=3", "zzz", "Use after, kind"),
        ("limit=0", "limit", ">= 1"),
        ("limit=201", "limit", "<= 200"),
        ("limit=x", "limit", "int"),
        ("limit=1&limit=2", "limit", "more than once"),
        ("state=closed", "state", "closed"),
        ("kind=", "kind", ""),
        (f"project={'x' * 1_001}", "project", "1000"),
    ],
)
async def test_a_parameter_that_is_wrong_is_named_with_the_nearest_known_one(
    client: httpx2.AsyncClient, query: str, field: str, words: str
) -> None:
    refused = await client.get(f"/api/requests?{query}")

    assert (refused.status_code, refused.json()["code"]) == (400, "api.parameter")
    (error,) = refused.json()["errors"]
    assert (error["field"], words in error["detail"]) == (field, True)


@proves("api.problems")
@pytest.mark.parametrize(
    ("content", "status", "words"),
    [
        (b'{"optoin": "allow"}', 422, "Did you mean option?"),
        (b'{"option": 3}', 422, "option"),
        (b'{"option": null}', 422, "option"),
        (b"[]", 422, "object"),
        (b"null", 422, "object"),
        (b"{", 400, "JSON"),
        (b"\xff\xfe", 400, "JSON"),
        (b"[" * 100_000, 400, "JSON"),
        (b'{"text": "\\ud800"}', 400, "JSON"),
        (b" " * (MAX_BODY + 1), 413, "bytes"),
    ],
)
async def test_a_body_that_is_wrong_is_refused_with_what_is_wrong(
    client: httpx2.AsyncClient, application: Application, content: bytes, status: int, words: str
) -> None:
    request = ask("x")
    await open_session(application, "one", request)
    headers = {"Content-Type": "application/json"}

    refused = await client.post(f"/api/requests/{request.id}/answer", content=content, headers=headers)

    assert refused.status_code == status
    assert words in refused.json()["detail"]


@proves("api.problems")
@pytest.mark.parametrize("media_type", ["", "text/plain", "application/x-www-form-urlencoded"])
async def test_a_body_that_is_not_declared_as_json_is_refused(client: httpx2.AsyncClient, media_type: str) -> None:
    headers = {"Content-Type": media_type} if media_type else {}

    refused = await client.post("/api/webhooks", content=b"{}", headers=headers)

    assert (refused.status_code, refused.json()["code"]) == (415, "api.media-type")


@proves("api.problems")
@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/api/requests", "GET, HEAD"),
        ("GET", "/api/requests/r_1/answer", "POST"),
        ("PATCH", "/api/sessions/s_1", "DELETE, GET, HEAD"),
        ("HEAD", "/api/events/stream", "GET"),
        ("OPTIONS", "/api/webhooks", "GET, HEAD, POST"),
    ],
)
async def test_a_method_that_is_not_offered_is_refused_with_those_that_are(
    client: httpx2.AsyncClient, method: str, path: str, allowed: str
) -> None:
    refused = await client.request(method, path)

    assert (refused.status_code, refused.headers["allow"]) == (405, allowed)


@proves("api.problems")
@pytest.mark.parametrize("path", ["/api", "/api/", "/api/nothing", "/api/requests/", "/api/../api/x", "/api/requests/r_1/x"])
async def test_an_unknown_path_is_a_problem_that_names_the_document(client: httpx2.AsyncClient, path: str) -> None:
    missing = await client.get(path)

    assert (missing.status_code, missing.json()["code"]) == (404, "api.unknown-path")
    assert "/api/openapi.json" in missing.json()["remedy"]


@proves("api.problems")
async def test_a_request_that_fails_inside_says_nothing_of_the_inside(
    client: httpx2.AsyncClient, application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a secret of the inside")

    monkeypatch.setattr(application, "records", fail)

    failed = await client.get("/api/sessions")

    assert (failed.status_code, failed.json()["code"]) == (500, "api.internal")
    assert "secret" not in failed.text


@proves("api.access")
@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}, {"x-api-key": ""}])
@pytest.mark.parametrize("path", ["/api/requests", "/api/openapi.json", "/api"])
async def test_without_the_token_nothing_is_served_and_the_problem_says_where_it_is(
    url: str, path: str, headers: dict[str, str]
) -> None:
    async with CheckedClient(base_url=url, headers=headers, trust_env=False) as stranger:
        refused = await stranger.get(path)

    assert (refused.status_code, refused.json()["code"]) == (401, "api.token")
    assert "Bearer" in refused.headers["www-authenticate"]
    assert "up" in refused.json()["detail"]


@proves("api.access")
@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [({"Host": "evil.example"}, 421, "api.host"), ({"Origin": "https://evil.example"}, 403, "api.origin")],
)
async def test_another_host_or_origin_is_refused_even_with_the_token(
    client: httpx2.AsyncClient, headers: dict[str, str], status: int, code: str
) -> None:
    refused = await client.get("/api/requests", headers=headers)

    assert (refused.status_code, refused.json()["code"]) == (status, code)


@proves("api.access")
async def test_a_cookie_opens_nothing_and_none_is_set(url: str) -> None:
    async with CheckedClient(base_url=url, headers=KEY, trust_env=False) as script:
        answered = await script.get("/api/requests")

    assert "set-cookie" not in answered.headers
    assert "access-control-allow-origin" not in answered.headers


class TestWithoutToken:
    @pytest.fixture
    def token(self) -> None:
        return None

    @proves("api.access", "api.agents-read-only")
    async def test_a_server_without_a_token_serves_this_machine_and_refuses_agents_and_pages(self, url: str) -> None:
        body = {"url": "https://x.example", "secret": "x" * 16}
        async with CheckedClient(base_url=url, trust_env=False) as script:
            added = await script.post("/api/webhooks", json=body)
            by_agent = await script.post("/api/webhooks", json=body, headers={AGENT_HEADER: "s_0123456789ab.1"})
            by_page = await script.post("/api/webhooks", json=body, headers={"Origin": "https://evil.example"})

        assert (added.status_code, by_agent.status_code, by_page.status_code) == (201, 403, 403)


class TestRate:
    @pytest.fixture
    def server_environ(self) -> dict[str, str]:
        return {"FIDELIO_HTTP_API_RATE": "2"}

    @proves("api.limits")
    async def test_too_many_requests_are_refused_with_the_time_to_wait(self, client: httpx2.AsyncClient) -> None:
        answers = await asyncio.gather(*(client.get("/api/webhooks") for _ in range(12)))

        refused = [answer for answer in answers if answer.status_code != 200]
        assert {answer.json()["code"] for answer in refused} == {"api.rate"}
        assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)


HOSTILE = (
    *("%00", "%2e%2e%2f%2e%2e%2fetc%2fpasswd", "x" * 5_000, "%F0%9F%8E%B5", "%3Cscript%3E"),
    *("%0d%0aset-cookie:x", "'--", "%C3%28"),
)


BODY = {"message": "x", "option": "x", "inputs": {}}


def make_body(operation: ApiOperation) -> bytes:
    """A body that fits, if the operation takes one."""
    if operation.body is None:
        return b""
    return msgspec.json.encode({name: value for name, value in BODY.items() if name in operation.body.__struct_fields__})


async def request_hostile_names(client: httpx2.AsyncClient, operation: ApiOperation) -> None:
    """Request an operation with each hostile name in its path. No answer may be an error of the server."""
    for name in HOSTILE:
        path = "/".join(name if part.startswith("{") else part for part in operation.path.split("/"))
        query = "?reason=x" if operation.name == "deleteSession" else ""
        headers = {"Content-Type": "application/json"}
        answered = await client.request(operation.method, f"{path}{query}", content=make_body(operation), headers=headers)
        assert 400 <= answered.status_code < 500, (path[:80], answered.text)
        assert "set-cookie" not in answered.headers


@proves("api.hostile")
@pytest.mark.parametrize("operation", [each for each in OPERATIONS if "{" in each.path], ids=lambda each: each.name)
async def test_a_hostile_name_in_a_path_is_no_error_of_the_server(client: httpx2.AsyncClient, operation: ApiOperation) -> None:
    await request_hostile_names(client, operation)


@proves("api.problems")
def test_a_query_is_read_with_its_types_and_defaults() -> None:
    read = read_query(RequestQuery, [("limit", "7"), ("state", "all")])

    assert (read.limit, read.state, read.kind) == (7, "all", None)
    with pytest.raises(HttpProblem, match="limit"):
        read_query(RequestQuery, [("limit", "7.5")])


@proves("api.problems")
@pytest.mark.parametrize("text", ["1e2", "1.0", "+1", " 1", "1_0", "\u0661", "0x1", "true", ""])
async def test_only_digits_are_a_number(client: httpx2.AsyncClient, text: str) -> None:
    for path, name in (("/api/sessions", "limit"), ("/api/events", "after")):
        refused = await client.get(path, params={name: text})

        assert (refused.status_code, refused.json()["errors"][0]["field"]) == (400, name), path


LISTS = [operation.path for operation in OPERATIONS if operation.has_etag and "after" in operation.query.__struct_fields__]


@proves("api.paging")
@pytest.mark.parametrize("path", LISTS)
@pytest.mark.parametrize("cursor", ["zzz", "blueprint/", "%00", "../.."])
async def test_a_cursor_that_was_never_issued_is_refused_by_every_list(
    client: httpx2.AsyncClient, application: Application, path: str, cursor: str
) -> None:
    await open_session(application, "one", ask("x"))
    address = path.replace("{session}", "one").replace("{workflow}", "hello")
    parameters = {"text": "x"} if path == "/api/search" else {}

    refused = await client.get(address, params={**parameters, "after": cursor})

    assert (refused.status_code, refused.headers["content-type"]) == (400, "application/problem+json")
