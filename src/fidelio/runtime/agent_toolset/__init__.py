"""The toolset `agent_toolset_20260401`: tools with the names and inputs that other agent servers share, over our sandbox."""
