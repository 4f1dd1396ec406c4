"""Render a workflow as text for a terminal.

The text contains everything that determines a run, in the order in which it happens; long texts are cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from textwrap import shorten, wrap

from fidelio.definitions.flow import find_variable_domains, list_flow_edges, may_end_after
from fidelio.definitions.models import Activity, Checkpoint, Decision, Loop, Step, Trigger, Variable, Workflow
from fidelio.definitions.short_conditions import render_short_condition
from fidelio.definitions.static_conditions import VariableDomain
from fidelio.definitions.wording import (
    describe_count,
    describe_effect,
    describe_loop,
    describe_value,
    join_words,
)

_BOLD, _FAINT, _CYAN, _YELLOW, _RED, _PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[36m", "\x1b[33m", "\x1b[31m", "\x1b[0m"
_NARROWEST, _WIDEST = 40, 110
_MAX_TEXT_LENGTH = 400


@dataclass(frozen=True, slots=True)
class TextPage:
    """Width of the text, and whether it has colours."""

    width: int
    color: bool

    def paint(self, text: str, tone: str) -> str:
        return f"{tone}{text}{_PLAIN}" if self.color and text else text

    def wrap_text(
        self, words: str, indent: int = 0, *, tone: str = "", first: str = "", limit: int = _MAX_TEXT_LENGTH
    ) -> Iterator[str]:
        """Wrapped, indented lines; `first` precedes the first line, and the others are aligned with its end."""
        margin = " " * indent
        available = max(self.width - indent - len(first), 20)
        bounded = shorten(words, limit, placeholder=" …") or words.strip()[:limit]
        for number, line in enumerate(wrap(bounded, available, break_on_hyphens=False) or [""]):
            lead = first if number == 0 else " " * len(first)
            yield f"{margin}{lead}{self.paint(line, tone)}".rstrip()


def render_workflow(workflow: Workflow, *, width: int = 80, color: bool = False) -> str:
    """Render the whole workflow, without a line break at the end."""
    page = TextPage(min(max(width, _NARROWEST), _WIDEST), color)
    domains = find_variable_domains(workflow)
    blocks = [
        _render_title(workflow, page),
        _render_section("Rules", (line for rule in workflow.rules for line in page.wrap_text(rule, 2, first="- ")), page),
        _render_section("Skills", _render_skills(workflow.skills.primary, workflow.skills.supporting, page, 2), page),
        _render_section("Variables", (line for v in workflow.variables for line in _render_variable(v, page)), page),
        _render_section("Modes", _render_modes(workflow, page), page),
        _render_section("Artifact locations", _render_locations(workflow, page), page),
        *(_render_activity(number, activity, page, domains) for number, activity in enumerate(workflow.activities, start=1)),
        _render_section("Cannot be read", _render_broken(workflow, page), page, tone=_RED),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block)


def _render_section(title: str, lines: Iterable[str], page: TextPage, *, tone: str = _BOLD) -> list[str]:
    content = list(lines)
    return [page.paint(title, tone), *content] if content else []


def _render_title(workflow: Workflow, page: TextPage) -> list[str]:
    count = describe_count(len(workflow.activities), "activity", "activities")
    begins = f"begins with {workflow.initial_activity}" if workflow.initial_activity else "each activity is an entry of its own"
    lines = [page.paint(workflow.title, _BOLD), page.paint(f"{workflow.id} {workflow.version} · {count}, {begins}", _FAINT)]
    if workflow.tags:
        lines += page.wrap_text(", ".join(workflow.tags), first="tags: ", tone=_FAINT)
    if workflow.description:
        lines += ["", *page.wrap_text(workflow.description, limit=1200)]
    return lines


def _render_skills(primary: str | None, supporting: tuple[str, ...], page: TextPage, indent: int) -> Iterator[str]:
    if primary:
        yield from page.wrap_text(primary, indent)
    if supporting:
        yield from page.wrap_text(join_words(supporting), indent, first="supported by " if primary else "")


def _render_variable(variable: Variable, page: TextPage) -> Iterator[str]:
    default = f", at first {describe_value(variable.default_value)}" if variable.default_value is not None else ""
    required = ", required" if variable.required else ""
    yield f"  {page.paint(variable.name, _CYAN)} ({variable.type}{default}{required})"
    if variable.description:
        yield from page.wrap_text(variable.description, 6, tone=_FAINT, limit=160)


def _render_modes(workflow: Workflow, page: TextPage) -> Iterator[str]:
    for mode in workflow.modes:
        skips = f", skips {join_words(mode.skip_activities)}" if mode.skip_activities else ""
        yield from page.wrap_text(f"{mode.name}: when {mode.activation_variable}{skips}", 2)


def _render_locations(workflow: Workflow, page: TextPage) -> Iterator[str]:
    for name, location in workflow.artifact_locations.items():
        yield f"  {page.paint(name, _CYAN)} {location.path}" + (" (not under version control)" if location.gitignored else "")


def _render_broken(workflow: Workflow, page: TextPage) -> Iterator[str]:
    for name, findings in workflow.broken.items():
        yield from page.wrap_text(f"{name}: {findings[0].sentence if findings else 'no reason is known'}", 2)


def _render_activity(number: int, activity: Activity, page: TextPage, domains: dict[str, VariableDomain]) -> list[str]:
    optional = " (optional)" if not activity.required else ""
    time = f" · {activity.estimated_time}" if activity.estimated_time else ""
    owner = f" · {activity.id}{time}"
    lines = [f"{page.paint(f'{number}. {activity.name}', _BOLD)}{optional}{page.paint(owner, _FAINT)}"]
    if activity.description:
        lines += page.wrap_text(activity.description, 3, tone=_FAINT, limit=240)
    sections: list[Iterable[str]] = [_render_skill_line(activity, page), _render_steps(activity.steps, page, 3)]
    sections += [_render_checkpoint(checkpoint, page) for checkpoint in activity.checkpoints]
    sections += [_render_loop(loop, page) for loop in activity.loops]
    sections += [_render_decision(decision, page) for decision in activity.decisions]
    sections += [
        _render_triggers(activity.triggers, page, 3),
        _render_artifacts(activity, page),
        _render_transitions(activity, page, domains),
    ]
    return [*lines, *(line for section in sections for line in section)]


def _render_skill_line(activity: Activity, page: TextPage) -> Iterator[str]:
    names = [name for name in (activity.skills.primary, *activity.skills.supporting) if name]
    if names:
        yield from page.wrap_text(join_words(names), 3, first="Skills: ")


def _render_steps(steps: tuple[Step, ...], page: TextPage, indent: int) -> Iterator[str]:
    for number, step in enumerate(steps, start=1):
        details = [f"if {render_short_condition(step.condition)}"] if step.condition else []
        details += [f"skill {step.skill}"] if step.skill else []
        details += ["optional"] if not step.required else []
        words = step.name + (f" ({', '.join(details)})" if details else "")
        if step.checkpoint:
            yield from page.wrap_text(f"asks {step.checkpoint}, then", indent, first="   ", tone=_YELLOW)
        yield from page.wrap_text(words, indent, first=f"{number}. ")
        yield from _render_triggers(step.triggers, page, indent + 3)


def _render_checkpoint(checkpoint: Checkpoint, page: TextPage) -> Iterator[str]:
    condition = f" if {render_short_condition(checkpoint.condition)}" if checkpoint.condition else ""
    yield from page.wrap_text(
        f"{checkpoint.name} ({checkpoint.id}{_describe_answering(checkpoint)}){condition}", 3, first="? ", tone=_YELLOW
    )
    yield from page.wrap_text(checkpoint.message, 5, limit=240)
    for option in checkpoint.options:
        effect = describe_effect(option.effect) if option.effect else ""
        mark = "* " if option.id == checkpoint.default_option else "- "
        yield from page.wrap_text(option.label + (f": {effect}" if effect else ""), 5, first=mark)


def _describe_answering(checkpoint: Checkpoint) -> str:
    if checkpoint.answered_by is not None:
        return f", only a person may answer{', with a registered key' if checkpoint.answered_by == 'proven' else ''}"
    if checkpoint.blocking or checkpoint.auto_advance_ms is None or checkpoint.default_option is None:
        return ""
    return f", takes * after {checkpoint.auto_advance_ms / 1000:g} s"


def _render_loop(loop: Loop, page: TextPage) -> Iterator[str]:
    yield from page.wrap_text(f"{loop.name}: {describe_loop(loop)}", 3, first="↻ ")
    yield from _render_steps(loop.steps, page, 5)


def _render_decision(decision: Decision, page: TextPage) -> Iterator[str]:
    yield from page.wrap_text(decision.name, 3, first="◇ ")
    for branch in decision.branches:
        when = f"if {render_short_condition(branch.condition)}" if branch.condition else ""
        when = "otherwise" if branch.is_default else when
        target = f", goes to {branch.transition_to}" if branch.transition_to else ""
        yield from page.wrap_text(f"{branch.label}{f' ({when})' if when else ''}{target}", 5, first="- ")


def _render_triggers(triggers: tuple[Trigger, ...], page: TextPage, indent: int) -> Iterator[str]:
    for trigger in triggers:
        context = f" with {join_words(trigger.pass_context)}" if trigger.pass_context else ""
        yield from page.wrap_text(f"starts the workflow {trigger.workflow}{context}", indent, first="⇒ ")


def _render_artifacts(activity: Activity, page: TextPage) -> Iterator[str]:
    if activity.artifacts:
        names = [f"{a.name} in {a.location}" if a.location else a.name for a in activity.artifacts]
        yield from page.wrap_text(join_words(names), 3, first="Leaves ")


def _render_transitions(activity: Activity, page: TextPage, domains: dict[str, VariableDomain]) -> Iterator[str]:
    alone = len(activity.transitions) == 1
    for transition in activity.transitions:
        if transition.is_default or transition.condition is None:
            words = transition.to if alone else f"{transition.to}, otherwise"
        else:
            words = f"{transition.to}, if {render_short_condition(transition.condition)}"
        yield from page.wrap_text(words, 3, first="→ ", tone=_CYAN)
    if activity.transitions:
        return
    deciders = _describe_alternatives(activity)
    if may_end_after(activity, domains):
        unless = f", unless {deciders} leads elsewhere" if deciders else ""
        yield from page.wrap_text(f"the end{unless}", 3, first="→ ")
    else:
        yield from page.wrap_text(f"where {deciders} leads", 3, first="→ ", tone=_CYAN)


def _describe_alternatives(activity: Activity) -> str:
    """The elements that determine the next activity if there are no transitions."""
    reasons = {edge.reason for edge in list_flow_edges(activity)}
    words = {"answer": "an answer", "decision": "a decision"}
    return " or ".join(text for reason, text in words.items() if reason in reasons)
