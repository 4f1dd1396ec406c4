"""Who may begin next, for any crowd."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from fidelio.ledger.model import Job
from fidelio.orchestrator.runs.admission import Admission, slot_key
from tests.support import proves

PROJECTS = ("a", "b", "c")


def job(run: str, project: str = "a", depth: int = 0, *, attempts: int = 0) -> Job:
    payload = {"run": run, "project": project, "depth": depth}
    return Job(f"j_{run}", "agent.run", f"s_{run}", payload, 0, attempts, "queued", "", "", 0, 0)


@st.composite
def crowds(draw: st.DrawFn) -> list[Job]:
    chosen = draw(st.lists(st.tuples(st.sampled_from(PROJECTS), st.integers(0, 2)), max_size=30))
    return [job(f"r{number}", project, depth) for number, (project, depth) in enumerate(chosen)]


@proves("orchestrator.fair")
@given(crowds(), st.integers(1, 4), st.integers(1, 6), st.data())
def test_no_more_than_allowed_are_active_and_every_run_is_admitted(
    crowd: list[Job], per_project: int, total: int, data: st.DataObject
) -> None:
    admission = Admission(per_project=per_project, total=total)
    waiting, working = list(crowd), list[Job]()
    while True:
        new = admission.admit(waiting, working)
        working += new
        waiting = [one for one in waiting if one not in new]
        assert admission.admit(waiting, working) == []
        assert max(Counter(map(slot_key, working)).values(), default=0) <= per_project
        assert max(Counter(slot_key(one).depth for one in working).values(), default=0) <= total
        if not working:
            break
        working.remove(data.draw(st.sampled_from(working)))

    assert waiting == []


@proves("orchestrator.fair")
@given(crowds())
def test_runs_of_one_project_and_depth_begin_in_the_order_they_were_asked_for(crowd: list[Job]) -> None:
    order = Admission(per_project=100, total=100).admit(crowd, ())

    for key in set(map(slot_key, crowd)):
        assert [one for one in order if slot_key(one) == key] == [one for one in crowd if slot_key(one) == key]


@proves("orchestrator.fair")
@given(st.integers(2, 50), st.integers(1, 5))
def test_a_project_with_many_runs_does_not_keep_another_from_its_next(many: int, few: int) -> None:
    admission = Admission(per_project=100, total=1)
    waiting = [*(job(f"a{number}", "a") for number in range(many)), *(job(f"b{number}", "b") for number in range(few))]
    order = []
    while waiting:
        (one,) = admission.admit(waiting, ())
        order.append(slot_key(one).project)
        waiting.remove(one)

    # While both wait, they take turns.
    assert order[: 2 * min(many, few)] == ["a", "b"] * min(many, few)


@proves("orchestrator.fair")
def test_a_project_that_always_has_one_run_does_not_keep_another_from_its_next() -> None:
    admission = Admission(per_project=1, total=1)
    order = [slot_key(admission.admit([job("b", "b"), job("a", "a")], ())[0]).project for _ in range(6)]

    assert order == ["b", "a"] * 3


@proves("orchestrator.no-deadlock")
def test_a_child_gets_a_slot_although_parents_occupy_all_of_theirs() -> None:
    parent, other, child = job("parent"), job("other"), job("child", depth=1)

    assert Admission(per_project=1, total=1).admit([parent, other, child], ()) == [parent, child]


@proves("orchestrator.fair")
def test_a_run_that_was_admitted_before_continues_above_the_limit_and_occupies_a_slot() -> None:
    admission = Admission(per_project=1, total=1)
    one, two, three = job("one", attempts=1), job("two", attempts=1), job("three")

    assert admission.admit([one, two, three], ()) == [one, two]
    assert admission.admit([three], [two]) == []
    assert admission.admit([three], ()) == [three]


@proves("orchestrator.fair")
def test_a_job_without_a_project_was_admitted_by_an_earlier_version() -> None:
    old = Job("j", "agent.run", "s", {"run": "r"}, 0, 0, "queued", "", "", 0, 0)
    admission = Admission(per_project=1, total=1)

    assert admission.admit([job("new"), old], [job("other")]) == [old]
    assert admission.admit([job("new")], [old]) == []
