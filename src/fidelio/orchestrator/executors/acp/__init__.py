"""The executors for agents that speak the Agent Client Protocol."""
