"""One module for each kind of agent, all behind `contract.Executor`."""
