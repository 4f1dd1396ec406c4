"""Pages of lists: sealed cursors, so that a cursor that was never issued is refused and none reveals what it points at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fidelio.clock import now_ms
from fidelio.errors import BadToken
from fidelio.surfaces.http.v1.errors import ApiProblem
from fidelio.tokens.keyring import KeyRing
from fidelio.tokens.seal import Seal

DEFAULT_LIMIT, MAX_LIMIT = 20, 100
_PURPOSE = "v1-page"


class Cursors:
    """Seals the positions of pages. A cursor is bound to the list that it continues."""

    def __init__(self, keys: KeyRing) -> None:
        self._seal = Seal(keys, _PURPOSE)

    def encode(self, list_: str, position: Any) -> str:
        return self._seal.seal({"l": list_, "p": position})

    def decode(self, list_: str, cursor: str) -> Any:
        """The position of a cursor of the same list. Raises 400 for any other."""
        try:
            payload = self._seal.open(cursor, now=now_ms())
        except BadToken:
            payload = {}
        if payload.get("l") != list_:
            raise ApiProblem("page: this cursor was not issued for this list. Begin again without page.")
        return payload["p"]


def make_page(items: Sequence[Any], next_page: str | None) -> dict[str, Any]:
    return {"data": list(items), "next_page": next_page}
