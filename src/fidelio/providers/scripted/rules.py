"""Scripts of the provider `scripted`: an ordered list of rules in YAML, of which the first that matches gives the reply.

    rules:
      - when: hello                            # the user's last text contains it, in any case
        reply: You said {user}.
        tools:
          - {name: write, input: {path: /workspace/hello.txt, content: Hello}}
      - when: {after_tool: write, failed: false}
        reply: 'Written: {result.path}'
        directive: {outcome: sleep, summary: Done}
      - reply: I do not know what to do.       # no condition: the last rule, for everything else

Conditions are `contains`, `matches` (a regular expression), `wake` (the number of the user's message), `after_tool` and
`failed`; several have to hold together. A rule with a condition but without `after_tool` holds only for turns that answer the
user, not for those that answer results of tools. Placeholders are `{user}`, `{result}`, shortened, and `{result.FIELD}`.

A rule with `steps: true` plays what the user's text describes, so that a program can be tried without a script of its own:
each paragraph is a turn, a line `TOOL {...}` with a JSON object is a call, and other lines are text. After the last paragraph
it says "Done.".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
import yaml
from msgspec import Meta

from fidelio.providers.model import ModelProblem, ModelReply, ModelRequest, TextBlock, ToolUseBlock
from fidelio.providers.scripted.conversation import ConversationView, make_call_id

_PLACEHOLDER = re.compile(r"\{(user|result)(?:\.([\w.-]+))?\}")
_PARAGRAPHS = re.compile(r"\n\s*\n")
_CALL = re.compile(r"([A-Za-z][\w.-]{0,127})\s+(\{.*\})")
_AFTER_STEPS = "Done."
_RESULT_LENGTH = 400
_REMEDY = "The reference of models describes the rules of a script."


class _Conditions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    contains: str = ""
    matches: str = ""
    wake: Annotated[int, Meta(ge=1)] | None = None
    after_tool: str = ""
    failed: bool | None = None


class _ScriptedCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(min_length=1)]
    input: dict[str, Any] = {}


class _Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    reply: str = ""
    when: _Conditions | str | None = None
    tools: tuple[_ScriptedCall, ...] = ()
    directive: dict[str, Any] | None = None
    steps: bool = False


class _ScriptFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    rules: Annotated[tuple[_Rule, ...], Meta(min_length=1)]


class ModelScript:
    """The rules of a file. The last of them has no condition, so that every request has a reply."""

    def __init__(self, rules: tuple[_Rule, ...]) -> None:
        self._rules = rules

    def reply(self, request: ModelRequest) -> ModelReply:
        view = ConversationView(request)
        rule = next(rule for rule in self._rules if _holds(rule.when, view))
        text, wanted = _read_step(view) if rule.steps else (_render(rule, view), _substitute_calls(rule, view))
        calls = tuple(
            ToolUseBlock(make_call_id(request, position), call.name, call.input) for position, call in enumerate(wanted)
        )
        content = (*((TextBlock(text),) if text else ()), *calls)
        return ModelReply(content=content, stop_reason="tool_use" if calls else "end_turn")


def load_script(file: Path) -> ModelScript:
    """Load a script; raises `ModelProblem` with the file and the key of its first error."""
    try:
        raw = yaml.load(file.read_text("utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506  # both are safe
        rules = msgspec.convert(raw, _ScriptFile).rules
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ModelProblem(f"The script {file} cannot be read: {error}.", remedy=_REMEDY) from error
    except msgspec.ValidationError as error:
        raise ModelProblem(f"The script {file} is invalid: {error}.", remedy=_REMEDY) from error
    if problem := _find_problem(rules):
        raise ModelProblem(f"The script {file} is invalid: {problem}", remedy=_REMEDY)
    return ModelScript(rules)


def _find_problem(rules: tuple[_Rule, ...]) -> str:
    *conditional, last = rules
    if last.when is not None:
        return f"the last rule, $.rules[{len(rules) - 1}], has a condition. Add one without `when` for everything else."
    for number, rule in enumerate(rules):
        if rule.steps and rule != _Rule(when=rule.when, steps=True):
            return f"$.rules[{number}] has `steps`, so it can have no `reply`, `tools` or `directive`."
    for number, rule in enumerate(conditional):
        if rule.when is None:
            return f"$.rules[{number}] has no `when`, so the rules after it would never be used."
        if problem := _find_condition_problem(rule.when):
            return f"$.rules[{number}].when {problem}"
    return ""


def _find_condition_problem(when: _Conditions | str) -> str:
    if when in ("", _Conditions()):
        return "is empty."
    if isinstance(when, str):
        return ""
    if when.failed is not None and not when.after_tool:
        return "has `failed` without `after_tool`."
    try:
        re.compile(when.matches)
    except re.error as error:
        return f"has the invalid regular expression {when.matches!r:.80}: {error}."
    return ""


def _holds(when: _Conditions | str | None, view: ConversationView) -> bool:
    if when is None:
        return True
    conditions = _Conditions(contains=when) if isinstance(when, str) else when
    return _matches_turn(conditions, view) and _matches_text(conditions, view)


def _matches_turn(when: _Conditions, view: ConversationView) -> bool:
    if when.wake not in (None, view.wake):
        return False
    if not when.after_tool:
        return view.answers_user
    failed = view.find_failed(when.after_tool)
    return failed is not None and when.failed in (None, failed)


def _matches_text(when: _Conditions, view: ConversationView) -> bool:
    return when.contains.lower() in view.user.lower() and re.search(when.matches, view.user) is not None


def _read_step(view: ConversationView) -> tuple[str, tuple[_ScriptedCall, ...]]:
    """The text and the calls of the paragraph of the user's text whose turn it is."""
    paragraphs = [found for found in _PARAGRAPHS.split(view.user) if found.strip()]
    if view.turn >= len(paragraphs):
        return _AFTER_STEPS, ()
    lines = [(line, _read_call(line)) for line in paragraphs[view.turn].splitlines()]
    return "\n".join(line for line, call in lines if call is None).strip(), tuple(call for _, call in lines if call is not None)


def _read_call(line: str) -> _ScriptedCall | None:
    found = _CALL.fullmatch(line.strip())
    try:
        return _ScriptedCall(found[1], msgspec.json.decode(found[2], type=dict[str, Any])) if found else None
    except msgspec.DecodeError:  # a sentence with braces
        return None


def _substitute_calls(rule: _Rule, view: ConversationView) -> tuple[_ScriptedCall, ...]:
    return tuple(_ScriptedCall(call.name, _substitute(call.input, view)) for call in rule.tools)


def _render(rule: _Rule, view: ConversationView) -> str:
    text: str = _substitute(rule.reply, view).strip()
    if rule.directive is None:
        return text
    directive = msgspec.json.encode(_substitute(rule.directive, view)).decode()
    return f"{text}\n<fidelio-loop>{directive}</fidelio-loop>".lstrip()


def _substitute(value: Any, view: ConversationView) -> Any:
    """Replace the placeholders in every text of a value. Other braces stay as they are."""
    match value:
        case str():
            return _PLACEHOLDER.sub(lambda match: _find_value(match, view), value)
        case Mapping():
            return {key: _substitute(item, view) for key, item in value.items()}
        case list():
            return [_substitute(item, view) for item in value]
        case _:
            return value


def _find_value(match: re.Match[str], view: ConversationView) -> str:
    name, path = match.groups()
    if name == "user":
        return match[0] if path else view.user
    text = view.find_result_field(path) if path else view.result
    return text if len(text) <= _RESULT_LENGTH else f"{text[: _RESULT_LENGTH - 1]}…"
