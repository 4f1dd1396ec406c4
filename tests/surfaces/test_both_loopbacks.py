"""Where a server listens: at both loopback addresses, so that nobody else gets what a browser sends to `localhost`."""

from __future__ import annotations

import asyncio

import httpx2
import pytest

from fidelio.errors import UsageProblem
from fidelio.surfaces.http import serving
from fidelio.surfaces.http.application import create_app
from fidelio.surfaces.http.serving import open_listener, open_listeners, serve_http
from tests.support import proves
from tests.support.parts import require_part


@pytest.fixture
def ipv6() -> None:
    if not serving._has_ipv6():
        require_part("the loopback address of IPv6", "Enable IPv6 on the loopback interface.")


@proves("http.both-loopbacks")
@pytest.mark.usefixtures("ipv6")
async def test_a_server_on_loopback_answers_at_both_addresses() -> None:
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving_task = asyncio.create_task(serve_http(create_app({}, bearer_token="t"), port=0, ready=address.set_result))
    port = (await asyncio.wait_for(address, 30)).rpartition(":")[2]
    try:
        async with httpx2.AsyncClient() as client:
            found = [
                (await client.get(f"http://{host}:{port}/health")).status_code for host in ("127.0.0.1", "[::1]", "localhost")
            ]
    finally:
        serving_task.cancel()
        await asyncio.wait([serving_task], timeout=30)

    assert found == [200, 200, 200]


@proves("http.both-loopbacks")
@pytest.mark.usefixtures("ipv6")
def test_a_port_that_somebody_else_has_at_the_other_address_is_in_use() -> None:
    with open_listener("::1", 0) as other:
        port = other.getsockname()[1]
        with pytest.raises(UsageProblem, match=f"Port {port} on ::1 is in use"), open_listeners("127.0.0.1", port):
            pass


@proves("http.both-loopbacks")
def test_a_machine_without_the_other_address_is_served_at_the_one_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    # An address for documentation, which no machine has.
    monkeypatch.setattr(serving, "_IPV6_LOOPBACK", "2001:db8::1")

    with open_listeners("127.0.0.1", 0) as listeners:
        assert [listener.getsockname()[0] for listener in listeners] == ["127.0.0.1"]
    with open_listeners("0.0.0.0", 0) as listeners:  # closed at once
        assert len(listeners) == 1
