"""Commands that evaluate models beyond the pipeline's own measures."""

import typer

from extensions.bench.active_command import app as active_eval
from extensions.bench.agent_command import app as agent
from extensions.bench.bfcl_command import app as bfcl

app = typer.Typer(rich_help_panel="Models and releases")
app.registered_commands += active_eval.registered_commands
app.registered_commands += agent.registered_commands
app.registered_commands += bfcl.registered_commands
