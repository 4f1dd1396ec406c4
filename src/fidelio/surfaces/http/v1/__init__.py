"""The HTTP API `/v1`: agents, environments, sessions and events in the vocabulary of hosted agents. Translation only."""
