"""Which provider a model id names, and what is known of a model."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fidelio.providers.model import ModelInfo, ModelProblem, Price, TokenUsage
from fidelio.providers.names import parse_model_id
from fidelio.providers.registry import Providers, open_providers
from fidelio.providers.scripted import ScriptedProvider
from tests.support import proves


@proves("providers.model-ids")
@pytest.mark.parametrize(
    ("model_id", "provider", "model"),
    [
        ("claude-sonnet-4-5", "anthropic", "claude-sonnet-4-5"),
        ("gpt-5", "openai", "gpt-5"),
        ("o3", "openai", "o3"),
        ("o4-mini", "openai", "o4-mini"),
        ("scripted:demo", "scripted", "demo"),
        ("local-model", "local", ""),
        ("local:/models/tiny.gguf", "local", "/models/tiny.gguf"),
        ("anthropic/some-model", "anthropic", "some-model"),
        ("openai/some-model", "openai", "some-model"),
        ("chat/llama3:8b", "chat", "llama3:8b"),
        ("chat/meta-llama/Llama-3", "chat", "meta-llama/Llama-3"),
        ("local/tiny.gguf", "local", "tiny.gguf"),
    ],
)
def test_a_model_id_names_its_provider(model_id: str, provider: str, model: str) -> None:
    assert parse_model_id(model_id) == (provider, model)


@proves("providers.model-ids")
@pytest.mark.parametrize(
    "model_id", ["", "llama3", "claude", "other/model", "chat/", "opus", "gpt/5", "a\nb", "claude-" + "x" * 300]
)
def test_an_id_that_names_no_provider_is_answered_with_the_valid_forms(model_id: str) -> None:
    with pytest.raises(ModelProblem) as caught:
        parse_model_id(model_id)

    assert "scripted:NAME" in str(caught.value.remedy)
    assert "PROVIDER/MODEL" in str(caught.value.remedy)
    assert not caught.value.retryable


@proves("providers.model-ids")
async def test_a_provider_is_found_once_and_closed_with_the_others() -> None:
    providers = open_providers({})

    found = {name: providers.find(name)[0] for name in ("claude-x", "gpt-x", "chat/x", "scripted:echo", "local-model")}

    assert [provider.name for provider in found.values()] == ["anthropic", "openai", "chat", "scripted", "local"]
    assert providers.find("anthropic/y")[0] is found["claude-x"]
    await providers.close()


@proves("providers.model-ids")
def test_a_provider_that_is_not_registered_is_an_error() -> None:
    providers = Providers({"scripted": ScriptedProvider()})

    with pytest.raises(ModelProblem, match="anthropic is not available"):
        providers.find("claude-sonnet-4-5")


@proves("providers.import")
def test_the_registry_does_not_import_the_http_client() -> None:
    program = (
        "import sys; from fidelio.providers.registry import open_providers; p = open_providers({});"
        "p.find('scripted:echo'); p.describe('claude-sonnet-4-5'); print('httpx2' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60)

    assert done.stdout.strip() == "False"


@proves("providers.prices")
def test_a_well_known_model_has_a_window_and_a_price() -> None:
    info = open_providers({}).describe("claude-sonnet-4-5-20250929")

    assert (info.window, info.max_output) == (200_000, 64_000)
    assert info.price == Price(3, 15, 0.3, 3.75)
    assert info.price.cost_micros(TokenUsage(1_000_000, 100_000, 10_000, 1_000)) == 3_000_000 + 1_500_000 + 3_000 + 3_750


@proves("providers.prices")
@pytest.mark.parametrize("model_id", ["claude-future-9", "gpt-5.9", "chat/gpt-5", "openai/other"])
def test_an_unknown_model_has_a_window_of_200_000_tokens_and_no_price(model_id: str) -> None:
    assert open_providers({}).describe(model_id) == ModelInfo(window=200_000, price=None)


@proves("providers.prices")
def test_a_scripted_model_costs_nothing() -> None:
    price = open_providers({}).describe("scripted:demo").price

    assert price is not None
    assert price.cost_micros(TokenUsage(1_000, 1_000, 1_000, 1_000)) == 0


@proves("providers.prices")
def test_the_users_file_overrides_single_values_and_adds_models(tmp_path: Path) -> None:
    file = tmp_path / "models.yaml"
    file.write_text("claude-sonnet-4-5: {window: 1000000}\nchat/llama3: {window: 8192, price: {input: 1, output: 2}}\n")

    providers = open_providers({}, models=file)

    changed, added = providers.describe("claude-sonnet-4-5"), providers.describe("chat/llama3")
    assert (changed.window, changed.max_output, changed.price) == (1_000_000, 64_000, Price(3, 15, 0.3, 3.75))
    # Without a price of its own, cached input costs what input costs.
    assert (added.window, added.price) == (8_192, Price(1, 2, 1, 1))


@proves("providers.prices")
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("claude-x: {price: {input: 1}}", r"output.*\$\[\.\.\.\]\.price"),
        ("claude-x: {window: big}", "window"),
        ("claude-x: {windows: 1}", "windows"),
        ("what: {window: 1}", "names no provider"),
        ("claude-x: [", "cannot be read"),
        ("claude-x: {price: {input: -1, output: 1}}", "price.input"),
    ],
)
def test_an_invalid_file_of_models_is_refused_with_its_key(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "models.yaml"
    file.write_text(text)

    with pytest.raises(ModelProblem, match=problem):
        open_providers({}, models=file).describe("claude-x")


@proves("providers.prices")
def test_a_missing_file_of_models_is_no_error(tmp_path: Path) -> None:
    assert open_providers({}, models=tmp_path / "models.yaml").describe("gpt-5").window == 400_000
