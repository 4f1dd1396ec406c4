"""Sessions over the API, with the official SDK: created, listed, changed, archived and deleted."""

from __future__ import annotations

from anthropic import AsyncAnthropic

from tests.support import proves
from tests.surfaces.v1.strict import check_object
from tests.surfaces.v1.support import start_agent


@proves("v1.session")
async def test_a_session_has_everything_that_the_sdk_knows(sdk: AsyncAnthropic) -> None:
    agent, environment = await start_agent(sdk)

    made = await sdk.beta.sessions.create(
        agent=agent.id, environment_id=environment.id, title="A title", metadata={"team": "a"}
    )
    found = check_object(await sdk.beta.sessions.retrieve(made.id))

    assert check_object(made).id == found.id
    assert found.id.startswith("sesn_")
    assert (found.status, found.title, found.metadata) == ("idle", "A title", {"team": "a"})
    assert (found.agent.id, found.agent.version, found.environment_id) == (agent.id, agent.version, environment.id)
    assert (found.usage.input_tokens, found.resources, found.vault_ids, found.budget) == (0, [], [], None)
