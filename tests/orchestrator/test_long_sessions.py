"""An agent session with more turns than the largest page of events holds."""

from __future__ import annotations

from pathlib import Path

from fidelio.ledger import open_ledger
from fidelio.ledger.long_text import store_text
from fidelio.ledger.model import NewEvent
from fidelio.ledger.paging import MAX_PAGE_SIZE
from fidelio.orchestrator.record.record import RUN_QUEUED, RunRecord
from fidelio.orchestrator.runs.queueing import load_original_prompt
from tests.support import proves
from tests.support.ledgers import start


@proves("orchestrator.resume-lost")
async def test_the_prompt_of_a_lost_run_is_found_after_the_largest_page_of_turns(tmp_path: Path) -> None:
    earlier = [NewEvent(type=RUN_QUEUED, body={"run": f"r_{number}"}) for number in range(MAX_PAGE_SIZE)]
    lost = NewEvent(type=RUN_QUEUED, body={"run": "r_lost", "prompt": store_text("Sing.").body})
    resumed = NewEvent(type=RUN_QUEUED, body={"run": "r_resumed", "resumes": "r_lost"})
    async with await open_ledger(tmp_path / "ledger.db") as ledger:
        await start(ledger, "s_a", kind="agent")
        done = [await ledger.append("s_a", *events) for events in (earlier[:5000], earlier[5000:], [lost, resumed])]
        asked = done[-1].events[-1].seq

        assert await load_original_prompt(ledger, "s_a", RunRecord(id="r_resumed", prompt_seq=asked)) == "Sing."
