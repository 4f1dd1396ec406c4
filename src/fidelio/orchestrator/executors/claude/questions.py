"""What Claude Code asks while it works, as questions for a person, and the person's answer in its words.

It asks before it uses a tool that its settings neither allow nor forbid, and its model asks with a tool that is made for it.
Where the blueprint leaves nothing to be asked, the answer is given at once.
"""

from __future__ import annotations

import msgspec

from fidelio.orchestrator.blueprints.model import Permissions
from fidelio.orchestrator.executors.claude.messages import Json, Request
from fidelio.orchestrator.executors.contract import Question, Reply, Reporter
from fidelio.orchestrator.executors.permissions import verdict

ALLOW, ALWAYS, REFUSE, OTHER = "allow", "allow-always", "refuse", "other"
# The tool with which the model asks a person.
ASKING = "AskUserQuestion"
_LONGEST_INPUT = 2_000
_NOT_ALLOWED = "This agent is not allowed to do that. Go on without it."


async def answer(request: Request, permissions: Permissions, reporter: Reporter) -> Json:
    """The answer to a request for leave to use a tool: granted, refused, or what a person says."""
    if request.tool_name == ASKING:
        return _granted({**request.input, "answers": await _answers(request, reporter)})
    # What needs no leave, and what its rules decide, the agent does not ask about.
    decided = verdict(permissions, (request.tool_name,), "something")
    if decided == "ask":
        return _verdict(request, await reporter.ask(_leave(request)))
    return _granted(request.input) if decided == "allow" else _refused(_NOT_ALLOWED)


async def _answers(request: Request, reporter: Reporter) -> dict[str, str]:
    """The model may ask several things at once; a person is asked one after the other."""
    asked = enumerate(request.input.get("questions", ()))
    return {
        question["question"]: await _answer_one(f"{request.tool_use_id}.{number}", question, reporter)
        for number, question in asked
    }


async def _answer_one(key: str, asked: Json, reporter: Reporter) -> str:
    labels = [option["label"] for option in asked.get("options", ())]
    question = Question(
        key=key,
        kind="question",
        text=_with_descriptions(asked),
        options=(*((label, label) for label in labels), (OTHER, "Something else, or several of these: say it in words")),
        detail={"header": asked.get("header", ""), "several": bool(asked.get("multiSelect"))},
    )
    reply = await reporter.ask(question)
    return ", ".join(part for part in (reply.option if reply.option != OTHER else "", reply.text) if part)


def _with_descriptions(asked: Json) -> str:
    described = [option for option in asked.get("options", ()) if option.get("description")]
    lines = [f"- {option['label']}: {option['description']}" for option in described]
    return "\n".join([asked["question"], *([""] if lines else []), *lines])


def _leave(request: Request) -> Question:
    options = [(ALLOW, "Allow it once"), (REFUSE, "Refuse it")]
    if _rules(request):
        options.insert(1, (ALWAYS, "Allow it, and the like of it, in this turn"))
    return Question(
        key=request.tool_use_id,
        kind="permission",
        text=_sentence(request),
        options=tuple(options),
        detail={"tool": request.tool_name, "input": request.input, "path": request.blocked_path},
    )


def _sentence(request: Request) -> str:
    wanted = msgspec.json.format(msgspec.json.encode(request.input)).decode()
    if len(wanted) > _LONGEST_INPUT:
        wanted = wanted[:_LONGEST_INPUT] + " ..."
    why = request.description
    return f"The agent wants to use {request.tool_name}{f' ({why})' if why else ''}:\n{wanted}"


def _verdict(request: Request, reply: Reply) -> Json:
    if reply.option == ALLOW:
        return _granted(request.input)
    if reply.option == ALWAYS:
        return {**_granted(request.input), "updatedPermissions": _rules(request)}
    return _refused(reply.text or "A person has refused this.")


def _rules(request: Request) -> list[Json]:
    """The rules the agent proposes, for this process only: it would write them into the settings of the project."""
    proposed = request.permission_suggestions or ()
    return [{**rule, "destination": "session"} for rule in proposed if rule.get("type") == "addRules"]


def _granted(wanted: Json) -> Json:
    return {"behavior": "allow", "updatedInput": wanted}


def _refused(why: str) -> Json:
    return {"behavior": "deny", "message": why}
