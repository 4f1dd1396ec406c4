"""Draw a workflow as plain text: a line for each activity and, below it, a line for each outgoing edge.

Activities are in the order of the flow. A terminal without Unicode gets ASCII signs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass
from textwrap import wrap

from fidelio.definitions.drawing.graph import Edge, Graph, Link, Node, Shape, describe_marks
from fidelio.definitions.drawing.layers import compute_layers
from fidelio.definitions.wording import to_ascii


@dataclass(frozen=True, slots=True)
class Signs:
    """The characters of the drawing."""

    start: str
    activity: str
    flawed: str
    branch: str
    last_branch: str
    rail: str
    arrow: str
    back: str
    trigger: str
    lock: str
    dot: str


UNICODE = Signs("◉", "●", "✗", "├─", "└─", "│ ", "→", "↺", "⇒", "⚿", "·")
ASCII = Signs("(*)", "*", "x", "|-", "`-", "| ", "->", "<-", "=>", "!", "-")


def choose_signs(encoding: str | None) -> Signs:
    """Signs that a terminal with this encoding can show."""
    try:
        "".join(astuple(UNICODE)).encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return UNICODE


def draw_text(graph: Graph, width: int = 80, *, signs: Signs = UNICODE) -> str:
    """Draw at most `width` columns; longer lines are continued on the next line."""
    layering = compute_layers(graph)
    back = {*layering.back, *layering.loops}
    order = sorted(enumerate(graph.nodes), key=lambda pair: (layering.layer[pair[1].id], pair[0]))
    lines: list[str] = []
    for _, node in order:
        if node.shape in (Shape.START, Shape.ACTIVITY):
            lines.extend(_render_block(graph, node, back, width, signs))
    text = "\n".join(lines)
    return text if signs is UNICODE else to_ascii(text)


def _render_block(graph: Graph, node: Node, back: set[Edge], width: int, signs: Signs) -> Iterator[str]:
    outgoing = graph.outgoing(node.id)
    if node.shape is Shape.START:
        yield from (_wrap_line(f"{signs.start} {signs.arrow} {graph.node(e.target).title}", "", width) for e in outgoing)
        return
    yield _wrap_line(_render_head(node, signs), "", width)
    for edge in outgoing:
        last = edge is outgoing[-1]
        rail = "   " if last else signs.rail + " "
        first = f"{signs.last_branch if last else signs.branch} "
        yield _wrap_line(first + _render_edge(graph, edge, signs, leads_back=edge in back), rail + "   ", width)


def _render_head(node: Node, signs: Signs) -> str:
    if node.warning:
        return f"{signs.flawed} {node.title} ({node.warning})"
    lock = f" {signs.lock}" if node.marks.locked else ""
    marks = f" {signs.dot} ".join(describe_marks(node.marks))
    return f"{signs.activity} {node.title}{lock}" + (f"  {marks}" if marks else "")


def _render_edge(graph: Graph, edge: Edge, signs: Signs, *, leads_back: bool) -> str:
    target = graph.node(edge.target)
    arrow = signs.back if leads_back else signs.trigger if edge.link is Link.TRIGGER else signs.arrow
    name = f"{target.title} ({target.warning})" if target.shape is Shape.MISSING else target.title
    label = "" if edge.link is Link.TRIGGER else edge.label
    return f"{arrow} {name}" + (f": {label}" if label else "")


def _wrap_line(line: str, indent: str, width: int) -> str:
    wrapped = wrap(line, max(width, 20), subsequent_indent=indent or "    ", break_on_hyphens=False, drop_whitespace=True)
    return "\n".join(wrapped)
