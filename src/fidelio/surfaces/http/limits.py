"""Limits of what programs send: requests in a second, and bytes of bodies. Shared by all sets of paths for programs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Self

import msgspec
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from fidelio.settings import HttpLimits

MAX_BODY = 16 * 1024 * 1024
# Bodies up to this size are always taken: connections are limited, and so these are together.
SMALL_BODY = 64 * 1024


class RateLimit:
    """A token bucket for the requests of a key. A server has a single key, so it has a single bucket.

    It refills by the rate and holds what two seconds bring, so that a program may begin with many requests at once.
    """

    def __init__(self, per_second: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._clock = per_second, clock
        self._left, self._seen = 2.0 * per_second, clock()

    def count(self) -> float:
        """Count a request; 0, or the seconds until the next is accepted."""
        now = self._clock()
        self._left = min(2.0 * self._rate, self._left + (now - self._seen) * self._rate)
        self._seen = now
        if self._left < 1:
            return (1 - self._left) / self._rate
        self._left -= 1
        return 0.0


class BodyBudget:
    """Memory for the large request bodies of all endpoints together. A single body is limited by `MAX_BODY`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.used = 0

    def reserve(self, size: int) -> bool:
        """Reserve memory; False if there is not enough."""
        if self.used + size > self._limit:
            return False
        self.used += size
        return True

    def release(self, size: int) -> None:
        self.used -= size


class ProgramLimits(msgspec.Struct, frozen=True):
    """The limits of a server that `/v1` and `/api` share."""

    rate: RateLimit
    bodies: BodyBudget

    @classmethod
    def from_settings(cls, limits: HttpLimits) -> Self:
        return cls(RateLimit(limits.api_rate), BodyBudget(limits.body_megabytes * 1024 * 1024))


class BodyTooLarge(Exception):
    """A body has more bytes than it may have."""


class TooManyBodies(Exception):
    """There is no memory for another large body now."""


class BodyReader:
    """Reads the body of a request. What goes beyond `SMALL_BODY` is taken from the budget until it is released."""

    def __init__(self, receive: Receive, budget: BodyBudget, most: int = MAX_BODY) -> None:
        self._receive, self._budget, self._most = receive, budget, most
        self._reserved = 0

    async def read(self) -> bytes:
        """Read to the end. Raises `BodyTooLarge`, `TooManyBodies`, and `ClientDisconnect` if the client leaves."""
        chunks, size, more = list[bytes](), 0, True
        while more:
            message = await self._receive()
            if message["type"] != "http.request":
                raise ClientDisconnect
            chunks.append(message.get("body", b""))
            size += len(chunks[-1])
            more = message.get("more_body", False)
            if size > self._most:
                raise BodyTooLarge
            self._reserve(size - SMALL_BODY)
        return b"".join(chunks)

    def _reserve(self, size: int) -> None:
        if size <= self._reserved:
            return
        if not self._budget.reserve(size - self._reserved):
            raise TooManyBodies
        self._reserved = size

    def release(self) -> None:
        """Release the memory of the body."""
        self._budget.release(self._reserved)
        self._reserved = 0
