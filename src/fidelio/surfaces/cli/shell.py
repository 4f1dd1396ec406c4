"""Shell completion."""

from __future__ import annotations

import os

import click
from click.shell_completion import get_completion_class

from fidelio.errors import UsageProblem


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]), required=False)
def completion_command(shell: str | None) -> None:
    """Print the completion script for SHELL (default: the one you use).

    \b
    bash: eval "$(fidelio completion bash)"     in ~/.bashrc
    zsh:  eval "$(fidelio completion zsh)"      in ~/.zshrc
    fish: fidelio completion fish > ~/.config/fish/completions/fidelio.fish
    """
    from fidelio.surfaces.cli.main import cli

    name = shell or os.path.basename(os.environ.get("SHELL", ""))  # noqa: PTH119  # a value of the environment, not a path we open
    completion = get_completion_class(name)
    if completion is None:
        raise UsageProblem(f"There is no completion for the shell {name!r}.", remedy="Name one of bash, zsh and fish.")
    click.echo(completion(cli, {}, "fidelio", "_FIDELIO_COMPLETE").source())
