"""The executor `scripted`: an agent without a model that follows a script."""
