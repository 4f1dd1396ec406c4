"""Draw a workflow as a self-contained SVG file.

The picture has a title and a description for screen readers, follows the light or dark colour scheme of the viewer, and shows
the full text of a shortened label as a tooltip.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import quote
from xml.sax.saxutils import escape, quoteattr

from fidelio.definitions.drawing.geometry import Box, Label, Line, Rect, fmt, shorten, text_width, wrap
from fidelio.definitions.drawing.graph import Graph, Link, Shape
from fidelio.definitions.drawing.layers import LABEL_LINE, LABEL_SIZE, NOTE_SIZE, TITLE_LINE, TITLE_SIZE, describe_node
from fidelio.definitions.drawing.layout import compute_layout
from fidelio.definitions.wording import describe_count

_MARGIN = 28.0
_HEADING = 19.0
_LEGEND_ROW = 40.0
_LEAST_WIDTH = 360.0
# A wider picture could not be read if it were fitted to a phone.
_WIDE = 560.0
BADGE_RADIUS = 9.5
MAX_LINES = 1_500
NO_MARKS: Mapping[str, str] = {}
_LEGEND = {
    Link.NEXT: "goes on",
    Link.CONDITION: "on a condition",
    Link.DECISION: "decision",
    Link.ANSWER: "answer at a checkpoint",
    Link.TRIGGER: "starts another workflow",
}
_ILLEGAL_IN_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


def draw_svg(graph: Graph) -> str:
    """Draw a graph as a file."""
    return "\n".join(_draw(graph, _Page()))


def draw_svg_for_page(
    graph: Graph, address: str, *, marks: Mapping[str, str], edge_marks: Mapping[tuple[str, str], str]
) -> str:
    """Draw a graph for a page, which brings `render_stylesheet` and a heading of its own.

    An activity is a link to its definition: to the element `activity-` with its id, in the page at `address`. `marks` adds
    classes to nodes, by their ids, and `edge_marks` to edges, by the nodes that they join.
    """
    return "\n".join(_draw(graph, _Page(marks, edge_marks, address, is_used=True)))


@dataclass(frozen=True, slots=True)
class _Page:
    """What a drawing has in a page; in a file nothing of it."""

    nodes: Mapping[str, str] = field(default_factory=dict)
    edges: Mapping[tuple[str, str], str] = field(default_factory=dict)
    address: str = ""
    is_used: bool = False


def _draw(graph: Graph, page: _Page) -> Iterator[str]:
    graph = _limit_edges(graph)
    picture = compute_layout(graph)
    content = picture.bounds.right - picture.bounds.left
    width = max(content, _measure_legend(graph), _LEAST_WIDTH) + 2 * _MARGIN
    heading = [] if page.is_used else list(_render_heading(graph, width))
    above = 36 if graph.subtitle else 12
    top = _MARGIN + (0 if page.is_used else 26 * sum("heading" in line for line in heading) + above)
    legend = top + picture.bounds.bottom - picture.bounds.top + _LEGEND_ROW
    shift = f"translate({fmt((width - content) / 2 - picture.bounds.left)} {fmt(top - picture.bounds.top)})"
    yield from _render_opening(graph, width, legend + _MARGIN, styled=not page.is_used)
    yield from heading
    yield f'<g transform="{shift}">'
    # A line with a mark lies above the others.
    for line in sorted(picture.lines, key=lambda line: bool(_mark_of(line, page))):
        yield _render_line(line.edge.link, line.path, _mark_of(line, page))
    for line in picture.lines:
        if line.label:
            yield from _render_label(line, line.label, _mark_of(line, page))
    for box in picture.boxes:
        yield from _render_box(box, page)
    yield "</g>"
    yield from _render_legend(graph, legend)
    yield "</svg>"


def _mark_of(line: Line, page: _Page) -> str:
    mark = page.edges.get((line.edge.source, line.edge.target), "")
    return f" {mark}" if mark else ""


def _limit_edges(graph: Graph) -> Graph:
    """The graph with so many edges that the picture can be drawn and read: the first ones of every node."""
    if len(graph.edges) <= MAX_LINES:
        return graph
    seen = Counter[str]()
    ranks = list[tuple[int, int]]()
    for number, edge in enumerate(graph.edges):
        ranks.append((seen[edge.source], number))
        seen[edge.source] += 1
    drawn = sorted(number for _, number in sorted(ranks)[:MAX_LINES])
    note = f"{len(graph.edges) - MAX_LINES} of {len(graph.edges)} lines are not drawn"
    subtitle = " · ".join(filter(None, (graph.subtitle, note)))
    return replace(graph, subtitle=subtitle, edges=tuple(graph.edges[number] for number in drawn))


def _escape_text(value: str) -> str:
    return escape(_ILLEGAL_IN_XML.sub(" ", value))


def _render_opening(graph: Graph, width: float, height: float, *, styled: bool) -> Iterator[str]:
    key = re.sub(r"[^a-z0-9]+", "-", graph.title.lower()).strip("-") or "workflow"
    role, wide = ("img", "") if styled else ("group", " wide" if width > _WIDE else "")
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="fidelio-drawing{wide}" role="{role}" width="{fmt(width)}" '
        f'height="{fmt(height)}" viewBox="0 0 {fmt(width)} {fmt(height)}" '
        f'aria-labelledby="{key}-title {key}-desc">'
    )
    yield f'<title id="{key}-title">{_escape_text(graph.title)}</title>'
    yield f'<desc id="{key}-desc">{_escape_text(_describe_graph(graph))}</desc>'
    if styled:
        yield f"<style>\n{render_stylesheet()}\n</style>"
    yield "<defs>"
    for link in Link:
        yield (
            f'<marker id="fidelio-tip-{link}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="9" markerHeight="9" '
            f'markerUnits="userSpaceOnUse" orient="auto"><path class="tip {link}" d="M0 .8 10 5 0 9.2 2 5z"/></marker>'
        )
    yield "</defs>"
    yield f'<rect class="paper" width="{fmt(width)}" height="{fmt(height)}" rx="12"/>'


def _describe_graph(graph: Graph) -> str:
    """Describe the picture in sentences, for screen readers."""
    activities = [node for node in graph.nodes if node.shape is Shape.ACTIVITY]
    names = {node.id: node.title for node in graph.nodes}
    count = f"{describe_count(len(activities), 'activity', 'activities')}."
    sentences = [
        f"{names[edge.source]} leads to {names[edge.target]}" + (f" ({edge.label})." if edge.label else ".")
        for edge in graph.edges
    ]
    return " ".join([count, *sentences])


def _render_heading(graph: Graph, width: float) -> Iterator[str]:
    y = _MARGIN + 14
    for line in wrap(graph.title, width - 2 * _MARGIN, _HEADING, lines=3, bold=True):
        position = f'x="{fmt(_MARGIN)}" y="{fmt(y)}"'
        yield f'<text class="heading" {position} font-size="{_HEADING}" font-weight="650">{_escape_text(line)}</text>'
        y += 26
    if graph.subtitle:
        note = shorten(graph.subtitle, width - 2 * _MARGIN, 12.5)
        yield f'<text class="muted" x="{fmt(_MARGIN)}" y="{fmt(y - 5)}" font-size="12.5">{_escape_text(note)}</text>'


def _render_line(link: Link, path: str, mark: str = "") -> str:
    return f'<path class="line {link}{mark}" d="{path}" marker-end="url(#fidelio-tip-{link})"/>'


def _render_label(line: Line, label: Label, mark: str) -> Iterator[str]:
    rect = label.rect
    group = f'<g class="label{mark}">' if mark else "<g>"
    yield f"{group}<title>{_escape_text(line.edge.label)}</title>"
    yield (
        f'<rect class="chip" x="{fmt(rect.left)}" y="{fmt(rect.top)}" width="{fmt(rect.right - rect.left)}" '
        f'height="{fmt(rect.bottom - rect.top)}" rx="5"/>'
    )
    x, y = rect.middle
    y += LABEL_SIZE * 0.36 - LABEL_LINE * (len(label.lines) - 1) / 2
    for number_of_line, text in enumerate(label.lines):
        yield _render_centred(x, y + LABEL_LINE * number_of_line, text, f'class="{line.edge.link}" font-size="{LABEL_SIZE}"')
    yield "</g>"


def _render_centred(x: float, y: float, text: str, attributes: str) -> str:
    return f'<text x="{fmt(x)}" y="{fmt(y)}" text-anchor="middle" {attributes}>{_escape_text(text)}</text>'


def _render_box(box: Box, page: _Page) -> Iterator[str]:
    node, mark = box.node, page.nodes.get(box.node.id, "")
    is_link = page.is_used and node.shape is Shape.ACTIVITY
    if is_link:
        yield f"<a href={quoteattr(f'{page.address}#activity-{quote(node.id)}')}>"
    flawed = " flawed" if node.warning and node.shape is not Shape.MISSING else ""
    flawed += f" {mark}" if mark else ""
    name = f" data-node={quoteattr(_ILLEGAL_IN_XML.sub(' ', node.id))}" if page.is_used else ""
    yield f'<g class="node {node.shape}{flawed}"{name}>'
    yield f"<title>{_escape_text(' · '.join(filter(None, (node.title, describe_node(node)))))}</title>"
    yield from _render_content(box)
    yield "</g></a>" if is_link else "</g>"


def _render_content(box: Box) -> Iterator[str]:
    rect, (x, _) = box.rect, box.rect.middle
    height = rect.bottom - rect.top
    yield _render_card(box, 0, height / 2 if box.node.shape in (Shape.START, Shape.END) else 9)
    if box.node.shape is Shape.WORKFLOW:
        yield _render_card(box, 3.5, 6)
    y = rect.top + (height - TITLE_LINE * len(box.lines) - (17 if describe_node(box.node) else 0)) / 2 + 13.5
    for at, text in enumerate(box.lines):
        yield _render_centred(x, y + TITLE_LINE * at, text, f'font-size="{TITLE_SIZE}" font-weight="600"')
    yield from _render_note(box, x, y + TITLE_LINE * len(box.lines) - 1)


def _render_card(box: Box, inset: float, radius: float) -> str:
    rect = box.rect
    return (
        f'<rect class="card" x="{fmt(rect.left + inset)}" y="{fmt(rect.top + inset)}" '
        f'width="{fmt(rect.right - rect.left - 2 * inset)}" height="{fmt(rect.bottom - rect.top - 2 * inset)}" '
        f'rx="{fmt(radius)}"/>'
    )


def _render_note(box: Box, x: float, y: float) -> Iterator[str]:
    if note := describe_node(box.node):
        yield _render_centred(x, y, note, f'class="muted" font-size="{NOTE_SIZE}"')
    if box.node.marks.locked and not box.node.warning:
        yield from _render_badge(box.rect)


def _render_badge(rect: Rect) -> Iterator[str]:
    """A lock on the corner of the card, where no text can run into it, whatever the font of the reader is."""
    x, y = rect.left + 15, rect.top
    yield f'<circle class="badge" cx="{fmt(x)}" cy="{fmt(y)}" r="{fmt(BADGE_RADIUS)}"/>'
    yield from _render_lock(x - 4.8, y + 3.6)


def _render_lock(left: float, y: float) -> Iterator[str]:
    yield f'<path class="lock-bow" d="M{fmt(left + 2)} {fmt(y - 5)}v-2.2a2.8 2.8 0 0 1 5.6 0v2.2"/>'
    yield f'<rect class="lock" x="{fmt(left)}" y="{fmt(y - 5.4)}" width="9.6" height="6.6" rx="1.4"/>'


def _list_legend_entries(graph: Graph) -> list[tuple[Link | None, str]]:
    used = {edge.link for edge in graph.edges}
    entries: list[tuple[Link | None, str]] = [(link, words) for link, words in _LEGEND.items() if link in used]
    if any(node.marks.locked for node in graph.nodes):
        entries.append((None, "waits for an answer"))
    return entries if len(entries) > 1 else []


def _measure_legend(graph: Graph) -> float:
    return sum(text_width(words, NOTE_SIZE) + 56 for _, words in _list_legend_entries(graph)) - 20


def _render_legend(graph: Graph, y: float) -> Iterator[str]:
    x = _MARGIN
    for link, words in _list_legend_entries(graph):
        if link is None:
            yield from _render_lock(x + 14, y)
        else:
            yield _render_line(link, f"M{fmt(x)} {fmt(y - 4)}h26")
        yield f'<text class="muted" x="{fmt(x + 32)}" y="{fmt(y)}" font-size="{NOTE_SIZE}">{_escape_text(words)}</text>'
        x += text_width(words, NOTE_SIZE) + 56


FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'Liberation Sans', sans-serif"


# The light and the dark variant of each colour, with sufficient contrast to the paper.
_COLOURS = {
    "paper": ("#ffffff", "#0f172a"),
    "ink": ("#1e293b", "#e2e8f0"),
    "muted": ("#5b6778", "#9fb0c6"),
    "card": ("#f8fafc", "#1e293b"),
    "rim": ("#b6c2d1", "#51627b"),
    "solid": ("#334155", "#cbd5e1"),
    "on_solid": ("#ffffff", "#0f172a"),
    "warning": ("#b42318", "#fda29b"),
    "warning_card": ("#fef3f2", "#3b1614"),
    "lock": ("#b54708", "#fdb022"),
    Link.NEXT: ("#475569", "#cbd5e1"),
    Link.CONDITION: ("#6b7a90", "#94a3b8"),
    Link.DECISION: ("#0f766e", "#5eead4"),
    Link.ANSWER: ("#4f46e5", "#a5b4fc"),
    Link.TRIGGER: ("#9333ea", "#d8b4fe"),
}
_SIZE_RULES = {
    "text": f"font-family: {FONT}",
    ".line": "fill: none; stroke-width: 1.4",
    ".line.next": "stroke-width: 1.9",
    ".card": "stroke-width: 1.2",
    ".missing .card, .flawed .card": "stroke-dasharray: 5 4",
    f".line.{Link.TRIGGER}": "stroke-dasharray: 2 4",
    f".line.{Link.ANSWER}": "stroke-dasharray: 6 4",
}
_COLOUR_RULES = {
    ".paper, .chip": "fill: {paper}",
    "text": "fill: {ink}",
    ".muted": "fill: {muted}",
    ".card": "fill: {card}; stroke: {rim}",
    ".start .card": "fill: {solid}; stroke: {solid}",
    ".start text": "fill: {on_solid}",
    ".end .card": "fill: {paper}; stroke: {solid}; stroke-width: 2",
    ".workflow .card": "stroke: {trigger}",
    ".missing .card, .flawed .card": "fill: {warning_card}; stroke: {warning}",
    ".missing text, .flawed .muted": "fill: {warning}",
    ".badge": "fill: {paper}; stroke: {lock}; stroke-width: 1.2",
    ".lock": "fill: {lock}",
    ".lock-bow": "fill: none; stroke: {lock}; stroke-width: 1.6",
    **{f".line.{link}": f"stroke: {{{link}}}" for link in Link},
    **{f".tip.{link}, text.{link}": f"fill: {{{link}}}" for link in Link},
}


def render_stylesheet() -> str:
    """The style of all drawings."""
    light, dark = ({str(name): variants[number] for name, variants in _COLOURS.items()} for number in range(2))
    rules = [*_render_rules(_SIZE_RULES, {}), *_render_rules(_COLOUR_RULES, light)]
    in_the_dark = "\n".join(f"  {rule}" for rule in _render_rules(_COLOUR_RULES, dark))
    return "\n".join(rules) + f"\n@media (prefers-color-scheme: dark) {{\n{in_the_dark}\n}}"


def _render_rules(rules: dict[str, str], colours: dict[str, str]) -> Iterator[str]:
    for selectors, body in rules.items():
        confined = ", ".join(f".fidelio-drawing {selector.strip()}" for selector in selectors.split(","))
        yield f"{confined} {{ {body.format_map(colours)} }}"
