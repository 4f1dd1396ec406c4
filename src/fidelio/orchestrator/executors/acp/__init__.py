"""The executors `gemini`, `opencode` and `qwen`, which speak the Agent Client Protocol."""
