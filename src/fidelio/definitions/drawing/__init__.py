"""Draw workflows as Mermaid, SVG and plain text, without external programs."""

from fidelio.definitions.drawing.graph import Edge, Graph, Link, Marks, Node, Shape, build_graph
from fidelio.definitions.drawing.mermaid import draw_mermaid
from fidelio.definitions.drawing.svg import draw_svg
from fidelio.definitions.drawing.text import ASCII, UNICODE, Signs, choose_signs, draw_text

__all__ = [
    "ASCII",
    "UNICODE",
    "Edge",
    "Graph",
    "Link",
    "Marks",
    "Node",
    "Shape",
    "Signs",
    "build_graph",
    "choose_signs",
    "draw_mermaid",
    "draw_svg",
    "draw_text",
]
