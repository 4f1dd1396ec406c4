"""Agent sessions: real coding agents, started from blueprints, watched, resumed, stopped, and never lost."""
