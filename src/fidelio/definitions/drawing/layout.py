"""Compute the layout of a graph: layers, order, coordinates and lines."""

from __future__ import annotations

from fidelio.definitions.drawing.back_edges import BackEdgeRouter
from fidelio.definitions.drawing.coordinates import Band, compute_bands, compute_x, order_layers
from fidelio.definitions.drawing.geometry import Box, Label, Line, Picture, Point, Rect, curve_path, rounded_path
from fidelio.definitions.drawing.graph import Edge, Graph
from fidelio.definitions.drawing.layers import LOOP_WIDTH, Net, Slot, build_net, compute_layers, measure_label, wrap_label

_ARROW_TIP = 1.5


def compute_layout(graph: Graph) -> Picture:
    layering = compute_layers(graph)
    net = build_net(graph, layering)
    rows = order_layers(net)
    x = compute_x(net, rows)
    bands = compute_bands(net, rows, x, 0.0)
    boxes = {name: _make_box(net.slots[index], x[index], bands) for name, index in net.slot_of.items()}
    forward = [_draw_forward_edge(edge, chain, net, x, bands) for edge, chain in net.chains]
    loops = [_draw_loop(edge, boxes[edge.source]) for edge in layering.loops]
    taken = _list_occupied_areas(net, x, bands)
    bands_of = {name: bands[net.slots[index].layer] for name, index in net.slot_of.items()}
    back = BackEdgeRouter(boxes, bands_of, taken).route_edges(layering.back)
    lines = (*forward, *loops, *back)
    return Picture(tuple(boxes.values()), lines, _compute_bounds([*taken, *(line.label.rect for line in lines if line.label)]))


def _make_box(slot: Slot, x: float, bands: list[Band]) -> Box:
    assert slot.node is not None
    middle = bands[slot.layer].middle
    rect = Rect(x - slot.right, middle - slot.height / 2, x + slot.right, middle + slot.height / 2)
    return Box(slot.node, rect, slot.lines)


def _draw_forward_edge(edge: Edge, chain: tuple[int, ...], net: Net, x: list[float], bands: list[Band]) -> Line:
    first, *between, last = chain
    start, end = bands[net.slots[first].layer], bands[net.slots[last].layer]
    half, end_half = net.slots[first].height / 2, net.slots[last].height / 2
    points: list[Point] = [(x[first], start.middle + half), (x[first], start.bottom)]
    for index in between:
        band = bands[net.slots[index].layer]
        points += [(x[index], band.top), (x[index], band.bottom)]
    tip = end.middle - end_half - _ARROW_TIP
    points += [(x[last], min(tip, end.top)), (x[last], tip)]
    return Line(edge, curve_path(points), _make_label(net, between, x, bands))


def _make_label(net: Net, between: list[int], x: list[float], bands: list[Band]) -> Label | None:
    for index in between:
        slot = net.slots[index]
        if slot.lines:
            middle = bands[slot.layer].middle
            rect = Rect(x[index] - slot.left, middle - slot.height / 2, x[index] + slot.right, middle + slot.height / 2)
            return Label(slot.lines, rect)
    return None


def _draw_loop(edge: Edge, box: Box) -> Line:
    """Draw an edge from a node to itself at the left, where there are no edges that lead back."""
    left, (_, middle) = box.rect.left, box.rect.middle
    outer = left - LOOP_WIDTH + 6
    points = [(left, middle + 11), (outer, middle + 11), (outer, middle - 11), (left - _ARROW_TIP, middle - 11)]
    lines = wrap_label(edge)
    width, height = measure_label(lines)
    rect = Rect(outer - 4 - width, middle - height / 2, outer - 4, middle + height / 2)
    return Line(edge, rounded_path(points), Label(lines, rect) if lines else None)


def _list_occupied_areas(net: Net, x: list[float], bands: list[Band]) -> list[Rect]:
    """The areas of the slots, and between the layers the areas that the edges cross."""
    inside = [
        Rect(x[index] - slot.left, bands[slot.layer].top, x[index] + slot.right, bands[slot.layer].bottom)
        for index, slot in enumerate(net.slots)
    ]
    between = []
    for joint in net.joints:
        left, right = sorted((x[joint.upper], x[joint.lower]))
        upper, lower = bands[net.slots[joint.upper].layer], bands[net.slots[joint.lower].layer]
        between.append(Rect(left, upper.bottom, right, lower.top))
    return inside + between


def _compute_bounds(rects: list[Rect]) -> Rect:
    if not rects:
        return Rect(0, 0, 0, 0)
    return Rect(
        min(rect.left for rect in rects),
        min(rect.top for rect in rects),
        max(rect.right for rect in rects),
        max(rect.bottom for rect in rects),
    )
