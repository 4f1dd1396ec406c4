"""Charts of sessions, laid out on the server: states over time, and usage over time. Pure.

The pictures are SVG without styles of their own; the colours come from the stylesheet of the page. Beside every picture the
page says in words what it shows, for people who cannot see it or hover over it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
from markupsafe import Markup

from fidelio.ledger.model import Event, Session
from fidelio.surfaces.event_words import format_duration

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
# The ranges of time that a person chooses from; the last one begins with the oldest session on the page.
RANGES: Mapping[str, int] = {"10 minutes": 10 * MINUTE, "1 hour": HOUR, "1 day": DAY, "1 week": 7 * DAY, "everything": 0}
# Distances between two ticks of a time axis.
_STEPS = (
    *(each * SECOND for each in (1, 2, 5, 10, 15, 30)),
    *(each * MINUTE for each in (1, 2, 5, 10, 15, 30)),
    *(each * HOUR for each in (1, 2, 3, 6, 12)),
    *(each * DAY for each in (1, 2, 7, 14, 30, 90, 180, 365)),
)
_UNITS = ((DAY, "d"), (HOUR, "h"), (MINUTE, "min"), (SECOND, "s"))
_MOST_TICKS = 6
# Percent: something short must be seen too.
_THINNEST = 0.3
PLOT_WIDTH, PLOT_HEIGHT = 400, 100
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

    @property
    def duration(self) -> int:
        return self.end - self.start


class TimeAxis(msgspec.Struct, frozen=True):
    """A range of time that ends now."""

    start: int
    end: int

    @property
    def step(self) -> int:
        """The distance between two ticks: the smallest with few enough ticks."""
        return next((step for step in _STEPS if (self.end - self.start) / step <= _MOST_TICKS), _STEPS[-1])

    @property
    def ticks(self) -> list[int]:
        return list(range(self.end, self.start - 1, -self.step))[: _MOST_TICKS + 1]

    def locate(self, moment: int) -> float:
        """Where a moment is, in percent."""
        return (moment - self.start) / max(1, self.end - self.start) * 100

    def cut(self, lane: Iterable[StatePeriod]) -> tuple[StatePeriod, ...]:
        """The part of a lane that is in the range."""
        periods = (StatePeriod(each.state, max(each.start, self.start), min(each.end, self.end)) for each in lane)
        return tuple(period for period in periods if period.duration >= 0)


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
        elif following > start or state == "ended":
            segments.append(StatePeriod(state, start, following))
    return tuple(segments)


def _find_state(event: Event) -> str:
    """A runtime agent that is idle because it needs an answer waits for a person."""
    reason = {} if event.redacted else event.body.get("stop_reason") or {}
    if isinstance(reason, Mapping) and reason.get("type") == "requires_action":
        return "waiting"
    return STATES[event.type]


def choose_range(charted: Iterable[Sequence[StatePeriod]], now: int) -> str:
    """The smallest range in which most of the sessions begin."""
    starts = sorted((lane[0].start for lane in charted if lane), reverse=True)
    middle = starts[len(starts) // 2] if starts else now
    return next((name for name, length in RANGES.items() if now - length <= middle), "everything")


def draw_axis(axis: TimeAxis) -> Markup:
    """The ticks of the axis with their distance from now."""
    text = Markup('<text x="{:.2f}%" y="13" text-anchor="{}">{}</text>')
    labels = (text.format(axis.locate(tick), _find_anchor(axis.locate(tick)), _name_tick(axis, tick)) for tick in axis.ticks)
    return Markup('<svg class="axis" height="18" aria-hidden="true">{}</svg>').format(Markup("").join(labels))


def _find_anchor(percent: float) -> str:
    """A label at an end of the axis stays within the picture."""
    return "start" if percent < 4 else "end" if percent > 96 else "middle"


def _name_tick(axis: TimeAxis, tick: int) -> str:
    distance = axis.end - tick
    size, unit = next((size, unit) for size, unit in _UNITS if axis.step >= size)
    return f"\N{MINUS SIGN}{distance // size} {unit}" if distance else "now"


def draw_lane(lane: Iterable[StatePeriod], axis: TimeAxis) -> Markup:
    """A row over the axis: the width of a part is its duration, its class its state."""
    line = Markup('<line x1="{0:.2f}%" x2="{0:.2f}%" y1="0" y2="100%"/>')
    rect = Markup('<rect class="{}" x="{:.2f}%" y="4" width="{:.2f}%" height="14" rx="1.5"><title>{}</title></rect>')
    drawn = [
        *(line.format(axis.locate(tick)) for tick in axis.ticks),
        *(rect.format(part.state, *_measure(part, axis), describe_period(part)) for part in axis.cut(lane)),
    ]
    return Markup('<svg class="lane-bar" height="22" aria-hidden="true">{}</svg>').format(Markup("").join(drawn))


def _measure(part: StatePeriod, axis: TimeAxis) -> tuple[float, float]:
    """The left end and the width of a part, in percent."""
    width = max(_THINNEST, axis.locate(part.end) - axis.locate(part.start))
    return min(axis.locate(part.start), 100 - width), width


def describe_period(part: StatePeriod) -> str:
    return f"{part.state} {describe_duration(part.duration)}" if part.duration else part.state


def describe_lane(lane: Iterable[StatePeriod], axis: TimeAxis) -> str:
    """How long the session was in each state within the range, as words."""
    sums = defaultdict[str, int](int)
    for part in axis.cut(lane):
        sums[part.state] += part.duration
    return ", ".join(describe_period(StatePeriod(state, 0, length)) for state, length in sums.items())


def describe_duration(ms: int) -> str:
    """A duration for people: `0.8 s`, `3 min 20 s`, `2 h 5 min`, `3 days 4 h`."""
    if ms < DAY:
        return format_duration(ms).removesuffix(" 0 s").removesuffix(" 0 min")
    days, rest = divmod(ms, DAY)
    return f"{days} day{'' if days == 1 else 's'}" + (f" {rest // HOUR} h" if rest >= HOUR else "")


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
            # Who grades an outcome has a conversation of its own, which takes nothing of this context.
            context = int(event.body.get("context_tokens", 0)) or (samples[-1].context if samples else 0)
            samples.append(Sample(event.time, tokens, micros / 1_000_000, context))
    return tuple(samples)


class Plot(msgspec.Struct, frozen=True):
    """A plot of tokens, cost or context: its newest value in words, its picture, and what the ends of its axes mean."""

    name: str
    latest: str
    top: str
    picture: Markup
    start: int
    end: int


def draw_usage(samples: Sequence[Sample]) -> tuple[Plot, ...]:
    """Tokens, cost and context over time, each in a plot of its own; none without two samples, and none of what is unknown."""
    kinds = (
        ("tokens", "Tokens", [float(sample.tokens) for sample in samples], _count_tokens),
        ("cost", "Cost", [sample.cost_usd for sample in samples], _count_dollars),
        ("context", "Context", [float(sample.context) for sample in samples], _count_tokens),
    )
    return tuple(
        Plot(name, words(values[-1]), words(top), _draw_plot(kind, samples, values, top), samples[0].time, samples[-1].time)
        for kind, name, values, words in kinds
        if len(samples) > 1 and (top := _round_up(max(values)))
    )


def _count_tokens(value: float) -> str:
    return f"{value:,.0f} tokens"


def _count_dollars(value: float) -> str:
    return f"${value:,.2f}" if value >= 0.01 else f"${value:.4f}"


def _round_up(value: float) -> float:
    """The next number of the form 1, 2 or 5 times a power of ten; 0 of 0."""
    if value <= 0:
        return 0
    power = 10.0 ** math.floor(math.log10(value))
    return next((factor * power for factor in (1, 2, 5) if value <= factor * power * (1 + 1e-9)), 10 * power)


def _draw_plot(kind: str, samples: Sequence[Sample], values: Sequence[float], top: float) -> Markup:
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in _list_points(samples, values, top))
    area = f"0,{PLOT_HEIGHT} {points} {PLOT_WIDTH},{PLOT_HEIGHT}"
    picture = Markup(
        '<svg class="plot {}" viewBox="0 0 {} {}" preserveAspectRatio="none" aria-hidden="true">'
        '<polygon points="{}"/><polyline points="{}" vector-effect="non-scaling-stroke"/></svg>'
    )
    return picture.format(kind, PLOT_WIDTH, PLOT_HEIGHT, area, points)


def _list_points(samples: Sequence[Sample], values: Sequence[float], top: float) -> Iterator[tuple[float, float]]:
    first, span = samples[0].time, max(1, samples[-1].time - samples[0].time)
    for sample, value in zip(samples, values, strict=True):
        yield (sample.time - first) / span * PLOT_WIDTH, PLOT_HEIGHT - value / top * PLOT_HEIGHT
