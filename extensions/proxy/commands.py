"""The command that starts the proxy."""

import typer

from extensions.proxy.cli.command import app as proxy

app = typer.Typer(rich_help_panel="Search and serve")
app.registered_commands += proxy.registered_commands
