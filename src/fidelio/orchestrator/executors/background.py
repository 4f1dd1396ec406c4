"""Background tasks of a conversation with an agent: a question that waits for a person must not stop the reading."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any


class BackgroundTasks:
    """Tasks that end with the conversation. If one of them fails, the conversation ends with its error."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._group.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()


@asynccontextmanager
async def background_tasks() -> AsyncIterator[BackgroundTasks]:
    """Whatever is still going on at the end of the block is cancelled. The first error comes out as itself, not in a group."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = BackgroundTasks(group)
            yield tasks
            tasks.cancel()
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
