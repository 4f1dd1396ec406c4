"""What an agent is told about the memory stores of its session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.runtime.servers.test_servers import talk
from tests.runtime.wakes.support import open_runtime, say
from tests.support import proves

CONTENT = {
    "memory_store_id": "memstore_000000000000",
    "access": "read_only",
    "name": "Preferences",
    "description": "What the person likes.",
    "instructions": "Look here first.",
    "mount_path": "/mnt/memory/preferences",
}


def resource(**more: Any) -> dict[str, Any]:
    return {"id": "sesrsc_1", "type": "memory_store", "content": {**CONTENT, **more}}


@proves("memory-stores.prompt")
async def test_the_system_text_has_directory_access_description_and_instructions(tmp_path: Path) -> None:
    async with open_runtime(tmp_path) as runtime:
        await runtime.define()
        with_store, without = await runtime.start(resources=(resource(),)), await runtime.start()
        await talk(runtime, with_store, say("Done."))
        await talk(runtime, without, say("Done."))

    system, other = runtime.requests[0].system, runtime.requests[1].system
    assert (
        "- /mnt/memory/preferences (read_only), Preferences: What the person likes.\n  Instructions: Look here first." in system
    )
    assert "- /mnt/memory/preferences (read_only)\n" in system
    assert "emory stores are" not in other


@proves("memory-stores.prompt")
async def test_a_child_and_a_fork_have_the_stores_of_their_session(tmp_path: Path) -> None:
    async with open_runtime(tmp_path) as runtime:
        await runtime.define()
        session = await runtime.start(resources=(resource(),), vault_ids=("s_000000000000",))
        await talk(runtime, session, say("Done."))
        fork = await runtime.service.fork(session, by="person:test")

        record = await runtime.record(fork)
        assert [each.content for each in record.resources] == [CONTENT]
        assert record.vault_ids == ("s_000000000000",)
