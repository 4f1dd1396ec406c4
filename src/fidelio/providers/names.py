"""Model ids: the provider that an id names, and the name of the model there."""

from __future__ import annotations

import re

from fidelio.providers.model import ModelProblem

PROVIDERS = ("anthropic", "openai", "chat", "local", "scripted")
FORMS = (
    "claude-… (Anthropic)",
    "gpt-…, o1…, o3…, o4… (OpenAI)",
    "scripted:NAME",
    "local-model or local:FILE",
    f"PROVIDER/MODEL with one of {', '.join(PROVIDERS)}",
)
_LONGEST = 200
_PREFIXES = (("anthropic", re.compile(r"claude-.")), ("openai", re.compile(r"gpt-.|o\d+(?:-|$)")))


def parse_model_id(model_id: str) -> tuple[str, str]:
    """The provider and the vendor's name of the model; raises `ModelProblem` with the valid forms."""
    if len(model_id) > _LONGEST or not model_id.isprintable():
        raise _make_error(model_id)
    if model_id == "local-model":
        return "local", ""
    for provider in ("scripted", "local"):
        if model_id.startswith(f"{provider}:"):
            return provider, model_id.partition(":")[2]
    provider, separator, model = model_id.partition("/")
    if separator and model and provider in PROVIDERS:
        return provider, model
    found = next((name for name, pattern in _PREFIXES if not separator and pattern.match(model_id)), None)
    if found is None:
        raise _make_error(model_id)
    return found, model_id


def _make_error(model_id: str) -> ModelProblem:
    return ModelProblem(f"The model id {model_id!r:.80} names no provider.", remedy=f"Use one of: {'; '.join(FORMS)}.")
