"""A scripted model on loopback that speaks four model APIs.

Everything around it, an agent's requests, its MCP client and the permissions it gives, is the real program. A test either
speaks for the model itself, step by step (`modelled`), or writes down beforehand what it will say (`scripted_model`).
"""

from tests.agents.model.dialogue import Model, modelled
from tests.agents.model.parts import Heard, Held, MessageReply, ModelCall, ModelText, ModelTool, Refuse, Seen, Spent
from tests.agents.model.script import ScriptedModel, scripted_model
from tests.agents.model.server import SECONDS

__all__ = [
    "SECONDS",
    "Heard",
    "Held",
    "MessageReply",
    "Model",
    "ModelCall",
    "ModelText",
    "ModelTool",
    "Refuse",
    "ScriptedModel",
    "Seen",
    "Spent",
    "modelled",
    "scripted_model",
]
