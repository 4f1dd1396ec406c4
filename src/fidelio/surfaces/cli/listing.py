"""`fidelio list`: the workflows on the search path, and which of them are broken."""

from __future__ import annotations

import click

from fidelio.definitions.library import WorkflowSummary
from fidelio.surfaces.cli.context import (
    CliContext,
    json_option,
    print_items,
    print_message,
    print_sentence,
    print_table,
    with_cli_context,
    workflows_option,
)
from fidelio.surfaces.views.definitions import view_workflow


@click.command("list")
@workflows_option
@json_option
@with_cli_context
def list_command(cli: CliContext, directories: tuple[str, ...], with_bundled: bool, as_json: bool) -> None:
    """List the workflows on the search path.

    Only the file of each workflow is checked; `fidelio lint` and `fidelio doctor` also read activities, skills and other files.
    """
    library = cli.open(directories, with_bundled=with_bundled).open_library()
    entries, root_findings = library.checked_list(), library.root_findings()
    for finding in root_findings:
        print_message(str(finding))
    if as_json:
        found = [finding.as_json() for finding in root_findings]
        untrusted = {"untrusted": [str(root.path) for root in library.untrusted]} if library.untrusted else {}
        print_items([view_workflow(entry) for entry in entries], None, findings=found, **untrusted)
    elif not entries:
        print_sentence("No workflows found. A workflow is a directory with workflow.yaml, workflow.toon or workflow.json.")
    else:
        print_table([_entry_row(entry) for entry in entries], ["id", "version", "from", "title"], cut=["from", "title"])
        for entry in entries:
            for finding in entry.findings:
                print_message(str(finding))


def _entry_row(entry: WorkflowSummary) -> dict[str, str]:
    title = f"(broken) {entry.title}" if entry.broken else entry.title
    return {"id": entry.id, "version": entry.version or "-", "from": entry.root, "title": title}
