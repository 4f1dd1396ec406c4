"""Faults of model APIs over real HTTP: each is classified, bounded, and tells nobody the key."""

from __future__ import annotations

import asyncio
import logging
import traceback
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from fidelio.providers.http import HttpProvider
from fidelio.providers.model import ModelProblem
from fidelio.providers.problems import EXCERPT, parse_retry_after, read_error_body
from tests.providers.apis import Api, every_api
from tests.providers.requests import SECONDS, ask, complete
from tests.providers.servers import (
    BAD_REQUEST,
    FAILED,
    KEY,
    OVERLOADED,
    RATE_LIMITED,
    UNAUTHORIZED,
    ApiReply,
    Cut,
    Hang,
    Raw,
    Refuse,
)
from tests.support import proves


async def fail(provider: HttpProvider) -> ModelProblem:
    with pytest.raises(ModelProblem) as caught:
        await asyncio.wait_for(complete(provider, ask("Hello")), SECONDS)
    return caught.value


@proves("providers.retryable")
@every_api
@pytest.mark.parametrize(
    ("step", "kind"),
    [
        (RATE_LIMITED, "model_rate_limited_error"),
        (OVERLOADED, "model_overloaded_error"),
        (FAILED, "model_request_failed_error"),
        (Refuse(502), "model_request_failed_error"),
        (Refuse(503), "model_request_failed_error"),
        (Refuse(504), "model_request_failed_error"),
    ],
    ids=lambda value: str(getattr(value, "status", "")),
)
async def test_a_passing_failure_is_retryable_and_the_next_request_succeeds(api: Api, step: Refuse, kind: str) -> None:
    async with api.serve(step, ApiReply("Back again.")) as (provider, server):
        problem = await fail(provider)
        reply, _ = await complete(provider, ask("Hello"))

        assert (problem.retryable, problem.kind, problem.status) == (True, kind, step.status)
        assert problem.retry_after == (3.0 if step.status == 429 else None)
        assert reply.text == "Back again."
        # The provider itself repeats nothing.
        assert len(server.requests) == 2


@proves("providers.permanent")
@every_api
@pytest.mark.parametrize(
    ("step", "remedy"),
    [
        (BAD_REQUEST, "Change the model or the request"),
        (UNAUTHORIZED, "Check KEY."),
        (Refuse(403), "KEY may use this model"),
        (Refuse(404), "name of the model, and BASE"),
        (Refuse(413), "Send less"),
        (Refuse(308, headers={"location": "http://127.0.0.1:1/"}), "Set BASE to the final address"),
    ],
    ids=lambda value: str(getattr(value, "status", "")),
)
async def test_a_refusal_is_permanent_and_says_what_to_do(api: Api, step: Refuse, remedy: str) -> None:
    async with api.serve(step) as (provider, server):
        problem = await fail(provider)

        assert (problem.retryable, problem.kind, problem.retry_after) == (False, "model_request_failed_error", None)
        assert remedy.replace("KEY", api.key).replace("BASE", api.base) in str(problem.remedy)
        assert len(server.requests) == 1


@proves("providers.permanent")
@every_api
async def test_a_conversation_that_is_too_long_has_a_kind_of_its_own(api: Api) -> None:
    async with api.serve(api.server.too_long) as (provider, _):
        problem = await fail(provider)

        assert (problem.kind, problem.retryable) == ("context_too_long_error", False)
        assert "larger window" in str(problem.remedy)


@proves("providers.permanent")
@every_api
@pytest.mark.parametrize(
    "step",
    [
        Refuse(402, "Pay."),
        Refuse(429, "You exceeded your current quota.", "insufficient_quota"),
        Refuse(400, "Your credit balance is too low to access the API.", "invalid_request_error"),
    ],
    ids=lambda step: str(step.status),
)
async def test_an_account_without_credit_is_a_permanent_error_of_its_own_kind(api: Api, step: Refuse) -> None:
    async with api.serve(step) as (provider, _):
        problem = await fail(provider)

        assert (problem.kind, problem.retryable) == ("billing_error", False)


@proves("providers.secrets")
@every_api
async def test_no_error_contains_the_key_or_a_control_character_and_its_quotation_is_bounded(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with api.serve(Refuse(401, f"wrong key {KEY}\x1b[31m\n" + "x" * 100_000)) as (provider, server):
        problem = await fail(provider)

        assert any(KEY in value for value in server.headers[0].values())
        told = f"{problem} {problem.remedy} {''.join(traceback.format_exception(problem))} {caplog.text}"
        assert KEY not in told
        assert "\x1b" not in told
        assert problem.sentence.endswith("x…")
        assert len(problem.sentence) < EXCERPT + 60


@proves("providers.secrets")
@every_api
@pytest.mark.parametrize("key", ["sk-with\nnewline", "sk-ünicode", "two words"])
async def test_a_key_that_no_header_can_carry_is_refused_without_showing_it(api: Api, key: str) -> None:
    provider = api.provider({api.key: key, api.base: "http://127.0.0.1:1"})

    problem = await fail(provider)

    assert api.key in str(problem)
    assert key not in f"{problem} {''.join(traceback.format_exception(problem))}"


@proves("providers.streams")
@every_api
@pytest.mark.parametrize("after", [0, 40, 400])
async def test_a_stream_that_is_cut_off_is_retryable(api: Api, after: int) -> None:
    async with api.serve(Cut(ApiReply("A text that is long enough to be cut off somewhere."), after), ApiReply("Whole")) as (
        provider,
        _,
    ):
        problem = await fail(provider)
        reply, _pieces = await complete(provider, ask("Hello"))

        assert problem.retryable
        assert reply.text == "Whole"


@proves("providers.streams")
@every_api
@pytest.mark.parametrize(
    "body", [b"data: {\n\n", b"data: 7\n\n", b"data: \xff\xfe\n\n", b"", b"data: {}\n\n", b"data: " + b"x" * 9_000_000]
)
async def test_a_malformed_or_oversized_stream_is_retryable(api: Api, body: bytes) -> None:
    async with api.serve(Raw(body)) as (provider, _):
        problem = await fail(provider)

        assert problem.retryable
        assert len(problem.sentence) < 400


@proves("providers.streams")
@every_api
async def test_a_stream_that_cannot_be_decompressed_is_retryable(api: Api) -> None:
    async with api.serve(Raw(b"data: {}", headers={"content-encoding": "gzip"})) as (provider, _):
        problem = await fail(provider)

        assert problem.retryable
        assert "decompressed" in problem.sentence


@proves("providers.streams")
@every_api
async def test_a_reply_that_is_no_stream_is_a_wrong_address(api: Api) -> None:
    async with api.serve(Raw(b"<html>Log in</html>", "text/html")) as (provider, _):
        problem = await fail(provider)

        assert not problem.retryable
        assert api.base in str(problem.remedy)


@proves("providers.timeouts")
@every_api
@pytest.mark.parametrize("after", [-1, 2])
async def test_a_server_that_goes_silent_is_left_after_the_idle_time(api: Api, after: int) -> None:
    async with api.serve(Hang(ApiReply("Hello there"), after), idle_seconds=0.2) as (provider, server):
        problem = await fail(provider)

        assert problem.retryable
        assert "in time" in problem.sentence
        await asyncio.wait_for(server.closed.wait(), SECONDS)


@proves("providers.timeouts")
@every_api
async def test_slow_tokens_are_no_silence(api: Api) -> None:
    # Together they take longer than the idle time, each by itself far less.
    text = "Slowly, but steadily. " * 6
    async with api.serve(ApiReply(text, delay=0.05), idle_seconds=1) as (provider, _):
        reply, pieces = await asyncio.wait_for(complete(provider, ask("Hello")), SECONDS)

        assert reply.text == "".join(pieces) == text


@proves("providers.cancelled")
@every_api
@pytest.mark.parametrize("after", [-1, 2])
async def test_cancelling_a_request_closes_its_connection(api: Api, after: int) -> None:
    async with api.serve(Hang(ApiReply("Hello there"), after), ApiReply("Next")) as (provider, server):
        task = asyncio.create_task(complete(provider, ask("Hello")))
        await asyncio.wait_for(server.reached.wait(), SECONDS)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        await asyncio.wait_for(server.closed.wait(), SECONDS)
        reply, _ = await complete(provider, ask("Hello"))
        assert reply.text == "Next"


@proves("providers.streams")
@every_api
async def test_requests_share_a_connection(api: Api) -> None:
    async with api.serve(ApiReply("One"), ApiReply("Two"), ApiReply("Three")) as (provider, server):
        texts = [(await complete(provider, ask("Hello")))[0].text for _ in range(3)]

        assert texts == ["One", "Two", "Three"]
        assert server.connections == 1


@proves("providers.retryable")
@every_api
async def test_a_server_that_cannot_be_reached_is_retryable(api: Api) -> None:
    async with api.serve() as (_, server):
        environment = server.environment
    provider = api.provider(environment)

    problem = await fail(provider)

    assert problem.retryable
    assert api.base in str(problem.remedy)


@proves("providers.keys")
@every_api
@pytest.mark.parametrize("address", ["ftp://example.com", "example.com", "http://", "http://[::1", "http://a b"])
async def test_an_invalid_address_is_refused_by_its_variable(api: Api, address: str) -> None:
    problem = await fail(api.provider({api.key: KEY, api.base: address}))

    assert not problem.retryable
    assert api.base in problem.sentence


@proves("providers.permanent")
@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"type":"error","error":{"type":"api_error","message":"Oh"}}', "Oh"),
        (b'{"error":"Oh"}', "Oh"),
        (b'{"detail":"Oh"}', "Oh"),
        (b'{"object":"error","message":"Oh"}', "Oh"),
        (b'["Oh"]', "['Oh']"),
        (b"<h1>Oh</h1>", "<h1>Oh</h1>"),
        (b"", ""),
        (b"\xff", "\ufffd"),
    ],
)
def test_the_message_of_an_error_is_found_in_every_form_that_servers_use(body: bytes, message: str) -> None:
    assert read_error_body(body)[0] == message


NOW = datetime(2026, 11, 18, 12, 0, tzinfo=UTC)


@proves("providers.retryable")
@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7.0),
        ("0.5", 0.5),
        (format_datetime(NOW + timedelta(seconds=90), usegmt=True), 90.0),
        (format_datetime(NOW - timedelta(seconds=90), usegmt=True), 0.0),
        ("-3", 0.0),
        ("999999", 3600.0),
        ("inf", 3600.0),
        ("nan", None),
        ("soon", None),
        ("", None),
    ],
)
def test_retry_after_is_a_number_or_a_date_and_bounded(value: str, seconds: float | None) -> None:
    assert parse_retry_after(value, NOW) == seconds
