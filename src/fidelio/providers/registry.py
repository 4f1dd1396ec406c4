"""Registry of the providers by name. An adapter of an HTTP API is imported when it is first looked up.

This is the lazy boundary of the package: the HTTP client takes 0.16 s to import, and most commands call no model.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TypeAlias, cast

from fidelio.providers.local.provider import LocalProvider
from fidelio.providers.model import ModelInfo, ModelProblem, Provider
from fidelio.providers.names import parse_model_id
from fidelio.providers.prices import ModelCatalogue
from fidelio.providers.scripted import ScriptedProvider

_PACKAGE = "fidelio.providers"
# The module of each adapter of an HTTP API has its name.
_ADAPTERS: Mapping[str, str] = {"anthropic": "AnthropicProvider", "openai": "OpenAIProvider", "chat": "ChatProvider"}
Loader: TypeAlias = Callable[[str], Provider]


class Providers:
    """The providers of a process. `load` makes those that are not in `providers`, each at its first use."""

    def __init__(
        self, providers: Mapping[str, Provider], catalogue: ModelCatalogue | None = None, load: Loader | None = None
    ) -> None:
        self._providers = dict(providers)
        self._catalogue = catalogue or ModelCatalogue()
        self._load = load or _refuse

    def find(self, model_id: str) -> tuple[Provider, str]:
        """The provider that a model id names, and the vendor's name of the model. Raises `ModelProblem`."""
        name, model = parse_model_id(model_id)
        return self._get(name), model

    def describe(self, model_id: str) -> ModelInfo:
        """What is configured for a model, else what its provider knows. Raises `ModelProblem`."""
        name, model = parse_model_id(model_id)
        # A price is looked up without importing an adapter.
        known = self._providers[name].describe(model) if name in self._providers else ModelInfo()
        return self._catalogue.describe(name, model, known)

    async def close(self) -> None:
        """Close the providers that were used."""
        for provider in self._providers.values():
            await provider.close()

    def _get(self, name: str) -> Provider:
        if name not in self._providers:
            self._providers[name] = self._load(name)
        return self._providers[name]


def open_providers(environment: Mapping[str, str] = os.environ, *, models: Path | None = None) -> Providers:
    """Open the providers of an environment, which has their keys and addresses. `models`: the user's file of prices."""

    def load(name: str) -> Provider:
        adapter = getattr(import_module(f"{_PACKAGE}.{name}"), _ADAPTERS[name])
        return cast("Provider", adapter(environment))

    on_this_machine: dict[str, Provider] = {"scripted": ScriptedProvider(), "local": LocalProvider(environment)}
    return Providers(on_this_machine, ModelCatalogue(models), load)


def _refuse(name: str) -> Provider:
    raise ModelProblem(f"The provider {name} is not available here.", remedy="Use a model of another provider.")
