"""Commands that compare rerankers."""

import typer

from extensions.recommender.rerank_eval_command import app as rerank_eval

app = typer.Typer(rich_help_panel="Models and releases")
app.registered_commands += rerank_eval.registered_commands
