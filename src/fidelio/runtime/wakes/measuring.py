"""Measures what the requests of a wake consist of, for session_describe_context and the files about the session."""

from __future__ import annotations

import msgspec

from fidelio.runtime.navigation.context import ContextBudget
from fidelio.runtime.wakes.conversation import Conversation, Part, count_characters
from fidelio.runtime.wakes.preparation import Prepared
from fidelio.runtime.wakes.prompt import MAX_SKILLS, NOTES_OPENING


def measure_context(prepared: Prepared, conversation: Conversation, begun_seq: int) -> ContextBudget:
    """What a request consists of, in characters. `begun_seq` is the event with which the wake began."""
    own = [part for part in conversation.blocks if part.seq == begun_seq]
    notes = sum(count_characters(part.block) for part in own if _is_note(part))
    message = sum(count_characters(part.block) for part in own) - notes
    return ContextBudget(
        window=prepared.info.window,
        reply=min(prepared.agent.definition.max_output_tokens, prepared.info.max_output),
        system={name: len(text) for name, text in prepared.sections.items()},
        tools={
            tool.name: len(tool.name) + len(tool.description) + len(msgspec.json.encode(tool.input_schema))
            for tool in prepared.declarations
        },
        bootstrap={file.name: len(file.text) for file in prepared.bootstrap},
        skills={skill.name: len(skill.name) + len(skill.description) for skill in prepared.skills[:MAX_SKILLS]},
        skill_count=len(prepared.skills),
        notes=notes,
        message=message,
        history=conversation.characters - notes - message,
        history_messages=len(conversation.messages),
    )


def _is_note(part: Part) -> bool:
    return getattr(part.block, "text", "").startswith(NOTES_OPENING)
