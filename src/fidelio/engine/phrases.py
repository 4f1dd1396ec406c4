"""Sentences of warnings and refusals.

Clients match parts of these sentences ("not a direct transition", "Missing steps", "Exactly one"). Those parts must not change;
the rest of a sentence may.
"""

from __future__ import annotations

from collections.abc import Iterable

MAX_NAMES = 50
MAX_NAME_LENGTH = 100

ANSWER_MODE_REQUIRED = "Exactly one of option_id, auto_advance, or condition_not_met must be provided."
NO_ACTIVE_CHECKPOINT = "The provided checkpoint_handle does not have an active checkpoint."
NO_CURRENT_ACTIVITY = "No current activity in this session."
EMPTY_ACTIVITY_MANIFEST = "Empty activity_manifest provided. Omit the parameter if no activities have been completed."


def list_names(ids: Iterable[str]) -> str:
    """A bounded list of ids, because an agent may send any number of any length."""
    listed = list(ids)
    more = [f"and {len(listed) - MAX_NAMES} more"] if len(listed) > MAX_NAMES else []
    return f"[{', '.join([*(name[:MAX_NAME_LENGTH] for name in listed[:MAX_NAMES]), *more])}]"


def first_activity(expected: str, requested: str) -> str:
    return f"First activity must be '{expected}' but '{requested}' was requested. Start with the workflow's initialActivity."


def activity_missing(activity: str, *, unreadable: bool) -> str:
    fate = "can no longer be read" if unreadable else "was deleted from the definition"
    return f"The current activity '{activity}' {fate}, so its transitions are unknown."


def not_direct_transition(target: str, activity: str, valid: Iterable[str]) -> str:
    return f"Activity '{target}' is not a direct transition from '{activity}'. Valid transitions: {list_names(valid)}"


def activity_not_found(activity: str) -> str:
    return f"Activity not found: {activity}."


def activity_skipped(activity: str) -> str:
    return f"Activity '{activity}' is skipped in this session."


def no_outgoing_transition(activity: str, target: str) -> str:
    return f"'{activity}' has no outgoing transition, so '{target}' is not expected after it."


def claims_other_condition(target: str, claim: str, expected: Iterable[str]) -> str:
    wanted = " or ".join(f"'{text}'" for text in expected)
    return f"Condition mismatch: transition to '{target}' requires {wanted}, but '{claim}' was claimed."


def claims_condition_of_default(target: str, claim: str) -> str:
    return f"Condition mismatch: transition to '{target}' is the default (no condition) but agent claimed condition '{claim}'."


def condition_not_met_for(target: str, because: str) -> str:
    return f"Condition mismatch: transition to '{target}' does not hold: {because}."


def answer_leads_elsewhere(target: str, forced: str) -> str:
    return f"Condition mismatch: transition to '{target}' does not hold: the answer to a checkpoint leads to '{forced}'."


def transition_undecided(target: str, variables: Iterable[str]) -> str:
    return f"It is not known whether the transition to '{target}' holds: {list_names(variables)} without a value."


def step_undecided(step: str, variables: Iterable[str]) -> str:
    return f"It is not known whether step '{step}' had to be done: {list_names(variables)} without a value."


def version_drift(started: str, current: str) -> str:
    return f"Workflow version drift: the session started with version '{started}', the definition is now '{current}'."


SNAPSHOT_LEADS = "This session goes on with the definition that it began with, from the ledger."


def skill_of_other_activity(skill: str, activity: str) -> str:
    return (
        f"Skill '{skill}', which was loaded last, is none of activity '{activity}'. Load one of its own with get_skill first."
    )


def content_drift(version: str) -> str:
    return f"Workflow version drift: the definition has changed since the session started, still as version '{version}'."


def no_manifest(activity: str) -> str:
    return (
        f"No step_manifest provided for previous activity '{activity}'. "
        "Include a manifest to enable step completion validation."
    )


def missing_steps(steps: Iterable[str]) -> str:
    return f"Missing steps in manifest: {list_names(steps)}"


def unexpected_steps(steps: Iterable[str]) -> str:
    return f"Unexpected steps in manifest: {list_names(steps)}"


def order_mismatch(steps: Iterable[str]) -> str:
    return f"Step order mismatch: {list_names(steps)} not at the place that the definition gives."


def repeated_steps(steps: Iterable[str]) -> str:
    return f"Steps reported more than once in manifest: {list_names(steps)}"


# The beginning of the sentence about a loop; the report replaces it by one difference for each iteration.
MISSING_ITERATIONS = "Missing iterations of loop "


def missing_iterations(loop: str, groups: Iterable[str]) -> str:
    return (
        f"{MISSING_ITERATIONS}'{loop}' in manifest: [{'; '.join(groups)}]. "
        "A step of a loop has one entry for each iteration, with `iteration` (from 1) or `item`."
    )


def missing_iteration(loop: str, iteration: int, steps: Iterable[str]) -> str:
    return f"Iteration {iteration} of loop '{loop}' was not reported: {list_names(steps)}"


def items_left_out(loop: str, count: int) -> str:
    return f"Loop '{loop}' has taken no more than its maximum: {count} of its items were left out."


def iterations_out_of_range(loop: str, most: int, iterations: Iterable[str]) -> str:
    return f"Loop '{loop}' has at most {most} iterations; the manifest reports {list_names(iterations)}."


def repeated_iterations(loop: str, entries: Iterable[str]) -> str:
    return f"Steps of loop '{loop}' reported more than once for an iteration: {list_names(entries)}"


def foreign_items(loop: str, entries: Iterable[str]) -> str:
    return f"Loop '{loop}' does not go over these items: {list_names(entries)}"


def item_of_other_iteration(loop: str, entries: Iterable[str]) -> str:
    return f"Entries of loop '{loop}' whose item is not that of their iteration: {list_names(entries)}"


def stray_iterations(steps: Iterable[str]) -> str:
    return f"Steps outside of loops reported with `iteration` or `item`: {list_names(steps)}"


def loop_undecided(loop: str, variables: Iterable[str]) -> str:
    return f"It is not known whether loop '{loop}' is finished: {list_names(variables)} without a value."


def empty_output(steps: Iterable[str]) -> str:
    return f"Steps with empty output in manifest: {list_names(steps)}"


def checkpoint_unanswered(step: str, checkpoint: str) -> str:
    return f"Step '{step}' is reported as done, but its checkpoint '{checkpoint}' has not been answered in this visit."


def step_condition_not_met(step: str) -> str:
    return f"Step '{step}' was reported although its condition is not met."


def checkpoint_not_presented(checkpoint: str) -> str:
    return f"Checkpoint '{checkpoint}' was never asked."


def checkpoint_dismissed(checkpoint: str) -> str:
    return f"Checkpoint '{checkpoint}' was dismissed although its condition was not known to be false."


def answer_below_demand(checkpoint: str, assurance: str) -> str:
    return f"Checkpoint '{checkpoint}' demands a person, but its answer was only '{assurance}'."


def answer_not_proven(checkpoint: str, assurance: str) -> str:
    return f"Checkpoint '{checkpoint}' demands a signature with a registered key, but its answer was only '{assurance}'."


def answered_first(checkpoint: str) -> str:
    return f"Checkpoint '{checkpoint}' is to be answered first."


def person_unasked(checkpoint: str, activity: str, iterations: tuple[int, ...] = (), undecided: tuple[str, ...] = ()) -> str:
    shown = ", ".join(map(str, iterations[:5])) + (" and more" if iterations[5:] else "")
    where = f" for iteration {shown} of its loop" if iterations else ""
    names = " and ".join(dict.fromkeys(undecided))
    known = f" If that loop has nothing to do, report {names} in `variables`." if names else ""
    whose = f"only a person answers its checkpoint '{checkpoint}', and none has{where}."
    return f"Activity '{activity}' cannot be left: {whose}{known}"


START_CHILD = "Start it with start_session and the token of this session as parent_session_token, and go on when it has ended."


ADD_WORKFLOW = "A person can add the workflow to this server, or end the session."


def cannot_start(why: str) -> str:
    return f"This server cannot start it: {why}"


def workflow_never_started(workflow: str) -> str:
    return f"Workflow '{workflow}' should have been started here and was not."


def too_few_checkpoint_answers(step: str, checkpoint: str, done: int, answers: int) -> str:
    return f"Step '{step}' is reported {done} times, but its checkpoint '{checkpoint}' was asked only {answers} times."


def unknown_activity(activity: str) -> str:
    return f"Activity manifest references unknown activity '{activity}'"


def empty_outcome(activity: str) -> str:
    return f"Activity '{activity}' has empty outcome"


def unknown_condition_claim(activity: str, claim: str) -> str:
    return f"Activity '{activity}' claims transition condition '{claim}' not found in workflow transitions"


def checkpoint_not_found(checkpoint: str, activity: str) -> str:
    return f"Checkpoint not found: {checkpoint} in activity {activity}."


def invalid_option(option: str, checkpoint: str, valid: Iterable[str]) -> str:
    return f"Invalid option '{option}' for checkpoint '{checkpoint}'. Valid options: {list_names(valid)}"


def response_too_fast(elapsed_ms: int, least_ms: int) -> str:
    return f"Checkpoint response too fast ({elapsed_ms} ms < {least_ms} ms minimum)."


def cannot_auto_advance(checkpoint: str, reasons: Iterable[str]) -> str:
    return f"Cannot auto-advance checkpoint '{checkpoint}': {' and '.join(reasons)}."


def auto_advance_too_early(checkpoint: str, elapsed_ms: int, wait_ms: int) -> str:
    return f"Cannot auto-advance checkpoint '{checkpoint}' yet: {elapsed_ms} ms of {wait_ms} ms have passed."


def no_condition(checkpoint: str) -> str:
    return f"Cannot dismiss checkpoint '{checkpoint}': it has no condition field."


def condition_met(checkpoint: str, condition: str) -> str:
    return f"Cannot dismiss checkpoint '{checkpoint}': its condition '{condition}' holds."


def needs_person(checkpoint: str) -> str:
    return f"Checkpoint '{checkpoint}' has to be answered by a person; an answer relayed by a model is not taken."


def already_answered(checkpoint: str, answer: str) -> str:
    return f"Checkpoint '{checkpoint}' has been answered already, with '{answer}'. An answer is given once."


def session_ended(status: str) -> str:
    return "The workflow is complete." if status == "completed" else "A person has ended this session before its workflow."


def checkpoint_withdrawn(checkpoint: str) -> str:
    return f"Checkpoint '{checkpoint}' was withdrawn: the session ended before it was answered."


def unresolved_checkpoints(action: str, activity: str, checkpoints: Iterable[str]) -> str:
    waiting = list(checkpoints)
    many = "unresolved checkpoint" if len(waiting) == 1 else "unresolved checkpoints"
    return f"Cannot {action}: {len(waiting)} {many} in activity '{activity}': {list_names(waiting)}."


def checkpoint_not_pending(checkpoint: str, waiting: Iterable[str]) -> str:
    return f"Checkpoint '{checkpoint[:MAX_NAME_LENGTH]}' is not pending. Pending checkpoints: {list_names(waiting)}."


def checkpoint_newer_than_token(checkpoint: str) -> str:
    return f"Checkpoint '{checkpoint[:MAX_NAME_LENGTH]}' was asked after this token was made."


def workflow_mismatch(workflow: str, requested: str) -> str:
    return f"Workflow mismatch: the session token is for '{workflow}' but '{requested[:MAX_NAME_LENGTH]}' was requested."


def required_variables(workflow: str, variables: Iterable[str]) -> str:
    return f"Workflow '{workflow}' cannot work without values for {list_names(variables)}."


def undeclared_variables(variables: Iterable[str]) -> str:
    return f"Variables not declared by the workflow: {list_names(variables)}"


def wrong_type(variable: str, declared: str, found: str) -> str:
    return f"Variable '{variable}' is declared as {declared} but {found} was reported."


def contradicts_answer(variable: str, checkpoint: str) -> str:
    return (
        f"Variable '{variable}' was set by the answer to checkpoint '{checkpoint}': "
        "another answer or the definition changes it, a report does not."
    )


def no_valid_transition(target: str, activity: str) -> str:
    return f"No valid transition from '{activity}' to '{target}'."
