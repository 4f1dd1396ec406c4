"""Our protocol over HTTP against the SDK, for requests that something has happened to on the way."""

from __future__ import annotations

import json
import random

import pytest

from tests.support import proves
from tests.surfaces.mcp.test_plain_calls import ECHO, OLD, both_ways, comparable, new, stateless
from tests.surfaces.mcp.wire import ASKABLE, call

REQUESTS = 30
BYTES = (b"\x00", b"\t", b'"', b",", b":", b"[", b"]", b"{", b"}", b"\\", b"\x80", b"\xff", b"0", b"-", b"e", b".", b" ")
# What a part of a message may turn into.
VALUES = (
    "null",
    "true",
    "1e400",
    "-0",
    "1.5",
    "9" * 30,
    '"\\ud800"',
    '"\\u0000"',
    "[]",
    "{}",
    '"2.0"',
    '"tools\\/call"',
    '"echo"',
)
KEYS = (b"id", b"method", b"params", b"jsonrpc", b"name", b"_meta")
CALLS = (ECHO, call("a", "tally"), call(-1, "choose"), call(2**63, "refuse"))


def mutated(chance: random.Random, body: bytes) -> bytes:
    place = chance.randrange(len(body))
    match chance.randrange(5):
        case 0:
            return body
        case 1:
            return body[:place] + chance.choice(BYTES) + body[place + chance.randrange(2) :]
        case 2:
            return body[:place] + body[place + 1 :]
        case 3:
            return with_value(chance, body)
        case _:
            # Some key is there twice, with another value.
            return body.replace(b"{", b'{"%s": %s, ' % (chance.choice(KEYS), chance.choice(VALUES).encode()), 1)


def with_value(chance: random.Random, body: bytes) -> bytes:
    """Another value behind one of the colons."""
    parts = body.split(b": ")
    place = chance.randrange(1, len(parts))
    rest = parts[place].partition(b", ")
    parts[place] = chance.choice(VALUES).encode() + b"".join(rest[1:])
    return b": ".join(parts)


@proves("mcp.http-single")
@pytest.mark.parametrize("seed", range(4))
async def test_whatever_arrives_is_never_answered_differently_than_by_the_sdk(seed: int) -> None:
    chance = random.Random(seed)
    answered = 0
    async with both_ways() as ways:
        for _ in range(REQUESTS):
            message = chance.choice(CALLS)
            newer = {**message, "params": {**message["params"], "_meta": ASKABLE}}
            sent = chance.choice((message, newer, stateless(message)))
            headers = chance.choice((OLD, new(message), new(message)))
            body = mutated(chance, json.dumps(sent).encode())
            ours, sdk = await ways.both(body, headers)
            # Each may be stricter than the other about what is not well-formed.
            if "result" in ours[2] and "result" in sdk[2]:
                answered += 1
                assert comparable(ours) == comparable(sdk), (headers, body)
            assert ours[0] in {200, 202, 400, 404}
    assert answered > 0
