"""Memory stores through the official SDK."""

from __future__ import annotations

import hashlib
import itertools
from pathlib import Path
from typing import Any

import httpx2
import pytest
from anthropic import AsyncAnthropic, BadRequestError, ConflictError, NotFoundError, PermissionDeniedError
from starlette.requests import Request

from fidelio.app.application import Application
from fidelio.errors import MemoryNotFound
from fidelio.surfaces.http.v1.endpoint import ApiRequest, ApiServices
from fidelio.surfaces.http.v1.errors import ApiProblem
from fidelio.surfaces.http.v1.memory_stores import plan_resource
from fidelio.surfaces.http.v1.vaults import check_vaults
from tests.support import proves
from tests.surfaces.v1.conftest import KEY
from tests.surfaces.v1.strict import check_object

UNKNOWN = "memstore_000000000000"


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def error_type(raised: pytest.ExceptionInfo[Any]) -> str:
    found: str = raised.value.body["error"]["type"]
    return found


@proves("v1.memory-stores")
async def test_a_store_is_created_changed_archived_and_deleted(sdk: AsyncAnthropic) -> None:
    stores = sdk.beta.memory_stores
    created = await stores.create(name="User preferences", description="What they like", metadata={"a": "1", "b": "2"})
    changed = await stores.update(created.id, description="", metadata={"a": None, "c": "3"})
    same = await stores.update(created.id, name="User preferences")
    archived = await stores.archive(created.id)
    again = await stores.retrieve(created.id)
    deleted = await stores.delete(created.id)

    for found in (created, changed, archived, deleted):
        check_object(found)
    assert (created.name, created.description, created.archived_at) == ("User preferences", "What they like", None)
    assert created.created_at == created.updated_at
    assert (changed.description, changed.metadata) == ("", {"b": "2", "c": "3"})
    assert same.updated_at == changed.updated_at
    assert again == archived
    assert archived.archived_at is not None
    assert (deleted.id, deleted.type) == (created.id, "memory_store_deleted")
    with pytest.raises(NotFoundError):
        await stores.retrieve(created.id)


@proves("v1.memory-stores")
async def test_lists_of_stores_are_paged_newest_first_without_archived_ones(sdk: AsyncAnthropic) -> None:
    made = [(await sdk.beta.memory_stores.create(name=f"store {number}")).id for number in range(5)]
    await sdk.beta.memory_stores.archive(made[2])

    listed = [store.id async for store in sdk.beta.memory_stores.list(limit=2)]
    with_archived = [store.id async for store in sdk.beta.memory_stores.list(limit=2, include_archived=True)]
    newest = await sdk.beta.memory_stores.retrieve(made[4])
    later = await sdk.beta.memory_stores.list(created_at_gte=newest.created_at.replace(year=2999))

    assert listed == [made[4], made[3], made[1], made[0]]
    assert with_archived == made[::-1]
    assert later.data == []


@proves("v1.memory-stores")
async def test_a_repeated_creation_with_a_key_makes_a_single_store(sdk: AsyncAnthropic) -> None:
    headers = {"Idempotency-Key": "once"}
    first = await sdk.beta.memory_stores.create(name="a", extra_headers=headers)
    second = await sdk.beta.memory_stores.create(name="a", extra_headers=headers)

    assert first.id == second.id
    with pytest.raises(ConflictError):
        await sdk.beta.memory_stores.create(name="b", extra_headers=headers)


@proves("v1.memories")
async def test_a_memory_has_its_content_only_with_the_full_view(sdk: AsyncAnthropic) -> None:
    store = (await sdk.beta.memory_stores.create(name="s")).id
    memories = sdk.beta.memory_stores.memories
    created = await memories.create(store, path="/notes/todo.md", content="Grüße\n")
    full = await memories.retrieve(created.id, memory_store_id=store)
    basic = await memories.retrieve(created.id, memory_store_id=store, view="basic")
    shown = await memories.create(store, path="/empty", content="", view="full")

    for found in (created, full, basic, shown):
        check_object(found)
    assert (created.content, basic.content, full.content, shown.content) == (None, None, "Grüße\n", "")
    assert created.content_sha256 == digest("Grüße\n")
    assert created.content_size_bytes == len("Grüße\n".encode())
    assert created.memory_store_id == store


@proves("v1.memories")
async def test_an_update_renames_and_replaces_and_keeps_the_id(sdk: AsyncAnthropic) -> None:
    store = (await sdk.beta.memory_stores.create(name="s")).id
    memories = sdk.beta.memory_stores.memories
    created = await memories.create(store, path="/a", content="one")
    renamed = await memories.update(created.id, memory_store_id=store, path="/b")
    changed = await memories.update(created.id, memory_store_id=store, content="two", view="full")
    same = await memories.update(created.id, memory_store_id=store, content="two", path="/b")

    assert (renamed.id, renamed.path, renamed.content_sha256) == (created.id, "/b", digest("one"))
    assert (changed.path, changed.content) == ("/b", "two")
    assert same.memory_version_id == changed.memory_version_id != created.memory_version_id


@proves("v1.memory-preconditions")
async def test_a_precondition_that_does_not_hold_changes_nothing(sdk: AsyncAnthropic) -> None:
    store = (await sdk.beta.memory_stores.create(name="s")).id
    memories = sdk.beta.memory_stores.memories
    created = await memories.create(store, path="/a", content="one")
    seen = created.content_sha256
    await memories.update(
        created.id, memory_store_id=store, content="two", precondition={"type": "content_sha256", "content_sha256": seen}
    )

    with pytest.raises(ConflictError) as updated:
        await memories.update(
            created.id, memory_store_id=store, content="three", precondition={"type": "content_sha256", "content_sha256": seen}
        )
    with pytest.raises(ConflictError) as deleted:
        await memories.delete(created.id, memory_store_id=store, expected_content_sha256=seen)

    assert error_type(updated) == error_type(deleted) == "memory_precondition_failed_error"
    assert updated.value.response.headers["x-should-retry"] == "false"
    assert (await memories.retrieve(created.id, memory_store_id=store)).content == "two"


@proves("v1.memory-paths")
@pytest.mark.parametrize("taken", ["/a", "/a/b", "/A"])
async def test_a_path_that_is_taken_is_a_path_conflict(sdk: AsyncAnthropic, taken: str) -> None:
    store = (await sdk.beta.memory_stores.create(name="s")).id
    memories = sdk.beta.memory_stores.memories
    await memories.create(store, path="/a", content="")
    other = await memories.create(store, path="/c", content="")

    if taken == "/A":
        assert (await memories.create(store, path=taken, content="")).path == "/A"
        return
    with pytest.raises(ConflictError) as raised:
        await memories.create(store, path=taken, content="")
    with pytest.raises(ConflictError) as renamed:
        await memories.update(other.id, memory_store_id=store, path=taken)

    assert error_type(raised) == error_type(renamed) == "memory_path_conflict_error"


@proves("v1.memory-paths")
@pytest.mark.parametrize(
    "path",
    [
        "",
        "a",
        "/",
        "/a/",
        "//a",
        "/a/../b",
        "/.",
        "/a\x00",
        "/a\nb",
        "/a\u200b",
        "/a\u2028",
        "/e\u0301",
        "/" + "a" * 1024,
        "/a" * 21,
    ],
)
async def test_a_path_that_cannot_be_one_is_refused_by_name(sdk: AsyncAnthropic, path: str) -> None:
    store = (await sdk.beta.memory_stores.create(name="s")).id

    with pytest.raises(BadRequestError, match="path: "):
        await sdk.beta.memory_stores.memories.create(store, path=path, content="x")


@proves("v1.memories")
async def test_a_content_beyond_the_limit_is_refused_and_one_at_the_limit_is_stored(sdk: AsyncAnthropic) -> None:
    store = (await sdk.beta.memory_stores.create(name="s")).id
    await sdk.beta.memory_stores.memories.create(store, path="/a", content="ü" * 51_200)

    with pytest.raises(BadRequestError, match="content: it has 102401 bytes; 102400 are possible"):
        await sdk.beta.memory_stores.memories.create(store, path="/b", content="ü" * 51_200 + "x")


@proves("v1.memory-listing")
async def test_a_listing_has_a_depth_a_prefix_and_pages(sdk: AsyncAnthropic) -> None:
    store = (await sdk.beta.memory_stores.create(name="s")).id
    paths = ["/a.md", "/notes/one.md", "/notes/deep/two.md", "/notes-archive/x.md", "/z.md"]
    for path in paths:
        await sdk.beta.memory_stores.memories.create(store, path=path, content=path)

    async def listed(**query: Any) -> list[tuple[str, str]]:
        found = [item async for item in sdk.beta.memory_stores.memories.list(store, limit=2, **query)]
        for item in found:
            check_object(item)
        return [(item.type, item.path) for item in found]

    assert await listed() == [("memory", path) for path in sorted(paths)]
    assert await listed(depth=1) == [
        ("memory", "/a.md"),
        ("memory_prefix", "/notes-archive/"),
        ("memory_prefix", "/notes/"),
        ("memory", "/z.md"),
    ]
    assert await listed(path_prefix="/notes/") == [("memory", "/notes/deep/two.md"), ("memory", "/notes/one.md")]
    assert await listed(path_prefix="/notes/", depth=1) == [("memory_prefix", "/notes/deep/"), ("memory", "/notes/one.md")]
    with pytest.raises(BadRequestError, match="path_prefix"):
        await listed(path_prefix="/notes")
    with pytest.raises(BadRequestError, match="depth"):
        await listed(depth=99)


@proves("v1.memory-listing")
async def test_contents_are_listed_only_with_the_full_view(sdk: AsyncAnthropic) -> None:
    store = (await sdk.beta.memory_stores.create(name="s")).id
    for number in range(22):
        await sdk.beta.memory_stores.memories.create(store, path=f"/{number:02}", content=str(number))

    basic = await sdk.beta.memory_stores.memories.list(store, limit=100)
    full = await sdk.beta.memory_stores.memories.list(store, limit=100, view="full")

    assert [item.content for item in basic.data if item.type == "memory"] == [None] * 22
    assert [item.content for item in full.data if item.type == "memory"] == [str(number) for number in range(20)]
    assert full.next_page is not None


@proves("v1.memory-stores")
async def test_an_archived_store_is_read_and_emptied_and_not_changed(sdk: AsyncAnthropic) -> None:
    store = (await sdk.beta.memory_stores.create(name="s")).id
    memories, versions = sdk.beta.memory_stores.memories, sdk.beta.memory_stores.memory_versions
    created = await memories.create(store, path="/a", content="one")
    await sdk.beta.memory_stores.archive(store)

    with pytest.raises(BadRequestError, match="archived"):
        await memories.create(store, path="/b", content="two")
    with pytest.raises(BadRequestError, match="archived"):
        await memories.update(created.id, memory_store_id=store, content="two")
    with pytest.raises(BadRequestError, match="archived"):
        await sdk.beta.memory_stores.update(store, name="t")
    assert (await memories.retrieve(created.id, memory_store_id=store)).content == "one"
    await memories.delete(created.id, memory_store_id=store)
    assert (await versions.redact(created.memory_version_id, memory_store_id=store)).redacted_at is not None


@proves("v1.memory-stores")
@pytest.mark.parametrize(
    "id_", [UNKNOWN, "memstore_", "s_000000000000", "vlt_000000000000", "memstore_%2e%2e", "memstore_" + "a" * 500]
)
async def test_an_unknown_store_is_not_found_wherever_it_is_named(url: str, id_: str) -> None:
    paths = [
        "",
        "/archive",
        "/memories",
        "/memories/mem_x",
        "/memory_versions",
        "/memory_versions/memver_x",
        "/memory_versions/x/redact",
    ]
    async with httpx2.AsyncClient(headers=KEY) as client:
        for path, method in itertools.product(paths, ("GET", "POST", "DELETE")):
            body = {"path": "/p", "content": "c"} if (method, path) == ("POST", "/memories") else {}
            response = await client.request(method, f"{url}/v1/memory_stores/{id_}{path}", json=body)
            assert response.status_code in (404, 405), (method, path, response.text)


@proves("v1.memory-stores")
@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({}, "name"),
        ({"name": ""}, "name"),
        ({"name": "x" * 256}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"name": "a", "description": "x" * 1025}, "description"),
        ({"name": "a", "metadata": {"k": 1}}, "metadata"),
        ({"name": "a", "metadata": {str(number): "" for number in range(17)}}, "metadata"),
        ({"name": "a", "color": "red"}, "color"),
        ([], "object"),
    ],
)
async def test_a_wrong_body_is_refused_with_the_name_of_the_field(url: str, body: Any, named: str) -> None:
    async with httpx2.AsyncClient(headers=KEY) as client:
        response = await client.post(f"{url}/v1/memory_stores", json=body)

    assert (response.status_code, response.json()["error"]["type"]) == (400, "invalid_request_error")
    assert named in response.json()["error"]["message"]


@proves("v1.stores-only-by-a-person")
async def test_an_agent_that_found_the_key_reads_and_changes_nothing(sdk: AsyncAnthropic, url: str) -> None:
    store = (await sdk.beta.memory_stores.create(name="s")).id
    memory = await sdk.beta.memory_stores.memories.create(store, path="/a", content="x")
    async with AsyncAnthropic(
        base_url=url, api_key=KEY["x-api-key"], max_retries=0, default_headers={"Fidelio-Agent": "s_000000000000.1"}
    ) as agent:
        assert (await agent.beta.memory_stores.memories.retrieve(memory.id, memory_store_id=store)).content == "x"
        with pytest.raises(PermissionDeniedError):
            await agent.beta.memory_stores.create(name="t")
        with pytest.raises(PermissionDeniedError):
            await agent.beta.memory_stores.memories.create(store, path="/b", content="x")
        with pytest.raises(PermissionDeniedError):
            await agent.beta.memory_stores.memories.delete(memory.id, memory_store_id=store)
        with pytest.raises(PermissionDeniedError):
            await agent.beta.memory_stores.delete(store)


@proves("v1.memory-attachment")
async def test_a_store_is_attached_as_it_is_now_with_a_directory_of_its_own(
    sdk: AsyncAnthropic, application: Application, project: Path
) -> None:
    store = (await sdk.beta.memory_stores.create(name="User Preferences", description="What they like")).id
    request = ApiRequest(Request({"type": "http", "headers": []}), ApiServices(application, str(project)), "req_1")
    params = {"type": "memory_store", "memory_store_id": store, "instructions": "Look here."}
    first = await plan_resource(request, params)
    second = await plan_resource(request, {**params, "access": "read_only"}, (first["mount_path"],))

    assert first == {
        "memory_store_id": store,
        "access": "read_write",
        "instructions": "Look here.",
        "name": "User Preferences",
        "description": "What they like",
        "mount_path": "/mnt/memory/user-preferences",
    }
    assert (second["access"], second["mount_path"]) == ("read_only", "/mnt/memory/user-preferences-2")
    for wrong in ({"access": "all"}, {"instructions": "x" * 4097}, {"color": "red"}):
        with pytest.raises(ApiProblem, match="resources: "):
            await plan_resource(request, {**params, **wrong})
    with pytest.raises(ApiProblem, match="at most 8"):
        await plan_resource(request, params, tuple("abcdefgh"))
    await sdk.beta.memory_stores.archive(store)
    with pytest.raises(ApiProblem, match="archived"):
        await plan_resource(request, params)
    with pytest.raises(MemoryNotFound):
        await plan_resource(request, {**params, "memory_store_id": "vlt_000000000000"})


@proves("v1.vault-attachment")
async def test_vaults_of_a_session_are_checked_and_kept_in_order(
    sdk: AsyncAnthropic, application: Application, project: Path
) -> None:
    made = [(await sdk.beta.vaults.create(display_name=name)).id for name in ("a", "b")]
    request = ApiRequest(Request({"type": "http", "headers": []}), ApiServices(application, str(project)), "req_1")

    assert await check_vaults(request, made[::-1]) == tuple(f"s_{id_[4:]}" for id_ in made[::-1])
    await sdk.beta.vaults.archive(made[0])
    for wrong, status in ((made[0], 400), ("vlt_000000000000", 404), ("x", 404)):
        with pytest.raises(ApiProblem) as raised:
            await check_vaults(request, [wrong])
        assert raised.value.status == status
    elsewhere = ApiRequest(Request({"type": "http", "headers": []}), ApiServices(application, "/elsewhere"), "req_1")
    with pytest.raises(ApiProblem, match="was not found"):
        await check_vaults(elsewhere, [made[1]])
