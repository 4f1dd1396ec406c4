"""A scripted model on loopback that speaks four model APIs.

Everything around it, an agent's requests, its MCP client and the permissions it gives, is the real program. A test either
speaks for the model itself, step by step (`modelled`), or writes down beforehand what it will say (`scripted_model`).
"""

from tests.agents.model.dialogue import Model, modelled
from tests.agents.model.parts import Call, Heard, Held, Refuse, Reply, Say, Seen, Spent, Tool
from tests.agents.model.script import ScriptedModel, scripted_model
from tests.agents.model.server import SECONDS

__all__ = [
    "SECONDS",
    "Call",
    "Heard",
    "Held",
    "Model",
    "Refuse",
    "Reply",
    "Say",
    "ScriptedModel",
    "Seen",
    "Spent",
    "Tool",
    "modelled",
    "scripted_model",
]
