"""Commands of batch requests."""

import typer

from extensions.batch.command import app as batch

app = typer.Typer(rich_help_panel="Effects")
app.add_typer(batch, name="batch")
