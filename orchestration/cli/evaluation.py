"""The command `evaluate`, and the models that commands name: trained callers, endpoints, rules."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestration.cli.terminal import (
    AsJson,
    fail,
    print_json,
    print_line,
    print_markdown,
    report_lines,
    require_known,
)
from orchestration.settings.load import load_settings
from orchestration.settings.model import Settings
from warehouse.extensions import load_hook

if TYPE_CHECKING:
    from serving.repair.tools import ReviseCall
    from training.evaluation.predictor import Predictor
    from warehouse.llm.roles import Role
    from warehouse.store import Warehouse

app = typer.Typer()
ENDPOINT, CHAMPION = "endpoint:", "champion"


@app.command()
def evaluate(
    model: Annotated[
        list[str],
        typer.Option(
            "--model",
            help="a caller's NAME or folder, constrained:NAME, baseline, endpoint:ROLE_or_MODEL;"
            " the first is compared with the others, alone with the baseline",
        ),
    ],
    split: Annotated[list[str] | None, typer.Option(help="only these; default: all tests")] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="items of each split, and of every other sort at most")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="folder for items.jsonl and report.md")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure callers on the training set's test splits, side by side.

    Right tool, right call, no call where none is right, calls of tools that are gone, changed
    schemas, tokens, seconds and dollars."""
    from orchestration.factories import open_warehouse
    from training.evaluation.caller_markdown import as_markdown
    from training.evaluation.caller_run import LARGE, compare_callers, load_bench, write_out
    from training.sets.split import TEST_SPLITS

    settings = load_settings()
    require_known("--split", split, TEST_SPLITS)
    plan = replace(LARGE, splits=tuple(dict.fromkeys(split))) if split else LARGE
    plan = plan if limit is None else plan.limit_items(limit)
    warehouse = open_warehouse(settings)
    predictors = load_predictors(settings, warehouse, model, plan.seeds[0])
    comparison = compare_callers(load_bench(warehouse), predictors, plan, report_lines())
    if out is not None:
        for path in write_out(out, comparison):
            print_line(f"wrote {path}", err=True)
    print_json(comparison.as_dict()) if as_json else print_markdown(
        as_markdown(comparison.summaries)
    )
    _fail_unanswered(comparison.rows)


def _fail_unanswered(rows: list[dict[str, Any]]) -> None:
    """Exit 1 where an endpoint owed answers; a question that a model cannot be asked is counted."""
    from training.evaluation.caller_run import ENDPOINT_FAILURES, count_unanswered

    for model, kinds in count_unanswered(rows).items():
        owed = {kind: n for kind, n in kinds.items() if kind in ENDPOINT_FAILURES}
        if owed:
            counts = ", ".join(f"{kind} {count}" for kind, count in owed.items())
            fail(
                f"{model[:60]}: {sum(owed.values())} questions got no answer ({counts}) and are in"
                " no figure; repair the endpoint or raise the budget and run again: answers stay",
                1,
            )


def load_predictors(
    settings: Settings, warehouse: "Warehouse", models: list[str], seed: int
) -> list["Predictor"]:
    """Who is asked, each loaded now: a name that is none is told before anything is paid."""
    from training.evaluation.baselines import BaselinePredictor

    results = [_load_predictor(settings, warehouse, name, seed) for name in dict.fromkeys(models)]
    labels = [item.label for item in results]
    twice = next((label for label in labels if labels.count(label) > 1), None)
    if twice is not None:
        fail(f"--model: {twice[:60]!r} is named twice; expected different models", 2)
    if len(results) == 1 and results[0].kind != "baseline":
        results.append(BaselinePredictor())
    if len(results) == 1:
        fail("--model baseline alone: expected another model to compare it with", 2)
    return results


def _load_predictor(
    settings: Settings, warehouse: "Warehouse", name: str, seed: int
) -> "Predictor":
    from training.evaluation.endpoint_predictor import EndpointPredictor

    if name.startswith(ENDPOINT):
        role = choose_role(settings, name.removeprefix(ENDPOINT))
        return EndpointPredictor(role, warehouse.ledger, seed=seed)
    return load_caller(settings, name)


def load_caller(settings: Settings, name: str) -> "Predictor":
    """The baseline, or a trained caller by name or folder; `constrained:` writes fitting calls."""
    from training.evaluation.adapter_predictor import CONSTRAINED, AdapterPredictor, resolve_model
    from training.evaluation.baselines import BaselinePredictor

    if name in ("baseline", BaselinePredictor.label):
        return BaselinePredictor()
    home = settings.home_path()
    adapter_predictor = AdapterPredictor(
        home,
        resolve_model(home, name.removeprefix(CONSTRAINED)),
        device=settings.training.device,
        constrained=name.startswith(CONSTRAINED),
    )
    adapter_predictor.load()  # a name that is none is told now, not after the tools were tried
    return adapter_predictor


def list_roles(settings: Settings) -> dict[str, "Role"]:
    from orchestration.factories import make_writer

    return {role.name: role for role in make_writer(settings).roles}


def choose_role(settings: Settings, name: str) -> "Role":
    from warehouse.llm.roles import OFFLINE, Role

    if not name:
        fail("--model endpoint: has no model; expected endpoint:ROLE or endpoint:MODEL", 2)
    roles = list_roles(settings)
    if name in roles:
        if roles[name].model == OFFLINE:
            fail(
                f"role {name!r} has no model (model 'offline'), and rules call no tools; set"
                f" roles.{name}.model and roles.{name}.base_url in toolmill.toml, or name a model",
                2,
            )
        return roles[name]
    key = settings.openai_api_key
    if not settings.openai_base_url and key is None:
        fail(
            f"{name[:60]!r} is no role (known: {', '.join(sorted(roles))}), and no endpoint is set"
            " that could have such a model; set OPENAI_BASE_URL (and OPENAI_API_KEY)",
            2,
        )
    return Role(
        "evaluated", model=name, base_url=settings.openai_base_url, api_key=key, temperature=0.0
    )


def open_reviser(settings: Settings, name: str) -> "ReviseCall":
    """The model of the ladder's rung `revise`: `champion`, a trained sidecar by its name or folder,
    or `endpoint:` with a role or any model's name. Fails naming what is there."""
    return load_hook("open_reviser")(settings, name)
