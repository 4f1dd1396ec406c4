"""From a graph to a picture: layers, order, places, lines."""

from __future__ import annotations

from collections.abc import Iterable

from fidelio.definitions.drawing.back_edges import Lanes
from fidelio.definitions.drawing.coordinates import Band, across, down
from fidelio.definitions.drawing.graph import Edge, Graph
from fidelio.definitions.drawing.layering import layering_of
from fidelio.definitions.drawing.ordering import ordered_layers
from fidelio.definitions.drawing.shapes import Box, Label, Line, Picture, Point, Rect, curve, rounded
from fidelio.definitions.drawing.slots import LOOP_REACH, Net, Slot, label_lines, label_size, net_of

_ARROW_TIP = 1.5


def picture_of(graph: Graph) -> Picture:
    layering = layering_of(graph)
    net = net_of(graph, layering)
    rows = ordered_layers(net)
    x = across(net, rows)
    bands = down(net, rows, x, 0.0)
    boxes = {name: _box(net.slots[index], x[index], bands) for name, index in net.place.items()}
    forward = [_forward(edge, chain, net, x, bands) for edge, chain in net.chains]
    loops = [_loop(edge, boxes[edge.source]) for edge in layering.loops]
    taken = _taken(net, x, bands)
    bands_of = {name: bands[net.slots[index].layer] for name, index in net.place.items()}
    back = Lanes(boxes, bands_of, taken).lines(layering.back)
    lines = (*forward, *loops, *back)
    return Picture(tuple(boxes.values()), lines, _bounds([*taken, *_extra(lines)]))


def _box(slot: Slot, x: float, bands: list[Band]) -> Box:
    assert slot.node is not None
    middle = bands[slot.layer].middle
    rect = Rect(x - slot.right, middle - slot.height / 2, x + slot.right, middle + slot.height / 2)
    return Box(slot.node, rect, slot.lines)


def _forward(edge: Edge, chain: tuple[int, ...], net: Net, x: list[float], bands: list[Band]) -> Line:
    first, *between, last = chain
    start, end = bands[net.slots[first].layer], bands[net.slots[last].layer]
    half, end_half = net.slots[first].height / 2, net.slots[last].height / 2
    points: list[Point] = [(x[first], start.middle + half), (x[first], start.bottom)]
    for index in between:
        band = bands[net.slots[index].layer]
        points += [(x[index], band.top), (x[index], band.bottom)]
    tip = end.middle - end_half - _ARROW_TIP
    points += [(x[last], min(tip, end.top)), (x[last], tip)]
    return Line(edge, curve(points), _label(net, between, x, bands))


def _label(net: Net, between: list[int], x: list[float], bands: list[Band]) -> Label | None:
    for index in between:
        slot = net.slots[index]
        if slot.lines:
            middle = bands[slot.layer].middle
            rect = Rect(x[index] - slot.left, middle - slot.height / 2, x[index] + slot.right, middle + slot.height / 2)
            return Label(slot.lines, rect)
    return None


def _loop(edge: Edge, box: Box) -> Line:
    """An edge from a node to itself, at the left, where no edge that leads back comes along."""
    left, (_, middle) = box.rect.left, box.rect.middle
    reach = left - LOOP_REACH + 6
    points = [(left, middle + 11), (reach, middle + 11), (reach, middle - 11), (left - _ARROW_TIP, middle - 11)]
    lines = label_lines(edge)
    width, height = label_size(lines)
    rect = Rect(reach - 4 - width, middle - height / 2, reach - 4, middle + height / 2)
    return Line(edge, rounded(points), Label(lines, rect) if lines else None)


def _taken(net: Net, x: list[float], bands: list[Band]) -> list[Rect]:
    """What is drawn in the layers, and between them the strips through which the edges run."""
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


def _extra(lines: Iterable[Line]) -> list[Rect]:
    return [line.label.rect for line in lines if line.label]


def _bounds(rects: list[Rect]) -> Rect:
    if not rects:
        return Rect(0, 0, 0, 0)
    return Rect(
        min(rect.left for rect in rects),
        min(rect.top for rect in rects),
        max(rect.right for rect in rects),
        max(rect.bottom for rect in rects),
    )
