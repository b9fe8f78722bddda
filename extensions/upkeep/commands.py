"""Commands that look after a home."""

import typer

from extensions.upkeep.cli.audits import app as audits
from extensions.upkeep.cli.backup import app as backup
from extensions.upkeep.cli.doctor import app as doctor
from extensions.upkeep.cli.gc import app as gc
from extensions.upkeep.cli.takedown import app as takedown

app = typer.Typer(rich_help_panel="Upkeep")
app.registered_commands += doctor.registered_commands
app.registered_commands += gc.registered_commands
app.registered_commands += backup.registered_commands
app.registered_commands += audits.registered_commands
app.add_typer(takedown, name="takedown")
