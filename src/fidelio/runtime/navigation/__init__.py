"""Navigation tools: the setup, the sessions, their logs and the context of an agent. They read, and change nothing."""
