from __future__ import annotations

from pathlib import Path

from tests.runtime.wakes.support import open_runtime, replies, say, use


async def test_a_message_is_answered_in_one_wake(tmp_path: Path) -> None:
    async with open_runtime(tmp_path, replies(say("Hello to you.", {"outcome": "sleep", "summary": "Greeted."}))) as runtime:
        session = await runtime.begin()
        await runtime.tell(session, "Hello!")
        assert await runtime.work() == 1
        record = await runtime.record(session)
        assert (record.status, record.wakes.summary, record.wakes.pending) == ("idle", "Greeted.", 0)
        print(await runtime.types(session))
        assert await runtime.work() == 0
        await runtime.tell(session, "Again!")
        await runtime.work()
        assert len(runtime.requests) == 2
        print([m for m in runtime.requests[1].messages])
