"""Draw a workflow as a Mermaid flowchart.

Ids in definitions are free text, and words such as `end` are reserved in Mermaid. So nodes get numbered names, and every text
is quoted, with entities for characters that Mermaid would read as syntax.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from fidelio.definitions.drawing.graph import Edge, Graph, Link, Node, Shape, describe_marks

_SHAPES = {
    Shape.START: '(["{}"])',
    Shape.END: '(["{}"])',
    Shape.ACTIVITY: '("{}")',
    Shape.WORKFLOW: '[["{}"]]',
    Shape.MISSING: '["{}"]',
}
_ARROWS = {
    Link.NEXT: "==>",
    Link.CONDITION: "-->",
    Link.DECISION: "-->",
    Link.ANSWER: "-.->",
    Link.TRIGGER: "-.->",
}
_WARNING_CLASS = "classDef flawed stroke:#b42318,stroke-width:1.5px,stroke-dasharray:5 4"
_LOCK = "\N{LOCK}"
_UNESCAPED = frozenset(" .,:'?!/+-()=%")
# Mermaid refuses a text that begins like a list item, because it would read it as Markdown.
_LIST_MARK = re.compile(r"(?:\d+[.)]|[-+])(?=\s)")


def draw_mermaid(graph: Graph) -> str:
    names = {node.id: f"n{number}" for number, node in enumerate(graph.nodes)}
    lines = [*_render_front_matter(graph), "flowchart TD"]
    lines += [f"    {names[node.id]}{_SHAPES[node.shape].format(_render_node(node))}" for node in graph.nodes]
    lines += [f"    {_render_edge(edge, names)}" for edge in graph.edges]
    lines += [f"    {line}" for line in _render_warnings(graph, names)]
    return "\n".join(lines)


def _render_front_matter(graph: Graph) -> Iterator[str]:
    title = graph.title.replace("\\", "\\\\").replace('"', '\\"')
    yield from ("---", f'title: "{" ".join(title.split())}"', "---")


def _render_node(node: Node) -> str:
    note = node.warning or " · ".join(describe_marks(node.marks))
    lock = f"{_LOCK} " if node.marks.locked and not node.warning else ""
    return escape_text(node.title) + (f"<br>{lock}{escape_text(note)}" if note else "")


def _render_edge(edge: Edge, names: dict[str, str]) -> str:
    label = f'|"{escape_text(edge.label)}"|' if edge.label else ""
    return f"{names[edge.source]} {_ARROWS[edge.link]}{label} {names[edge.target]}"


def _render_warnings(graph: Graph, names: dict[str, str]) -> Iterator[str]:
    flawed = [names[node.id] for node in graph.nodes if node.warning]
    if flawed:
        yield _WARNING_CLASS
        yield f"class {','.join(flawed)} flawed"


def escape_text(text: str) -> str:
    """Escape all characters except letters, digits and safe punctuation as entities in the form that Mermaid decodes."""
    plain = " ".join(text.split())
    mark = _LIST_MARK.match(plain)
    after_mark = mark.end() if mark else 0
    return "".join(_escape_character(c, _UNESCAPED if at >= after_mark else frozenset()) for at, c in enumerate(plain))


def _escape_character(character: str, unescaped: frozenset[str]) -> str:
    is_safe = character.isalnum() or character in unescaped or ord(character) >= 0x80
    return character if is_safe else f"#{ord(character)};"
