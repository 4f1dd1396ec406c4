"""Who may begin next, for any crowd."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from fidelio.orchestrator.runs.admission import Admission, Candidate
from tests.support import proves

PROJECTS = ("a", "b", "c")


@st.composite
def crowds(draw: st.DrawFn) -> list[Candidate]:
    chosen = draw(st.lists(st.tuples(st.sampled_from(PROJECTS), st.integers(0, 2)), max_size=30))
    return [
        Candidate(run=f"r{number}", session="s", project=place, depth=depth) for number, (place, depth) in enumerate(chosen)
    ]


def admitted(admission: Admission) -> list[Candidate]:
    return list(iter(admission.admit, None))


@proves("orchestrator.fair")
@given(crowds(), st.integers(1, 4), st.integers(1, 6), st.data())
def test_no_more_than_allowed_are_active_and_every_run_is_admitted(
    crowd: list[Candidate], per_project: int, total: int, data: st.DataObject
) -> None:
    admission = Admission(per_project=per_project, total=total)
    for candidate in crowd:
        admission.enqueue(candidate)
    working: list[Candidate] = []
    order: list[Candidate] = []
    while True:
        new = admitted(admission)
        working += new
        order += new
        assert max(Counter((one.project, one.depth) for one in working).values(), default=0) <= per_project
        assert max(Counter(one.depth for one in working).values(), default=0) <= total
        if not working:
            break
        done = data.draw(st.sampled_from(working))
        working.remove(done)
        admission.release(done.run)

    assert sorted(one.run for one in order) == sorted(one.run for one in crowd)
    assert (admission.queued_count, admission.occupied_count) == (0, 0)


@proves("orchestrator.fair")
@given(crowds())
def test_runs_of_one_project_and_depth_begin_in_the_order_they_were_asked_for(crowd: list[Candidate]) -> None:
    admission = Admission(per_project=100, total=100)
    for candidate in crowd:
        admission.enqueue(candidate)
    order = admitted(admission)

    for place in {(one.project, one.depth) for one in crowd}:
        assert [one for one in order if (one.project, one.depth) == place] == [
            one for one in crowd if (one.project, one.depth) == place
        ]


@proves("orchestrator.fair")
@given(st.integers(2, 50), st.integers(1, 5))
def test_a_project_with_many_runs_does_not_keep_another_from_its_next(many: int, few: int) -> None:
    admission = Admission(per_project=100, total=1)
    for number in range(many):
        admission.enqueue(Candidate(run=f"a{number}", session="s", project="a", depth=0))
    for number in range(few):
        admission.enqueue(Candidate(run=f"b{number}", session="s", project="b", depth=0))
    order = []
    while (one := admission.admit()) is not None:
        order.append(one.project)
        admission.release(one.run)

    # While both wait, they take turns.
    assert order[: 2 * min(many, few)] == ["a", "b"] * min(many, few)


@proves("orchestrator.no-deadlock")
def test_a_child_gets_a_slot_although_parents_occupy_all_of_theirs() -> None:
    admission = Admission(per_project=1, total=1)
    admission.enqueue(Candidate(run="parent", session="s", project="a", depth=0))
    admission.enqueue(Candidate(run="other", session="s", project="a", depth=0))
    admission.enqueue(Candidate(run="child", session="s", project="a", depth=1))

    assert [one.run for one in admitted(admission)] == ["parent", "child"]


@proves("orchestrator.fair")
def test_a_run_that_is_adopted_occupies_a_slot_above_the_limit() -> None:
    admission = Admission(per_project=1, total=1)
    for run in ("one", "two"):
        admission.occupy(Candidate(run=run, session="s", project="a", depth=0))
    admission.enqueue(Candidate(run="three", session="s", project="a", depth=0))

    assert admission.admit() is None
    admission.release("one")
    assert admission.admit() is None
    admission.release("two")
    assert [one.run for one in admitted(admission)] == ["three"]


@proves("orchestrator.stop-queued")
def test_a_run_that_left_the_queue_is_not_admitted() -> None:
    admission = Admission(per_project=1, total=1)
    admission.enqueue(Candidate(run="one", session="s", project="a", depth=0))
    admission.withdraw("one")

    assert admission.admit() is None
    assert admission.queued_count == 0
