"""A session whose agent works only because of its blueprint is started, carried out and resumed like any other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from fidelio.errors import ExecutorUnavailable
from fidelio.orchestrator.executors.contract import Availability
from tests.orchestrator.fakes import FakeExecutor, OrchestratorHarness, start, wait_until_finished
from tests.support import proves


@dataclass
class Guarded(FakeExecutor):
    """Works only where its key is set."""

    name: str = "guarded"

    async def availability(self, added: Mapping[str, str] | None = None, /) -> Availability:
        return Availability(works=bool((added or {}).get("KEY")), why="It has no key.")


@proves("executors.availability")
async def test_a_key_in_the_blueprint_lets_its_sessions_begin_and_go_on(harness: OrchestratorHarness) -> None:
    harness.others["guarded"] = Guarded()
    harness.blueprints.add("with-key", environment={"KEY": "secret"})
    harness.blueprints.add("without")
    service = harness.service()
    async with harness.host(service):
        await start(service, "aria", blueprint="with-key", executor="guarded")
        await wait_until_finished(service, "aria")
        await service.resume("aria", "Again.")
        (session,) = await wait_until_finished(service, "aria")
        with pytest.raises(ExecutorUnavailable, match="It has no key"):
            await start(service, "duo", blueprint="without", executor="guarded")

    assert (session.run.state, session.run.number) == ("succeeded", 2)
