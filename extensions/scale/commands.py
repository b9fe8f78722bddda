"""Commands of a home in a bucket."""

import typer

from extensions.scale.bucket_command import app as bucket

app = typer.Typer(rich_help_panel="Upkeep")
app.add_typer(bucket, name="bucket")
