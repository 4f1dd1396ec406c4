"""The page of sessions over time: a lane for each of the newest sessions, over a range of time that a person chooses."""

from __future__ import annotations

import msgspec
from markupsafe import Markup

from fidelio.app.records import Records
from fidelio.clock import now_ms
from fidelio.ledger.model import Session
from fidelio.surfaces.web.charts import (
    RANGES,
    STATES,
    StatePeriod,
    TimeAxis,
    choose_range,
    describe_lane,
    draw_axis,
    draw_lane,
    list_segments,
)
from fidelio.surfaces.web.pages import PageContent, PageRequest, PageRoute, Result
from fidelio.surfaces.web.session_views import SessionView, arrange_tree

# Sessions on a page, and events of each in which changes of its state are looked for.
CHARTED, LANE_EVENTS = 40, 500


class Lane(msgspec.Struct, frozen=True):
    """A row of the page. `words` says what the picture shows."""

    view: SessionView
    depth: int
    picture: Markup
    words: str


async def _show_states(request: PageRequest) -> Result:
    """The newest sessions over time; those without a part in the range are only counted."""
    records, now = await request.services.records(), now_ms()
    page = await records.sessions(cursor=request.query("after") or None, limit=CHARTED, stores=False)
    rows = arrange_tree(page.items)
    periods = [await _load_periods(records, view.session, now) for view, _ in rows]
    chosen = request.query("range") if request.query("range") in RANGES else choose_range(periods, now)
    oldest = min((lane[0].start for lane in periods if lane), default=now)
    axis = TimeAxis(now - RANGES[chosen] if RANGES[chosen] else min(oldest, now - 1), now)
    charted = [
        Lane(view, depth, draw_lane(lane, axis), describe_lane(lane, axis))
        for (view, depth), lane in zip(rows, periods, strict=True)
        if axis.cut(lane)
    ]
    values = {"lanes": charted, "axis": draw_axis(axis), "ranges": tuple(RANGES), "chosen": chosen, "next": page.next}
    return PageContent("lanes.html", {**values, "hidden": len(rows) - len(charted), "after": request.query("after")})


async def _load_periods(records: Records, session: Session, now: int) -> tuple[StatePeriod, ...]:
    first = max(0, session.last_seq - LANE_EVENTS)
    return list_segments(session, await records.events(session.id, after=first, types=tuple(STATES), limit=LANE_EVENTS), now)


ROUTES = (PageRoute(path="/sessions/lanes", show=_show_states),)
