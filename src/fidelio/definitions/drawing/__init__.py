"""Pictures of workflows: Mermaid, SVG and plain text, without any service or other program."""

from fidelio.definitions.drawing.building import graph_of
from fidelio.definitions.drawing.graph import Edge, Graph, Link, Marks, Node, Shape
from fidelio.definitions.drawing.mermaid import draw_mermaid
from fidelio.definitions.drawing.svg import draw_svg
from fidelio.definitions.drawing.text import ASCII, UNICODE, Signs, draw_text, signs_for

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
    "draw_mermaid",
    "draw_svg",
    "draw_text",
    "graph_of",
    "signs_for",
]
