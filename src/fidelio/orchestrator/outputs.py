"""Whether what an agent returned is what its blueprint promises to those who call it."""

from __future__ import annotations

import msgspec

from fidelio.errors import BadAgentInput, BrokenBlueprint, ExecutorFailure, UncheckedAgentInput
from fidelio.orchestrator.blueprints.model import Blueprint
from fidelio.orchestrator.blueprints.schemas import check_output
from fidelio.orchestrator.ending import Ending
from fidelio.orchestrator.executors.contract import Finished
from fidelio.orchestrator.rules import BAD_OUTPUT


class Checked(msgspec.Struct, frozen=True):
    """A result with its data, and what is wrong with that; nothing where `problem` is empty."""

    finished: Finished
    problem: str = ""

    def ending(self) -> Ending:
        if self.problem:
            return Ending(state="failed", reason=BAD_OUTPUT, detail=self.problem, text=self.finished.text)
        return Ending(state="succeeded", text=self.finished.text, data=self.finished.data)


async def fitting(blueprint: Blueprint, finished: Finished) -> Checked:
    """Raises `ExecutorFailure` where nobody could check it: then it is not the agent who could do better."""
    if blueprint.output_schema is None:
        return Checked(finished)
    data = _data(finished)
    try:
        await check_output(blueprint, data)
    except BadAgentInput as error:
        return Checked(finished, error.sentence)
    except (BrokenBlueprint, UncheckedAgentInput) as error:
        raise ExecutorFailure(error.sentence, remedy=error.remedy, reason=BAD_OUTPUT, partial=finished.text) from error
    return Checked(Finished(text=finished.text, data=data))


def reminder(blueprint: Blueprint, problem: str) -> str:
    schema = msgspec.json.encode(blueprint.output_schema).decode()
    return (
        f"Your result cannot be used: {problem}\n"
        f"Answer with the JSON value alone, without any other text. It has to fit this JSON Schema:\n{schema}"
    )


def _data(finished: Finished) -> object:
    """The data an executor has found, or the text read as JSON, with or without the fence that models like to put around it."""
    if finished.data is not None:
        return finished.data
    text = finished.text.strip()
    if text.startswith("```") and text.endswith("```"):
        text = text.removesuffix("```").partition("\n")[2]
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return finished.text
