"""Previews of messages: the text of models as it arrives in this process, under the id that the message will have on record.

They are never stored and may stop at any time. A watcher takes what has arrived when it is ready for it; one that is slow loses
the rest of a preview, and its memory is bounded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from fidelio.ids import new_id
from fidelio.runtime.wakes.directive import DirectiveFilter

# Characters that wait for a watcher.
MAX_WAITING = 64 * 1024


class PreviewText(msgspec.Struct):
    """Text of a message that has arrived since it was last taken. `is_cut`: the watcher was too slow and gets no more of it."""

    message: str
    text: str = ""
    is_cut: bool = False


class PreviewWatcher:
    """Collects the previews of a session for a reader, until it reads them. `changed` is called with each piece."""

    def __init__(self, session: str, changed: Callable[[], None]) -> None:
        self.session, self._changed = session, changed
        self._waiting: dict[str, PreviewText] = {}

    def add(self, message: str, text: str) -> None:
        waiting = self._waiting.setdefault(message, PreviewText(message))
        if len(waiting.text) + len(text) > MAX_WAITING:
            waiting.is_cut = True
        if not waiting.is_cut:
            waiting.text += text
            self._changed()

    def read(self) -> list[PreviewText]:
        """The text that has arrived since the last call."""
        arrived = [PreviewText(item.message, item.text) for item in self._waiting.values() if item.text]
        # A message that was cut stays, so that nothing of it is shown after a gap; the older ones are over.
        last = next(reversed(self._waiting.values()), None)
        self._waiting = {last.message: PreviewText(last.message, "", last.is_cut)} if last is not None else {}
        return arrived


class Previews:
    """The watchers of a process, by session."""

    def __init__(self) -> None:
        self._watchers: defaultdict[str, set[PreviewWatcher]] = defaultdict(set)

    @contextmanager
    def watch(self, session: str, changed: Callable[[], None]) -> Iterator[PreviewWatcher]:
        watcher = PreviewWatcher(session, changed)
        self._watchers[session].add(watcher)
        try:
            yield watcher
        finally:
            self._watchers[session].discard(watcher)
            if not self._watchers[session]:
                del self._watchers[session]

    def publish(self, session: str, message: str, text: str) -> None:
        for watcher in tuple(self._watchers.get(session, ())):
            watcher.add(message, text)


class MessagePreview:
    """The preview of a reply. Each attempt of its request has an id of its own; the message gets that of the last."""

    def __init__(self, previews: Previews, session: str) -> None:
        self._previews, self._session = previews, session
        self._directive = DirectiveFilter()
        self.message = new_id("evt_", 20)

    def restart(self) -> None:
        """Begin with another attempt, whose text begins again."""
        self._directive.reset()
        self.message = new_id("evt_", 20)

    def feed(self, text: str) -> None:
        if visible := self._directive.feed(text):
            self._previews.publish(self._session, self.message, visible)
