"""Commands that review and publish what a home made."""

import typer

from extensions.publishing.push_command import app as push
from extensions.publishing.review_command import app as review

app = typer.Typer(rich_help_panel="Models and releases")
app.registered_commands += push.registered_commands
app.registered_commands += review.registered_commands
