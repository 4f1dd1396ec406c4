"""The orchestrator on every ledger there is."""

from __future__ import annotations

from pathlib import Path

from fidelio.home import Home
from fidelio.ledger import open_ledger
from tests.ledger.postgres.fixtures import address, postgres_database, postgres_server
from tests.orchestrator.fakes import OrchestratorHarness, start, wait_until_finished
from tests.support import proves

__all__ = ["address", "postgres_database", "postgres_server"]


@proves("orchestrator.durable-start", "orchestrator.delete", "orchestrator.host")
async def test_a_session_lives_and_dies_on_every_ledger(address: str, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    async with await open_ledger(address) as ledger:
        harness = OrchestratorHarness(ledger, Home(tmp_path / "home").ensure(), project)
        service = harness.service()
        async with harness.host(service):
            parent = await start(service, "parent", "Conduct.")
            await start(service, "child", "x" * 10_000, parent=parent.id, callback=True)
            await wait_until_finished(service, "parent", "child")
            assert (await service.result("child")).text == "x" * 10_000
            assert (await service.find("child")).parent == parent.id
            await wait_until_finished(service, "parent")
            assert (await service.delete_all()).count == 2
        assert (await service.list()).items == ()
