"""The command `contract ci`: it joins the core's group `contract`."""

import typer

from extensions.contract_ci.command import check_change

app = typer.Typer(name="contract")
app.command("ci")(check_change)
