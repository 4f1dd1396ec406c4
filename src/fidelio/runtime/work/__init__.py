"""Work of self-hosted environments: tool calls that a worker of the user carries out on its own machine."""
