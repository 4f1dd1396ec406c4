"""Whatever an agent does alone: it does not leave an activity past a question for a person that may apply.

The oracle is simpler than the rule. It keeps the values of the time when each question was asked, and looks at them when the
activity has been left.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from fidelio.definitions.conditions import holds
from fidelio.definitions.models import Workflow
from fidelio.engine.answers import AnswerChoice, AnswerContext, Resolution, resolve_answer
from fidelio.engine.apply_move import MoveActor, MoveRequest, apply_move
from fidelio.engine.checkpoints import find_checkpoints_to_arm, find_instance
from fidelio.engine.moves import describe_situation
from fidelio.engine.person_checkpoints import refuse_unanswered
from fidelio.engine.record import ANSWERED, ARMED, VARIABLES_SET, YIELDED, EventDraft, Record, fold_drafts
from fidelio.engine.scope import collect_values
from fidelio.engine.transition_events import draft_transition
from tests.engine.builders import (
    NOW,
    activity,
    answered,
    at,
    checkpoint,
    entered,
    loop,
    option,
    started,
    step,
    to,
    told,
    variable,
    when,
    workflow,
    yielded,
)
from tests.support import proves

AGENT = MoveActor("agent:worker")
CONTEXT = AnswerContext(NOW + 1_000_000)
NAMES = ("a", "b")
EFFECTS: list[Any] = [{}, {"setVariable": {"a": False}}, {"setVariable": {"b": True}}, {"transitionTo": "two"}]
DEFAULTS: list[Any] = [{}, {"defaultValue": True}, {"defaultValue": False}]
conditions = st.none() | st.builds(when, st.sampled_from(NAMES), st.just(True))


@st.composite
def definitions(draw: Any) -> Workflow:
    """An activity with questions for people and for anybody, attached to steps or not."""
    questions, steps = [], []
    for number in range(draw(st.integers(1, 3))):
        name, parts = f"c{number}", {}
        if draw(st.booleans()):
            parts["answered_by"] = "person"
        if (condition := draw(conditions)) is not None:
            parts["condition"] = condition
        effect = draw(
            st.sampled_from([{}, {"setVariable": {"a": False}}, {"setVariable": {"b": True}}, {"transitionTo": "two"}])
        )
        questions.append(checkpoint(name, option("yes", **effect), **parts))
        if draw(st.booleans()):
            required = draw(st.booleans())
            steps.append(step(f"s{number}", checkpoint=name, required=required))
    steps.append(step("last"))
    declared = [
        variable(name, **draw(st.sampled_from([{}, {"defaultValue": True}, {"defaultValue": False}]))) for name in NAMES
    ]
    return workflow(
        activity("one", steps=steps, checkpoints=questions, transitions=[to("two")]), activity("two"), variables=declared
    )


@dataclass
class Agent:
    """Makes moves of all dialects, without a person. `asked` has the values of the time when each question was opened."""

    definition: Workflow
    record: Record
    asked: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add(self, drafts: list[EventDraft]) -> None:
        for draft in drafts:
            before = self.record
            self.record = fold_drafts(before, [draft], NOW)
            for opened in self.record.pending:
                if before.find_pending(opened.checkpoint) is None:
                    self.asked[opened.checkpoint] = collect_values(self.definition, before)

    def report(self, values: dict[str, bool]) -> None:
        self.add([told(**values)] if values else [])

    def open_one(self, number: int) -> None:
        name = f"c{number}"
        known = any(one.id == name for one in self.definition.activities[0].checkpoints)
        if self.record.waiting is not None or not known:
            return
        if self.record.find_answer_of(find_instance(self.definition, self.record, name)) is None:
            self.add([EventDraft(YIELDED, {"checkpoint": name, "request": f"{name}{self.record.seq}"})])

    def arm(self, _: int) -> None:
        found = find_checkpoints_to_arm(self.definition, self.record)
        entries = [{"checkpoint": one.id, "request": f"{one.id}{self.record.seq}"} for one, _, _ in found]
        self.add([EventDraft(ARMED, {"checkpoints": entries})] if entries else [])

    def answer(self, number: int) -> None:
        choice = (AnswerChoice("yes"), AnswerChoice(condition_not_met=True), AnswerChoice(auto_advance=True))[number % 3]
        found = resolve_answer(self.definition, self.record, choice, CONTEXT)
        if isinstance(found, Resolution) and not found.repeated:
            self.add([EventDraft(ANSWERED, found.body(by="agent:w", channel="relayed", assurance="relayed"))])

    def make_offered(self, number: int) -> None:
        offered = describe_situation(self.definition, self.record, now=CONTEXT.now).offered
        if offered:
            move = offered[number % len(offered)]
            request = MoveRequest(move.action, move.target, (*move.options, "")[0], output="done")
            drafts = apply_move(self.definition, self.record, request, CONTEXT, AGENT)
            self.add(drafts if isinstance(drafts, list) else [])

    def leave(self, number: int) -> None:
        """What next_activity does at the level `advise`: any target, any manifest."""
        if self.record.waiting is not None:
            return
        drafts = draft_transition(self.definition, self.record, ("two", "__terminal__", "one")[number % 3])
        reported = [step.id for step in self.definition.activities[0].steps][:number]
        if refuse_unanswered(self.definition, self.record, drafts, reported=reported) is None:
            self.add(drafts)


MOVES = st.one_of(
    st.tuples(st.just("report"), st.dictionaries(st.sampled_from(NAMES), st.booleans(), max_size=2)),
    st.tuples(st.sampled_from(["open_one", "arm", "answer", "make_offered", "leave"]), st.integers(0, 2)),
)


# At the end it gets rid of whatever waits, as far as it can, and goes.
TRY_TO_LEAVE = [("answer", 1), ("answer", 0)] * 3 + [("leave", 0), ("leave", 1)]


@proves("engine.person-leaves", "engine.person-asked")
@given(definitions(), st.dictionaries(st.sampled_from(NAMES), st.booleans()), st.lists(MOVES, max_size=8))
@settings(max_examples=200, deadline=None)
def test_an_agent_alone_never_leaves_a_question_for_a_person_behind(
    definition: Workflow, known: dict[str, bool], moves: list[tuple[str, Any]]
) -> None:
    agent = Agent(definition, at("one", *([told(**known)] if known else [])))
    for name, argument in [*moves, *TRY_TO_LEAVE]:
        before = agent.record
        getattr(agent, name)(argument)
        if agent.record.activity == "one" and not agent.record.ended:
            continue
        event(f"left by {name}")
        for question in definition.activities[0].checkpoints:
            values = agent.asked.get(question.id, collect_values(definition, before))
            if question.answered_by == "person":
                assert holds(question.condition, values) is False, question.id
        return


ITEMS = ["x", "y", "z"]
CHANGES = st.tuples(st.sampled_from(["agent", "step", "person", "ask"]), st.sampled_from(NAMES), st.booleans())


def looping(names: list[str], defaults: list[Any]) -> Workflow:
    """A loop over a list with a question for a person that applies if all of the variables are true."""
    condition = {"type": "and", "conditions": [when(names[0]), when(names[-1])]}
    each = loop("l", "forEach", over="items", variable="item", steps=[step("s", checkpoint="ask")])
    asks = [
        checkpoint("ask", answered_by="person", condition=condition),
        checkpoint("other", answered_by="person", required=False),
    ]
    declared = [variable(name, **parts) for name, parts in zip(NAMES, defaults, strict=True)]
    first = activity("one", loops=[each], checkpoints=asks, transitions=[to("two")])
    return workflow(first, activity("two"), variables=declared)


@proves("engine.person-asked-before", "engine.person-leaving-call")
@given(
    st.lists(st.sampled_from(NAMES), min_size=2, max_size=2),
    st.tuples(*[st.sampled_from(DEFAULTS)] * 2),
    st.dictionaries(st.sampled_from(NAMES), st.booleans()),
    st.lists(CHANGES, max_size=8),
    st.dictionaries(st.sampled_from(NAMES), st.booleans()),
)
@settings(max_examples=300, deadline=None)
def test_no_report_of_an_agent_frees_the_later_iterations_of_a_loop(
    names: list[str], defaults: tuple[Any, ...], known: dict[str, bool], changes: list[Any], reported: dict[str, bool]
) -> None:
    definition = looping(names, list(defaults))
    record = started(told(items=ITEMS, **known), entered("one"))
    questions, answered_ = list[dict[str, Any]](), 0
    for number, (who, name, value) in enumerate(changes):
        drafts = [told(**{name: value})]
        if who == "step":
            drafts = [EventDraft(VARIABLES_SET, {"variables": {name: value}, "by": "step:one/s"})]
        elif who == "person":
            drafts = [yielded("other", f"p{number}"), answered("yes", f"p{number}", setVariable={name: value})]
        elif who == "ask" and answered_ < len(ITEMS):
            questions.append(collect_values(definition, record))
            answered_ += 1
            asked = {"iteration": answered_, "person": True, "of": len(ITEMS)}
            drafts = [yielded("ask", f"r{number}", **asked), answered("yes", f"r{number}")]
        if who in ("step", "person"):
            questions = [{**values, name: value} for values in questions]
        record = fold_drafts(record, drafts, NOW)
    leaving = fold_drafts(record, [told(**reported)] if reported else [], NOW)

    refusal = refuse_unanswered(definition, leaving, [entered("two")], earlier=record)

    condition = definition.activities[0].checkpoints[0].condition
    before, now = (collect_values(definition, one) for one in (record, leaving))
    may_apply = [holds(condition, values) is not False for values in (now, *questions)]
    if answered_ == len(ITEMS):
        assert refusal is None
    else:
        assert (refusal is not None) is (any(may_apply) or holds(condition, before) is True)
        event("refused" if refusal is not None else "left")
