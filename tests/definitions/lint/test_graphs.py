"""Questions about ways: right for small graphs, and still answered for large ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fidelio.definitions.flow import Adjacency, find_reachable
from fidelio.definitions.lint.transitions import find_cycles, reverse_edges
from tests.definitions.drawing.workflows import way
from tests.definitions.lint.test_flow_rules import found
from tests.support import proves

_NAMES = "abcdef"
graphs = st.dictionaries(st.sampled_from(_NAMES), st.sets(st.sampled_from(_NAMES)))


class Counted:
    """A list of targets that notes how often one of them is looked at."""

    looks = 0

    def __init__(self, targets: list[str]) -> None:
        self._targets = targets

    def __iter__(self) -> Iterator[str]:
        for target in self._targets:
            Counted.looks += 1
            yield target

    def __contains__(self, name: str) -> bool:
        return name in list(self)


def ahead(name: str, ways: Adjacency) -> set[str]:
    """What can be reached in one step or more."""
    return find_reachable(ways.get(name, ()), ways)


@proves("lint.way-out")
@given(graphs)
def test_a_circle_is_everybody_who_comes_back_to_each_other(ways: dict[str, set[str]]) -> None:
    expected = {frozenset(b for b in ahead(a, ways) if a in ahead(b, ways)) for a in ways if a in ahead(a, ways)}

    assert {frozenset(circle) for circle in find_cycles(ways)} == expected
    assert sum(map(len, find_cycles(ways))) == len(set().union(*find_cycles(ways)))


@proves("lint.large")
def test_no_way_is_looked_at_more_than_a_few_times() -> None:
    count = 2000
    ways = {str(i): Counted([str((i + 1) % count), str((i * 7) % count)]) for i in range(count)}
    Counted.looks = 0
    find_cycles(ways)
    find_reachable(["0"], reverse_edges(ways))

    assert Counted.looks <= 5 * 2 * count


@proves("lint.large", "lint.way-out")
def test_a_workflow_of_thousands_is_linted(tmp_path: Path) -> None:
    count = 1500
    chain: list[dict[str, Any]] = [{"id": f"a{i}", "transitions": [way(f"a{i + 1}")]} for i in range(count)]
    last = {"id": f"a{count}", "transitions": [way("a1")]}
    [finding] = found(tmp_path, *chain, last)

    assert finding.rule == "no-way-out"
    assert "a1, a2, " in finding.sentence
    assert "a0" not in finding.sentence.split(", ")
