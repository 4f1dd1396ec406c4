"""The scripted model: functions, bundled scripts, and their rules."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fidelio.providers.model import (
    Message,
    ModelProblem,
    ModelReply,
    ModelRequest,
    TextBlock,
    TokenUsage,
    ToolDeclaration,
    ToolUseBlock,
)
from fidelio.providers.registry import open_providers
from fidelio.providers.scripted import ScriptedProvider
from fidelio.providers.scripted.provider import BUNDLED_SCRIPTS
from fidelio.providers.scripted.rules import load_script
from tests.providers.requests import SECONDS, ask, assistant, complete, result, use, user
from tests.support import proves


def play(text: str, request: ModelRequest, directory: Path) -> ModelReply:
    """The reply of a script to a request."""
    file = directory / "test.yaml"
    file.write_text(text)
    return load_script(file).reply(request)


def directive_of(reply: ModelReply) -> dict[str, Any]:
    found = re.search(r"<fidelio-loop>(.*)</fidelio-loop>$", reply.text, re.DOTALL)
    assert found is not None
    return msgspec.json.decode(found[1], type=dict[str, Any])


@proves("providers.scripted")
async def test_a_function_replies_and_its_text_comes_in_pieces() -> None:
    def reply(request: ModelRequest) -> ModelReply:
        return ModelReply(content=(TextBlock(f"You asked {request.model}: how are you?"),), stop_reason="end_turn")

    answer, pieces = await complete(ScriptedProvider(reply), ask("Hello", model="m", system=""))

    assert "".join(pieces) == answer.text == "You asked m: how are you?"
    assert len(pieces) > 1
    # 5 characters of the user, 25 of the model.
    assert answer.usage == TokenUsage(input_tokens=2, output_tokens=7)
    assert answer.model == "m"


@proves("providers.scripted")
async def test_a_function_may_be_asynchronous_set_the_usage_and_be_cancelled() -> None:
    reached = asyncio.Event()

    async def reply(request: ModelRequest) -> ModelReply:
        reached.set()
        if request.model == "hangs":
            await asyncio.Event().wait()
        return ModelReply(content=(), stop_reason="refusal", usage=TokenUsage(input_tokens=7), model="other")

    provider = ScriptedProvider(reply)
    answer, _ = await complete(provider, ask("Hello"))
    assert (answer.usage, answer.model, answer.stop_reason) == (TokenUsage(input_tokens=7), "other", "refusal")

    reached.clear()
    task = asyncio.create_task(complete(provider, ask("Hello", model="hangs")))
    await asyncio.wait_for(reached.wait(), SECONDS)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@proves("providers.scripts")
async def test_the_script_echo_answers_with_the_users_text() -> None:
    provider, model = open_providers({}).find("scripted:echo")

    answer, _ = await complete(
        provider, ask("First", assistant("First"), user("Second {user}", "<runtime-notes>x"), model=model)
    )

    assert answer.text == "Second {user}"
    assert answer.stop_reason == "end_turn"


@proves("providers.scripts")
@pytest.mark.parametrize(("name", "outcome"), [("quiet", "sleep"), ("continue", "continue")])
async def test_the_scripts_quiet_and_continue_end_with_a_directive(name: str, outcome: str) -> None:
    answer, _ = await complete(ScriptedProvider(), ask("Anything", model=name))

    assert directive_of(answer)["outcome"] == outcome


@proves("providers.scripts")
async def test_the_script_demo_does_its_task_and_sleeps_with_a_learning() -> None:
    provider, messages, called = ScriptedProvider(), [user("Please write hello.")], []
    while True:
        answer, _ = await complete(provider, ask(*messages, model="demo"))
        if not answer.tool_uses:
            break
        [call] = answer.tool_uses
        called.append((call.name, call.input))
        messages += [assistant(*answer.content), user(result("{}", id_=call.id))]

    assert called == [
        ("write", {"path": "/workspace/hello.txt", "content": "Hello from Fidelio.\n"}),
        ("read", {"path": "/workspace/hello.txt"}),
        ("shell_run", {"command": "wc -c hello.txt"}),
    ]
    directive = directive_of(answer)
    assert directive["outcome"] == "sleep"
    assert len(directive["learnings"]) == 1


@proves("providers.scripts")
async def test_the_script_demo_accepts_a_denial_and_does_not_repeat_its_task_in_a_wake_without_a_message() -> None:
    asked = [user("hello"), assistant(use("shell_run")), user(result("denied", is_error=True))]
    denied, _ = await complete(ScriptedProvider(), ask(*asked, model="demo"))
    assert "not allowed" in denied.text
    assert directive_of(denied)["outcome"] == "sleep"

    later, _ = await complete(
        ScriptedProvider(), ask(*asked, assistant("Ok"), user("<runtime-notes>due</runtime-notes>"), model="demo")
    )
    assert later.tool_uses == ()


@proves("providers.scripts")
@pytest.mark.parametrize("file", sorted(BUNDLED_SCRIPTS.glob("*.yaml")), ids=lambda file: file.stem)
def test_every_bundled_script_is_valid(file: Path) -> None:
    assert load_script(file).reply(ask("Hello")).content


STEPS = """I look around.
bash {"command": "ls -a"}
read {"file_path": "notes.txt"}

  bash {"command": "echo {user}"}

bash {not json} is text,
 and so is this: bash {"a": 1}."""


@proves("providers.scripts")
async def test_the_script_steps_plays_the_paragraphs_of_the_message() -> None:
    provider, messages = ScriptedProvider(), [user("ls {}"), assistant("Before."), user(STEPS)]
    turns = []
    for _ in range(4):
        answer, _ = await complete(provider, ask(*messages, model="steps"))
        turns.append((answer.text, [(call.name, call.input) for call in answer.tool_uses], answer.stop_reason))
        messages += [Message("assistant", answer.content)]
        messages += [user(*(result("r", id_=call.id) for call in answer.tool_uses))] if answer.tool_uses else []

    assert turns == [
        ("I look around.", [("bash", {"command": "ls -a"}), ("read", {"file_path": "notes.txt"})], "tool_use"),
        ("", [("bash", {"command": "echo {user}"})], "tool_use"),
        ('bash {not json} is text,\n and so is this: bash {"a": 1}.', [], "end_turn"),
        ("Done.", [], "end_turn"),
    ]


@proves("providers.scripts")
@pytest.mark.parametrize("name", ["missing", "", "../models/echo", "ECHO"])
async def test_an_unknown_script_is_refused_with_the_known_names(name: str) -> None:
    with pytest.raises(ModelProblem) as caught:
        await complete(ScriptedProvider(), ask("Hello", model=name))

    assert "continue, demo, echo, quiet, steps" in str(caught.value.remedy)


@proves("providers.scripts")
@pytest.mark.parametrize(
    ("when", "holds", "holds_not"),
    [
        ("hello", ask("Say HELLO"), ask("Say goodbye")),
        ("{contains: hello}", ask("hello"), ask(user("hello"), assistant(use("x")), user(result("hello")))),
        ("{matches: '^[a-z]+$'}", ask("abc"), ask("ABC")),
        ("{wake: 2}", ask("a", assistant("b"), "c"), ask("a")),
        ("{after_tool: x}", ask("a", assistant(use("x")), user(result("r"))), ask("a", assistant(use("y")), user(result("r")))),
        ("{after_tool: x}", ask("a", assistant(use("x")), user(result("r"))), ask("a")),
        (
            "{after_tool: x, failed: true}",
            ask("a", assistant(use("x")), user(result("r", is_error=True))),
            ask("a", assistant(use("x")), user(result("r"))),
        ),
        ("{wake: 1, contains: b}", ask("abc"), ask("b", assistant("c"), "b")),
    ],
)
def test_a_rule_holds_when_all_its_conditions_do(
    tmp_path: Path, when: str, holds: ModelRequest, holds_not: ModelRequest
) -> None:
    script = f"rules:\n  - {{when: {when}, reply: it holds}}\n  - reply: otherwise\n"

    assert play(script, holds, tmp_path).text == "it holds"
    assert play(script, holds_not, tmp_path).text == "otherwise"


@proves("providers.scripts")
def test_a_reply_quotes_the_user_and_fields_of_the_last_result(tmp_path: Path) -> None:
    script = """
rules:
  - when: {after_tool: x}
    reply: '{user} {result.path} {result.deep.n} {result.missing}{other} {result}'
    tools: [{name: y, input: {list: ['{result.path}', 1], keep: '{a}'}}, {name: z}]
    directive: {summary: '{user}'}
  - reply: ''
"""
    request = ask("why", assistant(use("x")), user(result('{"path":"/p","deep":{"n":[1]}}' + " " * 500)))

    answer = play(script, request, tmp_path)

    assert answer.text.startswith('why /p [1] {other} {"path":"/p","deep":{"n":[1]}}')
    assert answer.text.endswith('…\n<fidelio-loop>{"summary":"why"}</fidelio-loop>')
    assert len(answer.text) < 500
    assert [(call.name, call.input) for call in answer.tool_uses] == [("y", {"list": ["/p", 1], "keep": "{a}"}), ("z", {})]
    assert answer.stop_reason == "tool_use"


@proves("providers.scripted")
def test_the_id_of_a_call_depends_on_the_conversation_alone(tmp_path: Path) -> None:
    script = "rules: [{tools: [{name: x}, {name: x}]}]"

    once, again, other = (play(script, ask(text), tmp_path).tool_uses for text in ("a", "a", "b"))

    assert once == again
    assert len({call.id for call in (*once, *other)}) == 4


@proves("providers.scripts")
@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("rules: []", r"length >= 1 - at `\$.rules`"),
        ("rule: []", "rule"),
        ("", "test.yaml is invalid"),
        ("rules: [", "cannot be read"),
        ("rules: [{reply: 1}]", r"\$.rules\[0\].reply"),
        ("rules: [{replies: a}]", "replies"),
        ("rules: [{reply: a, when: b}]", r"the last rule, \$.rules\[0\], has a condition"),
        ("rules: [{reply: a}, {reply: b}]", r"\$.rules\[0\] has no `when`"),
        ("rules: [{reply: a, when: {}}, {reply: b}]", r"\$.rules\[0\].when is empty"),
        ("rules: [{reply: a, when: ''}, {reply: b}]", r"\$.rules\[0\].when is empty"),
        ("rules: [{reply: a, when: {matches: '('}}, {reply: b}]", "invalid regular expression"),
        ("rules: [{reply: a, when: {failed: true}}, {reply: b}]", "`failed` without `after_tool`"),
        ("rules: [{tools: [{input: {}}]}]", "name"),
        ("rules: [{steps: true, reply: a}]", r"\$.rules\[0\] has `steps`"),
    ],
)
def test_an_invalid_script_is_refused_with_its_file_and_key(tmp_path: Path, script: str, problem: str) -> None:
    with pytest.raises(ModelProblem, match=problem) as caught:
        play(script, ask("Hello"), tmp_path)

    assert "test.yaml" in caught.value.sentence


def grade(schema: dict[str, Any]) -> ModelRequest:
    return ask("Grade.", model="quiet", tools=(ToolDeclaration("grade", "", schema),), force_tool="grade")


@proves("providers.scripted-grader")
async def test_a_forced_grader_cites_the_first_citable_id_of_each_criterion() -> None:
    citation = {"$ref": "#/$defs/citation"}
    criterion = {
        "type": "object",
        "properties": {
            "verdict": {"enum": ["met", "not_met"]},
            "citations": {"type": "array", "items": citation},
            "reason": {"type": "string"},
        },
    }
    schema = {
        "type": "object",
        "properties": {"c1": criterion, "c2": criterion},
        "required": ["c1", "c2"],
        "$defs": {"citation": {"enum": ["event-7", "sha256:ab"]}},
    }

    answer, _ = await complete(ScriptedProvider(), grade(schema))

    [call] = answer.tool_uses
    assert (call.name, answer.stop_reason) == ("grade", "tool_use")
    assert {name: (value["verdict"], value["citations"]) for name, value in call.input.items()} == {
        "c1": ("met", ["event-7"]),
        "c2": ("met", ["event-7"]),
    }


@proves("providers.scripted-grader")
async def test_a_forced_grader_with_nothing_to_cite_says_not_met() -> None:
    criterion: dict[str, Any] = {"properties": {"verdict": {}, "citations": {"items": {"enum": []}}, "reason": {}}}

    answer, _ = await complete(ScriptedProvider(), grade({"type": "object", "properties": {"c1": criterion}}))

    assert answer.tool_uses[0].input["c1"]["verdict"] == "not_met"


@proves("providers.scripted-grader")
async def test_any_other_forced_tool_gets_the_simplest_valid_input() -> None:
    properties = {
        "text": {"type": "string"},
        "kind": {"enum": ["b", "a"]},
        "always": {"const": 3},
        "items": {"type": "array", "minItems": 1, "items": {"type": ["integer", "null"]}},
        "optional": {"type": "string"},
    }
    schema = {"type": "object", "properties": properties, "required": ["text", "kind", "always", "items"]}

    answer, _ = await complete(ScriptedProvider(), grade(schema))

    assert answer.content == (
        ToolUseBlock(answer.tool_uses[0].id, "grade", {"text": "", "kind": "b", "always": 3, "items": [0]}),
    )


@proves("providers.scripted-grader")
async def test_a_forced_tool_that_is_not_declared_is_an_error() -> None:
    with pytest.raises(ModelProblem, match="not declared"):
        await complete(ScriptedProvider(), ask("Grade.", model="quiet", force_tool="grade"))
