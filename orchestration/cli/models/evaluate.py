"""The command `evaluate`: callers of any kind, asked the same test items, side by side."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestration.cli.terminal import fail, print_json
from orchestration.settings.load import load_settings
from orchestration.settings.model import Settings

if TYPE_CHECKING:
    from training.evaluation.caller.plan import TestPlan
    from training.evaluation.predictors.interface import Predictor
    from warehouse.llm.roles import Role
    from warehouse.store import Warehouse

app = typer.Typer(add_completion=False)

_ENDPOINT = "endpoint:"


@app.command()
def evaluate(
    model: Annotated[
        list[str],
        typer.Option(
            "--model",
            help="a caller's NAME or folder, baseline, router, endpoint:ROLE_or_MODEL;"
            " the first is compared with the others, alone with the baseline",
        ),
    ],
    split: Annotated[list[str] | None, typer.Option(help="only these; default: all tests")] = None,
    candidates: Annotated[list[int] | None, typer.Option(help="tools offered: 10 and 100")] = None,
    distractors: Annotated[list[str] | None, typer.Option(help="random, hard")] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="items of each split, and of every other sort at most")
    ] = None,
    seed: Annotated[list[int] | None, typer.Option(help="of the distractors; several: all")] = None,
    perturb: Annotated[bool, typer.Option(help="ask under changed schemas too")] = True,
    examples: Annotated[
        int | None,
        typer.Option(
            min=0, max=20, help="similar accepted train pairs in the prompt; default: the setting"
        ),
    ] = None,
    max_new: Annotated[
        int | None, typer.Option("--max-new", min=1, help="tokens of a local model's answer")
    ] = None,
    bfcl_data: Annotated[
        Path | None, typer.Option("--bfcl-data", help="instead: a folder of BFCL-format files")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="folder for items.jsonl and report.md")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> None:
    """Measure callers on the training set's test splits: the right tool, the right call, no call
    where none is right, calls of tools that are gone, changed schemas, tokens, seconds, dollars."""
    from orchestration.resources import make_embedder, open_warehouse
    from training.evaluation.caller.adhoc import compare_callers, write_out
    from training.evaluation.caller.bench import load_bench
    from training.evaluation.caller.markdown import as_markdown
    from warehouse.progress import Lines

    settings = load_settings()
    plan = _make_plan(split, candidates, distractors, limit, seed, perturb)
    warehouse = open_warehouse(settings)
    asked = _load_predictors(settings, warehouse, model, plan, max_new)
    progress = Lines(lambda line: typer.echo(line, err=True))
    if bfcl_data is not None:
        _evaluate_outside(warehouse, bfcl_data, asked, limit, settings, out)
        return
    n = settings.training.evaluation.examples if examples is None else examples
    embed = make_embedder().embed if n else None
    made = compare_callers(
        load_bench(warehouse), asked, plan, examples=n, embed=embed, progress=progress
    )
    if out is not None:
        for path in write_out(out, made):
            typer.echo(f"wrote {path}", err=True)
    print_json(made.as_dict()) if as_json else typer.echo(as_markdown(made.summaries))
    _fail_unanswered(made.rows)


def _make_plan(
    split: list[str] | None,
    candidates: list[int] | None,
    distractors: list[str] | None,
    limit: int | None,
    seed: list[int] | None,
    perturb: bool,
) -> "TestPlan":
    from training.evaluation.caller.adhoc import LARGE
    from training.sets.candidates import HARD, RANDOM
    from training.sets.split import TEST_SPLITS

    _require_known("--split", split, TEST_SPLITS)
    _require_known("--distractors", distractors, (RANDOM, HARD))
    small = next((n for n in candidates or () if n < 2), None)
    if small is not None:
        fail(f"--candidates {small}: expected 2 or more tools to choose from", 2)
    changed: dict[str, Any] = {
        "splits": split,
        "candidates": candidates,
        "distractors": distractors,
        "seeds": seed,
    }
    plan = replace(LARGE, **{n: tuple(dict.fromkeys(held)) for n, held in changed.items() if held})
    if not perturb:
        plan = replace(plan, perturbations=0)
    return plan if limit is None else plan.limit_items(limit)


def _require_known(option: str, given: list[str] | None, known: tuple[str, ...]) -> None:
    for word in given or ():
        if word not in known:
            fail(f"{option} {word[:40]!r} does not exist; known: {', '.join(known)}", 2)


def _load_predictors(
    settings: Settings,
    warehouse: "Warehouse",
    models: list[str],
    plan: "TestPlan",
    max_new: int | None,
) -> list["Predictor"]:
    """Who is asked, each loaded now: a name that is none is told before anything is paid."""
    from training.evaluation.predictors.baseline import BaselinePredictor

    made = [
        _load_predictor(settings, warehouse, name, plan, max_new) for name in dict.fromkeys(models)
    ]
    labels = [one.label for one in made]
    twice = next((label for label in labels if labels.count(label) > 1), None)
    if twice is not None:
        fail(f"--model: {twice[:60]!r} is named twice; expected different models", 2)
    if len(made) == 1 and made[0].kind != "baseline":
        made.append(BaselinePredictor())
    if len(made) == 1:
        fail("--model baseline alone: expected another model to compare it with", 2)
    return made


def _load_predictor(
    settings: Settings, warehouse: "Warehouse", name: str, plan: "TestPlan", max_new: int | None
) -> "Predictor":
    from training.evaluation.predictors.adapter import AdapterPredictor, resolve_model
    from training.evaluation.predictors.baseline import BaselinePredictor
    from training.evaluation.predictors.endpoint import EndpointPredictor
    from training.evaluation.predictors.router import RouterPredictor

    if name in ("baseline", BaselinePredictor.label):
        return BaselinePredictor()
    if name == "router":
        return RouterPredictor(warehouse.home)
    if name.startswith(_ENDPOINT):
        role = _choose_role(settings, name.removeprefix(_ENDPOINT))
        return EndpointPredictor(role, warehouse.ledger, seed=plan.seeds[0])
    home = warehouse.home
    device = settings.training.device
    made = AdapterPredictor(home, resolve_model(home, name), device=device, max_new=max_new)
    made.load()
    return made


def _choose_role(settings: Settings, name: str) -> "Role":
    """A role of the settings, or any model's name at the settings' endpoint."""
    from orchestration.resources import make_writer
    from warehouse.llm.roles import OFFLINE, Role

    if not name:
        fail("--model endpoint: has no model; expected endpoint:ROLE or endpoint:MODEL", 2)
    roles = {role.name: role for role in make_writer(settings).roles}
    if name in roles:
        if roles[name].model == OFFLINE:
            fail(
                f"role {name!r} has model 'offline', which calls no tools; set roles.{name}.model"
                f" and roles.{name}.base_url in toolmill.toml, or name a model: endpoint:MODEL",
                1,
            )
        return roles[name]
    key = settings.openai_api_key
    if not settings.openai_base_url and key is None:
        fail(
            f"--model endpoint:{name[:60]}: no endpoint is set; set OPENAI_BASE_URL (and"
            f" OPENAI_API_KEY), or name a role: {', '.join(sorted(roles))}",
            2,
        )
    return Role(
        "evaluated",
        model=name,
        base_url=settings.openai_base_url,
        api_key=key,
        temperature=0.0,
    )


def _evaluate_outside(
    warehouse: "Warehouse",
    folder: Path,
    asked: list["Predictor"],
    limit: int | None,
    settings: Settings,
    out: Path | None,
) -> None:
    import json

    from orchestration.resources import make_embedder
    from training.evaluation.outside.bfcl import OutsidePlan, evaluate_outside_set
    from warehouse.progress import Lines
    from warehouse.storage.files import write_atomically

    progress = Lines(lambda line: typer.echo(line, err=True))
    plan = OutsidePlan(per_category=limit)
    told = evaluate_outside_set(warehouse, folder, asked, make_embedder().embed, plan, progress)
    rows = told.pop("rows")
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        write_atomically(out / "outside.jsonl", lines.encode())
    print_json(told)
    failed = sum(bool(row["failed"]) for row in rows)
    if failed:
        fail(f"{failed} of {len(rows)} questions got no answer; run again: what is done is kept", 1)


def _fail_unanswered(rows: list[dict[str, Any]]) -> None:
    """Exit 1 where an endpoint owed answers; a question that a model cannot be asked is counted."""
    from training.evaluation.caller.adhoc import ENDPOINT_FAILURES, count_unanswered

    for model, kinds in count_unanswered(rows).items():
        owed = {kind: n for kind, n in kinds.items() if kind in ENDPOINT_FAILURES}
        if owed:
            told = ", ".join(f"{kind} {count}" for kind, count in owed.items())
            fail(
                f"{model[:60]}: {sum(owed.values())} questions got no answer ({told}) and are in no"
                " figure; repair the endpoint or raise the budget and run again: answers stay",
                1,
            )
