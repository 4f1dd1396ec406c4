"""Draw a workflow as a self-contained SVG file.

The picture has a title and a description for screen readers, follows the light or dark colour scheme of the viewer, and shows
the full text of a shortened label as a tooltip.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from xml.sax.saxutils import escape

from fidelio.definitions.drawing.geometry import Box, Label, Line, fmt, shorten, text_width, wrap
from fidelio.definitions.drawing.graph import Graph, Link, Shape
from fidelio.definitions.drawing.layers import LABEL_LINE, LABEL_SIZE, NOTE_SIZE, TITLE_LINE, TITLE_SIZE, describe_node
from fidelio.definitions.drawing.layout import compute_layout

_MARGIN = 28.0
_HEADING = 19.0
_LEGEND_ROW = 40.0
_LEAST_WIDTH = 360.0
_LEGEND = {
    Link.NEXT: "goes on",
    Link.CONDITION: "on a condition",
    Link.DECISION: "decision",
    Link.ANSWER: "answer at a checkpoint",
    Link.TRIGGER: "starts another workflow",
}
_ILLEGAL_IN_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


def draw_svg(graph: Graph) -> str:
    picture = compute_layout(graph)
    content = picture.bounds.right - picture.bounds.left
    width = max(content, _measure_legend(graph), _LEAST_WIDTH) + 2 * _MARGIN
    heading = list(_render_heading(graph, width))
    top = _MARGIN + 26 * sum("heading" in line for line in heading) + (36 if graph.subtitle else 12)
    legend = top + picture.bounds.bottom - picture.bounds.top + _LEGEND_ROW
    shift = f"translate({fmt((width - content) / 2 - picture.bounds.left)} {fmt(top - picture.bounds.top)})"
    elements = [
        *_render_opening(graph, width, legend + _MARGIN),
        *heading,
        f'<g transform="{shift}">',
        *(text for line in picture.lines for text in _render_line(line)),
        *(text for line in picture.lines if line.label for text in _render_label(line, line.label)),
        *(text for box in picture.boxes for text in _render_box(box)),
        "</g>",
        *_render_legend(graph, legend),
        "</svg>",
    ]
    return "\n".join(elements)


def _escape_text(value: str) -> str:
    return escape(_ILLEGAL_IN_XML.sub(" ", value))


def _render_opening(graph: Graph, width: float, height: float) -> Iterator[str]:
    key = re.sub(r"[^a-z0-9]+", "-", graph.title.lower()).strip("-") or "workflow"
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="fidelio-drawing" role="img" width="{fmt(width)}" '
        f'height="{fmt(height)}" viewBox="0 0 {fmt(width)} {fmt(height)}" '
        f'aria-labelledby="{key}-title {key}-desc">'
    )
    yield f'<title id="{key}-title">{_escape_text(graph.title)}</title>'
    yield f'<desc id="{key}-desc">{_escape_text(describe_graph(graph))}</desc>'
    yield f"<style>\n{render_stylesheet()}\n</style>"
    yield "<defs>"
    for link in Link:
        yield (
            f'<marker id="fidelio-tip-{link}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="9" markerHeight="9" '
            f'markerUnits="userSpaceOnUse" orient="auto"><path class="tip {link}" d="M0 .8 10 5 0 9.2 2 5z"/></marker>'
        )
    yield "</defs>"
    yield f'<rect class="paper" width="{fmt(width)}" height="{fmt(height)}" rx="12"/>'


def describe_graph(graph: Graph) -> str:
    """Describe the picture in sentences, for screen readers."""
    activities = [node for node in graph.nodes if node.shape is Shape.ACTIVITY]
    names = {node.id: node.title for node in graph.nodes}
    count = f"{len(activities)} {'activity' if len(activities) == 1 else 'activities'}."
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


def _render_line(line: Line) -> Iterator[str]:
    link = line.edge.link
    yield f'<path class="line {link}" d="{line.path}" marker-end="url(#fidelio-tip-{link})"/>'


def _render_label(line: Line, label: Label) -> Iterator[str]:
    rect = label.rect
    yield f"<g><title>{_escape_text(line.edge.label)}</title>"
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


def _render_box(box: Box) -> Iterator[str]:
    flawed = " flawed" if box.node.warning and box.node.shape is not Shape.MISSING else ""
    rect, (x, _) = box.rect, box.rect.middle
    height = rect.bottom - rect.top
    yield f'<g class="node {box.node.shape}{flawed}">'
    yield f"<title>{_escape_text(' · '.join(filter(None, (box.node.title, describe_node(box.node)))))}</title>"
    yield _render_card(box, 0, height / 2 if box.node.shape in (Shape.START, Shape.END) else 9)
    if box.node.shape is Shape.WORKFLOW:
        yield _render_card(box, 3.5, 6)
    y = rect.top + (height - TITLE_LINE * len(box.lines) - (17 if describe_node(box.node) else 0)) / 2 + 13.5
    for at, text in enumerate(box.lines):
        yield _render_centred(x, y + TITLE_LINE * at, text, f'font-size="{TITLE_SIZE}" font-weight="600"')
    yield from _render_note(box, x, y + TITLE_LINE * len(box.lines) - 1)
    yield "</g>"


def _render_card(box: Box, inset: float, radius: float) -> str:
    rect = box.rect
    return (
        f'<rect class="card" x="{fmt(rect.left + inset)}" y="{fmt(rect.top + inset)}" '
        f'width="{fmt(rect.right - rect.left - 2 * inset)}" height="{fmt(rect.bottom - rect.top - 2 * inset)}" '
        f'rx="{fmt(radius)}"/>'
    )


def _render_note(box: Box, x: float, y: float) -> Iterator[str]:
    note = describe_node(box.node)
    locked = box.node.marks.locked and not box.node.warning
    if note:
        yield _render_centred(x + (8 if locked else 0), y, note, f'class="muted" font-size="{NOTE_SIZE}"')
    if locked:
        left = x + 8 - text_width(note, NOTE_SIZE) / 2 - 14
        yield f'<path class="lock-bow" d="M{fmt(left + 2)} {fmt(y - 5)}v-2.2a2.8 2.8 0 0 1 5.6 0v2.2"/>'
        yield f'<rect class="lock" x="{fmt(left)}" y="{fmt(y - 5.4)}" width="9.6" height="6.6" rx="1.4"/>'


def _list_used_links(graph: Graph) -> list[Link]:
    return [link for link in Link if any(edge.link is link for edge in graph.edges)]


def _list_legend_entries(graph: Graph) -> list[tuple[Link | None, str]]:
    entries: list[tuple[Link | None, str]] = [(link, _LEGEND[link]) for link in _list_used_links(graph)]
    if any(node.marks.locked for node in graph.nodes):
        entries.append((None, "waits for an answer"))
    return entries if len(entries) > 1 else []


def _measure_legend(graph: Graph) -> float:
    return sum(text_width(words, NOTE_SIZE) + 56 for _, words in _list_legend_entries(graph)) - 20


def _render_legend(graph: Graph, y: float) -> Iterator[str]:
    x = _MARGIN
    for link, words in _list_legend_entries(graph):
        if link is None:
            yield f'<path class="lock-bow" d="M{fmt(x + 20)} {fmt(y - 5)}v-2.2a2.8 2.8 0 0 1 5.6 0v2.2"/>'
            yield f'<rect class="lock" x="{fmt(x + 18)}" y="{fmt(y - 5.4)}" width="9.6" height="6.6" rx="1.4"/>'
        else:
            tip = f'marker-end="url(#fidelio-tip-{link})"'
            yield f'<path class="line {link}" d="M{fmt(x)} {fmt(y - 4)}h26" {tip}/>'
        yield f'<text class="muted" x="{fmt(x + 32)}" y="{fmt(y)}" font-size="{NOTE_SIZE}">{_escape_text(words)}</text>'
        x += text_width(words, NOTE_SIZE) + 56


FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'Liberation Sans', sans-serif"


@dataclass(frozen=True, slots=True)
class Palette:
    """A set of colours with sufficient contrast to the background."""

    paper: str
    ink: str
    muted: str
    card: str
    rim: str
    solid: str
    on_solid: str
    warning: str
    warning_card: str
    lock: str
    links: dict[Link, str]


LIGHT = Palette(
    paper="#ffffff",
    ink="#1e293b",
    muted="#5b6778",
    card="#f8fafc",
    rim="#b6c2d1",
    solid="#334155",
    on_solid="#ffffff",
    warning="#b42318",
    warning_card="#fef3f2",
    lock="#b54708",
    links={
        Link.NEXT: "#475569",
        Link.CONDITION: "#6b7a90",
        Link.DECISION: "#0f766e",
        Link.ANSWER: "#4f46e5",
        Link.TRIGGER: "#9333ea",
    },
)

DARK = Palette(
    paper="#0f172a",
    ink="#e2e8f0",
    muted="#9fb0c6",
    card="#1e293b",
    rim="#51627b",
    solid="#cbd5e1",
    on_solid="#0f172a",
    warning="#fda29b",
    warning_card="#3b1614",
    lock="#fdb022",
    links={
        Link.NEXT: "#cbd5e1",
        Link.CONDITION: "#94a3b8",
        Link.DECISION: "#5eead4",
        Link.ANSWER: "#a5b4fc",
        Link.TRIGGER: "#d8b4fe",
    },
)

_DASHES = {Link.TRIGGER: "2 4", Link.ANSWER: "6 4"}


def render_stylesheet() -> str:
    dark = "\n".join(f"  {rule}" for rule in _list_colour_rules(DARK))
    rules = [*_list_size_rules(), *_list_colour_rules(LIGHT)]
    return "\n".join(rules) + f"\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}"


def _list_size_rules() -> list[str]:
    dashes = [_render_rule(f".line.{link}", f"stroke-dasharray: {dash}") for link, dash in _DASHES.items()]
    return [
        _render_rule("text", f"font-family: {FONT}"),
        _render_rule(".line", "fill: none; stroke-width: 1.4"),
        _render_rule(".line.next", "stroke-width: 1.9"),
        _render_rule(".card", "stroke-width: 1.2"),
        _render_rule(".missing .card, .flawed .card", "stroke-dasharray: 5 4"),
        *dashes,
    ]


def _list_colour_rules(palette: Palette) -> list[str]:
    links = [rule for link, colour in palette.links.items() for rule in _list_link_rules(link, colour)]
    return [
        _render_rule(".paper, .chip", f"fill: {palette.paper}"),
        _render_rule("text", f"fill: {palette.ink}"),
        _render_rule(".muted", f"fill: {palette.muted}"),
        _render_rule(".card", f"fill: {palette.card}; stroke: {palette.rim}"),
        _render_rule(".start .card", f"fill: {palette.solid}; stroke: {palette.solid}"),
        _render_rule(".start text", f"fill: {palette.on_solid}"),
        _render_rule(".end .card", f"fill: {palette.paper}; stroke: {palette.solid}; stroke-width: 2"),
        _render_rule(".workflow .card", f"stroke: {palette.links[Link.TRIGGER]}"),
        _render_rule(".missing .card, .flawed .card", f"fill: {palette.warning_card}; stroke: {palette.warning}"),
        _render_rule(".missing text, .flawed .muted", f"fill: {palette.warning}"),
        _render_rule(".lock", f"fill: {palette.lock}"),
        _render_rule(".lock-bow", f"fill: none; stroke: {palette.lock}; stroke-width: 1.6"),
        *links,
    ]


def _list_link_rules(link: Link, colour: str) -> list[str]:
    return [
        _render_rule(f".line.{link}", f"stroke: {colour}"),
        _render_rule(f".tip.{link}, text.{link}", f"fill: {colour}"),
    ]


def _render_rule(selectors: str, body: str) -> str:
    confined = ", ".join(f".fidelio-drawing {selector.strip()}" for selector in selectors.split(","))
    return f"{confined} {{ {body} }}"
