"""What all groups of the API share: keys of idempotency, limits, ranges of times, metadata."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from anthropic import AsyncAnthropic, BadRequestError, ConflictError
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from fidelio.surfaces.http.limits import MAX_BODY, RateLimit
from fidelio.surfaces.http.v1.errors import ApiProblem
from fidelio.surfaces.http.v1.values import patch_metadata, read_range
from tests.support import proves
from tests.surfaces.v1.conftest import KEY
from tests.surfaces.v1.requests import send

AGENT = {"name": "A", "model": "scripted:test"}
BODIES: dict[str, dict[str, Any]] = {"agents": AGENT, "environments": {}}


@proves("v1.idempotency")
@pytest.mark.parametrize(("path", "body"), [("agents", AGENT), ("environments", {"name": "E"})])
async def test_a_repeated_creation_gives_the_same_object(url: str, path: str, body: dict[str, Any]) -> None:
    key, address = {**KEY, "Idempotency-Key": "order 7"}, f"{url}/v1/{path}"

    first, second = await asyncio.gather(*(send("POST", address, body, key=key) for _ in range(2)))
    other = await send("POST", address, {**body, "name": "Other"}, key=key)

    assert (first.status_code, second.status_code) == (200, 200)
    assert first.json()["id"] == second.json()["id"]
    assert (other.status_code, other.json()["error"]["type"]) == (409, "conflict_error")


@proves("v1.idempotency")
@pytest.mark.parametrize("path", ["agents", "environments"])
async def test_of_two_bodies_with_a_key_at_once_only_the_first_is_stored(url: str, path: str) -> None:
    key, address = {**KEY, "Idempotency-Key": "order 8"}, f"{url}/v1/{path}"

    answers = await asyncio.gather(*(send("POST", address, {**BODIES[path], "name": n}, key=key) for n in "AB"))

    assert sorted(answer.status_code for answer in answers) == [200, 409]
    (made,) = [answer.json() for answer in answers if answer.status_code == 200]
    found = (await send("GET", f"{address}/{made['id']}")).json()
    assert (found["name"], found.get("version", 1)) == (made["name"], 1)


@proves("v1.idempotency")
@pytest.mark.parametrize("key", ["", "x" * 256, "a\tb", "ä".encode("latin-1")])
async def test_what_is_no_key_is_refused(url: str, key: Any) -> None:
    answer = await send("POST", f"{url}/v1/agents", AGENT, key={**KEY, "Idempotency-Key": key})

    assert answer.status_code == 400
    assert "Idempotency-Key" in answer.text


@proves("v1.limits")
async def test_a_body_beyond_the_limit_is_refused_with_the_limit(url: str) -> None:
    answer = await send("POST", f"{url}/v1/agents", raw=b" " * (MAX_BODY + 1))

    assert (answer.status_code, answer.json()["error"]["type"]) == (413, "request_too_large")
    assert str(MAX_BODY) in answer.json()["error"]["message"]


@proves("v1.limits")
@pytest.mark.parametrize(
    "raw", [b"{", b"[]", b'"x"', b"\xff\xfe", b'{"name": "\\ud800", "model": "scripted:test"}', b"[" * 100_000, b"null"]
)
async def test_a_body_that_is_no_object_is_refused(url: str, raw: bytes) -> None:
    answer = await send("POST", f"{url}/v1/agents", raw=raw)

    assert (answer.status_code, answer.json()["type"]) == (400, "error")


@proves("v1.limits")
@pytest.mark.parametrize("query", ["limit=0", "limit=101", "limit=x", "page=x", "include_archived=maybe", "created_at[gt]=x"])
async def test_a_wrong_query_is_refused_by_name(url: str, query: str) -> None:
    answer = await send("GET", f"{url}/v1/agents?{query}")

    assert answer.status_code == 400
    assert query.partition("=")[0] in answer.json()["error"]["message"]


@proves("v1.limits")
async def test_a_cursor_is_valid_for_its_list_only(sdk: AsyncAnthropic) -> None:
    for number in range(2):
        await sdk.beta.agents.create(name=f"A{number}", model="scripted:test")
    page = await sdk.beta.agents.list(limit=1)
    assert page.next_page

    with pytest.raises(BadRequestError, match="page"):
        await sdk.beta.agents.list(page=page.next_page, include_archived=True)
    with pytest.raises(BadRequestError, match="page"):
        await sdk.beta.environments.list(page=page.next_page)


class TestRate:
    @pytest.fixture
    def environ(self) -> dict[str, str]:
        return {"FIDELIO_HTTP_API_RATE": "2"}

    @proves("v1.rate")
    async def test_too_many_requests_are_refused_with_the_time_to_wait(self, url: str) -> None:
        answers = await asyncio.gather(*(send("GET", f"{url}/v1/agents") for _ in range(12)))

        refused = [answer for answer in answers if answer.status_code != 200]
        assert refused
        assert {answer.json()["error"]["type"] for answer in refused} == {"rate_limit_error"}
        assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)


@proves("v1.rate")
def test_a_rate_limit_takes_a_burst_and_then_its_rate() -> None:
    now = [0.0]
    rate = RateLimit(10, clock=lambda: now[0])

    burst = [rate.count() for _ in range(21)]
    now[0] = 0.1
    later = [rate.count(), rate.count()]

    assert burst[:20] == [0.0] * 20
    assert burst[20] == pytest.approx(0.1)
    assert later == [0.0, pytest.approx(0.1)]


KEYS, VALUES = st.text("ab", min_size=1, max_size=2), st.text("x", max_size=2)


@given(st.dictionaries(KEYS, VALUES), st.dictionaries(KEYS, VALUES | st.none()))
@proves("v1.metadata")
def test_a_patch_sets_and_deletes_what_it_names(former: dict[str, str], patch: dict[str, str | None]) -> None:
    merged = patch_metadata(former, patch)

    assert {key: merged.get(key) for key in patch} == patch
    assert {key: merged.get(key) for key in former if key not in patch} == {k: v for k, v in former.items() if k not in patch}
    assert patch_metadata(former, UNSET) == former
    assert patch_metadata(former, None) == {}


@proves("v1.metadata")
def test_metadata_beyond_a_limit_are_refused_but_old_ones_can_be_replaced() -> None:
    full = {f"k{number}": "v" for number in range(16)}

    assert len(patch_metadata(full, {"k0": None, "new": "v"})) == 16
    with pytest.raises(ApiProblem, match="17 pairs"):
        patch_metadata(full, {"new": "v"})


@proves("v1.metadata")
def test_ranges_of_times_have_open_and_closed_ends() -> None:
    second = 1_763_237_086_000
    text = "2025-11-15T20:04:46Z"

    assert second in read_range("t", {"t[gte]": text, "t[lte]": text})
    assert second not in read_range("t", {"t[gt]": text})
    assert second not in read_range("t", {"t[lt]": text})
    assert second in read_range("t", {"t[gte]": "2025-11-15T21:04:46 01:00"})
    with pytest.raises(ApiProblem, match=r"t\[lt\]"):
        read_range("t", {"t[lt]": "soon"})


@proves("v1.idempotency")
async def test_the_sdk_sees_a_conflict_of_keys(sdk: AsyncAnthropic) -> None:
    headers = {"Idempotency-Key": "k"}
    await sdk.beta.environments.create(name="E", extra_headers=headers)

    with pytest.raises(ConflictError):
        await sdk.beta.environments.create(name="F", extra_headers=headers)
