"""The commands `agent-eval` and `contamination`."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from orchestration.cli.evaluation import choose_role, load_caller
from orchestration.cli.terminal import print_json, report_lines
from orchestration.settings.load import load_settings

app = typer.Typer(add_completion=False)

AsJson = Annotated[
    bool, typer.Option("--json", show_default=False, help="one JSON object (the default)")
]


@app.command("agent-eval")
def agent_eval(
    small: Annotated[str, typer.Option(help="baseline, or a caller: its name or folder")],
    role: Annotated[str, typer.Option(help="whose model goes on, or a model's name")] = "actor",
    limit: Annotated[int, typer.Option(min=1, help="tasks")] = 30,
    tools: Annotated[int, typer.Option(min=1, max=128, help="offered in a task")] = 10,
    turns: Annotated[int, typer.Option(min=1, help="of the larger model in a task")] = 6,
    split: Annotated[list[str] | None, typer.Option(help="only these; default: all tests")] = None,
    as_json: AsJson = True,
) -> None:
    """A small model's first call, a larger one goes on: success and tokens against the larger one
    alone, on tasks whose tools run in the sandbox here."""
    from extensions.bench.agent_loop import AgentLimits
    from extensions.bench.agent_run import AgentPlan, evaluate_agents
    from orchestration.factories import open_warehouse
    from orchestration.settings.deploy_policy import make_deploy_policy

    settings = load_settings()
    plan = AgentPlan(limit, tools, tuple(split) if split else None, AgentLimits(turns=turns))
    work = evaluate_agents(
        open_warehouse(settings),
        make_deploy_policy(settings),
        load_caller(settings, small),
        choose_role(settings, role),
        plan,
        report_lines(),
    )
    print_json(asyncio.run(work))


@app.command()
def contamination(
    file: Annotated[Path, typer.Argument(help="an outside set: JSON Lines, a JSON list or CSV")],
    field: Annotated[
        str | None, typer.Option(help="field with the text; default: instruction, query …")
    ] = None,
    ngram: Annotated[int, typer.Option(min=2, help="words of an n-gram")] = 8,
    share: Annotated[
        float, typer.Option(min=0.01, max=1, help="flagged from this part of its n-grams on")
    ] = 0.5,
    cosine: Annotated[
        float, typer.Option(min=0, max=1, help="flagged from this cosine on; 0: no embedder")
    ] = 0.95,
    items: Annotated[bool, typer.Option("--items", help="a line for each flagged item")] = False,
    as_json: AsJson = True,
) -> None:
    """How much of an outside set repeats the training pairs: copies, n-grams, near-duplicates."""
    from extensions.bench.contamination import (
        ContaminationBounds,
        check_against_training,
        read_texts,
    )
    from orchestration.factories import make_embedder, open_warehouse

    settings = load_settings()
    texts = read_texts(file, field)
    bounds = ContaminationBounds(n=ngram, share=share, cosine=cosine or None)
    found = check_against_training(
        open_warehouse(settings), texts, file.name, bounds, make_embedder(settings).embed
    )
    if items:
        for item in found.flagged:
            print_json(item)
    print_json(found.summary)
