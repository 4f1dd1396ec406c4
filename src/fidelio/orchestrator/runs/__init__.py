"""Runs of agents in the agent host: admission, preparation, supervision and results."""
