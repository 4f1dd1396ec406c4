"""Charts of sessions, laid out on the server: states over time, and usage over time. Pure.

The pictures are SVG without styles of their own; the colours come from the stylesheet of the page. Every picture says in words
what it shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from markupsafe import Markup

from fidelio.clock import format_iso
from fidelio.ledger.model import Event, Session

WIDTH, LANE, PLOT = 720, 22, 120
# The state that a session is in after an event: of workflows, of agents, of runtime agents.
STATES: Mapping[str, str] = {
    "session.started": "working",
    "checkpoint.yielded": "waiting",
    "checkpoint.resumed": "working",
    "session.completed": "ended",
    "session.cancelled": "ended",
    "run.queued": "working",
    "run.starting": "working",
    "run.waiting": "waiting",
    "run.going-on": "working",
    "run.succeeded": "idle",
    "run.failed": "ended",
    "run.stopped": "ended",
    "run.lost": "ended",
    "session.status_running": "working",
    "session.status_idle": "idle",
    "session.status_terminated": "ended",
}
_OVER = frozenset({"completed", "cancelled", "terminated", "failed", "lost", "stopped"})


class StatePeriod(msgspec.Struct, frozen=True):
    """A part of a lane: a session was in a state from `start` to `end`."""

    state: str
    start: int
    end: int


class Sample(msgspec.Struct, frozen=True):
    """The usage at a moment: totals of tokens and cost, and what the conversation takes of the context."""

    time: int
    tokens: int
    cost_usd: float
    context: int = 0


def list_segments(session: Session, events: Iterable[Event], now: int) -> tuple[StatePeriod, ...]:
    """The states of a session over time. The last state lasts until now, or until the last change if the session is over."""
    found = [(event.time, _find_state(event)) for event in events if event.type in STATES]
    # A session that was imported has events from before it was created here.
    changes = [(min([session.created_at, *(time for time, _ in found)]), "idle"), *found]
    end = session.updated_at if session.status in _OVER else now
    segments = list[StatePeriod]()
    for (start, state), following in zip(changes, [*(time for time, _ in changes[1:]), max(end, changes[-1][0])], strict=True):
        if segments and segments[-1].state == state:
            segments[-1] = StatePeriod(state, segments[-1].start, following)
        elif following > start:
            segments.append(StatePeriod(state, start, following))
    return tuple(segments)


def _find_state(event: Event) -> str:
    """A runtime agent that is idle because it needs an answer waits for a person."""
    reason = {} if event.redacted else event.body.get("stop_reason") or {}
    if isinstance(reason, Mapping) and reason.get("type") == "requires_action":
        return "waiting"
    return STATES[event.type]


def draw_states(charted: Sequence[tuple[str, Sequence[StatePeriod]]]) -> Markup:
    """Rows over a common time: the width of a part is its duration, its class its state."""
    segments = [segment for _, lane in charted for segment in lane]
    if not segments:
        return Markup("")
    first, last = min(segment.start for segment in segments), max(segment.end for segment in segments)
    scale = WIDTH / max(1, last - first)
    rows = [_draw_lane(number, title, lane, first, scale) for number, (title, lane) in enumerate(charted)]
    height = LANE * len(charted)
    head = Markup('<svg class="lanes" role="img" aria-label="{}" height="{}" viewBox="0 0 {} {}" preserveAspectRatio="none">')
    label = f"States of {len(charted)} sessions from {format_iso(first)} to {format_iso(last)}"
    return head.format(label, height, WIDTH, height) + Markup("").join(rows) + Markup("</svg>")


def _draw_lane(number: int, title: str, lane: Sequence[StatePeriod], first: int, scale: float) -> Markup:
    rect = Markup('<rect class="{}" x="{:.2f}" y="{}" width="{:.2f}" height="{}"><title>{}</title></rect>')
    return Markup("").join(
        rect.format(
            segment.state,
            (segment.start - first) * scale,
            number * LANE + 4,
            # Something short must be seen too.
            max(1.5, (segment.end - segment.start) * scale),
            LANE - 8,
            f"{title}: {segment.state}, {(segment.end - segment.start) / 1000:.1f} s",
        )
        for segment in lane
    )


def list_samples(events: Iterable[Event]) -> tuple[Sample, ...]:
    """Usage over time: totals of the requests of a runtime agent, or what an agent with its own tools has reported."""
    samples, tokens, micros = list[Sample](), 0, 0
    for event in events:
        if event.redacted:
            continue
        if event.type == "run.used":
            usage = event.body.get("usage") or {}
            total = int(usage.get("input_tokens", 0)) + int(usage.get("output_tokens", 0))
            samples.append(Sample(event.time, total, float(usage.get("cost_usd", 0.0))))
        elif event.type == "span.model_request_end":
            tokens += sum(int(count) for count in (event.body.get("model_usage") or {}).values())
            micros += int(event.body.get("cost_micros", 0))
            samples.append(Sample(event.time, tokens, micros / 1_000_000, int(event.body.get("context_tokens", 0))))
    return tuple(samples)


def draw_usage(samples: Sequence[Sample]) -> Markup:
    """Tokens, cost and context over time, each on its own scale; empty with fewer than two samples."""
    if len(samples) < 2:
        return Markup("")
    lines = {
        "tokens": [float(sample.tokens) for sample in samples],
        "cost": [sample.cost_usd for sample in samples],
        "context": [float(sample.context) for sample in samples],
    }
    drawn = [_draw_line(name, samples, values) for name, values in lines.items() if max(values) > 0]
    last = samples[-1]
    label = (
        f"{last.tokens:,} tokens and {last.cost_usd:.4f} US dollars after {(last.time - samples[0].time) / 1000:.0f} seconds"
    )
    head = Markup('<svg class="usage" role="img" aria-label="{}" viewBox="0 -4 {} {}" preserveAspectRatio="none">')
    return head.format(label, WIDTH, PLOT + 8) + Markup("").join(drawn) + Markup("</svg>")


def _draw_line(name: str, samples: Sequence[Sample], values: Sequence[float]) -> Markup:
    first, span, most = samples[0].time, max(1, samples[-1].time - samples[0].time), max(values)
    points = " ".join(
        f"{(sample.time - first) / span * WIDTH:.1f},{PLOT - value / most * PLOT:.1f}"
        for sample, value in zip(samples, values, strict=True)
    )
    return Markup('<polyline class="{}" points="{}" fill="none" vector-effect="non-scaling-stroke"/>').format(name, points)
