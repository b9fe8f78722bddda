"""Commands that evaluate models beyond the pipeline's own measures."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from extensions.bench.bfcl_command import app as bfcl
from orchestration.cli.evaluation import choose_role, load_caller
from orchestration.cli.search import open_chat, read_calls, resolve_role
from orchestration.cli.terminal import (
    AlwaysJson,
    fail,
    print_json,
    print_line,
    report_lines,
    require_known,
)
from orchestration.settings.load import load_settings
from orchestration.settings.model import Settings

if TYPE_CHECKING:
    from extensions.bench.active_cases import CaseSet, NeedlePlan
    from extensions.bench.active_run import ArmMeasurement

app = typer.Typer(rich_help_panel="Models and releases")

SETS = ("needle", "api-bank")


@app.command("active-eval")
def active_eval(
    which: Annotated[str, typer.Option("--set", help=", ".join(SETS))] = "needle",
    data: Annotated[
        Path | None,
        typer.Option(help="api-bank: its folder; needle: a file of servers; default: the home"),
    ] = None,
    requests: Annotated[
        Path | None,
        typer.Option(help="needle, with --data: JSON Lines with `tool_id` and `instruction`"),
    ] = None,
    model: Annotated[
        str, typer.Option(help="as for `agent`, or a caller's NAME, a model's folder")
    ] = "actor",
    arm: Annotated[list[str] | None, typer.Option(help="only these; default: all")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="cases, drawn evenly")] = None,
    sizes: Annotated[int, typer.Option(min=1, max=50, help="needle: how many sizes of pools")] = 8,
    positions: Annotated[
        int, typer.Option(min=1, max=21, help="needle: places of the right tool in a pool")
    ] = 3,
    seed: Annotated[list[int] | None, typer.Option(help="needle: drawings; default: 0")] = None,
    out: Annotated[Path | None, typer.Option(help="folder for items.jsonl and report.md")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> None:
    """Measure a model that is shown every tool against one that asks for them: needle grids, and
    API-Bank's Domain and Full pools, single and multi-turn."""
    from extensions.bench.active_cases import ARMS, NeedlePlan
    from extensions.bench.active_run import write_measured, write_page

    require_known("--set", [which], SETS)
    require_known("--arm", arm, ARMS)
    if which == "api-bank" and (data is None or requests is not None):
        fail("--set api-bank: give its folder as --data DIR (and no --requests)", 2)
    if which == "needle" and (data is None) != (requests is None):
        fail("--set needle: give --data SERVERS.jsonl and --requests FILE together, or neither", 2)
    settings = load_settings()
    plan = NeedlePlan(sizes, positions, tuple(seed or (0,)))
    cases = _read_cases(settings, which, data, requests, plan)
    chosen = [item for item in ARMS if item in (arm or ARMS)]
    made = asyncio.run(_compare(settings, cases, model, chosen, limit))
    if out is not None:
        write_measured(out, made)
    if as_json:
        print_json(made.as_dict())
        return
    for line in write_page(made.facts, made.summary):
        print_line(line)


def _read_cases(
    settings: Settings, which: str, data: Path | None, requests: Path | None, plan: "NeedlePlan"
) -> "CaseSet":
    from extensions.bench.active_cases import make_needles, read_api_bank, read_files, read_home
    from orchestration.factories import open_made_warehouse

    if which == "api-bank":
        assert data is not None
        return read_api_bank(data)
    if data is not None and requests is not None:
        source, asked = read_files(data, requests)
    else:
        source, asked = read_home(open_made_warehouse(settings))
        if not source.rows or not asked:
            fail(
                f"{settings.home_path()}: {len(source.rows)} clear tools and {len(asked)} accepted"
                " requests in the test splits of its training set; run `make run` first, or give"
                " --data SERVERS.jsonl --requests FILE",
                2,
            )
    return make_needles(source, asked, plan)


async def _compare(
    settings: Settings, held: "CaseSet", name: str, arms: list[str], limit: int | None
) -> "ArmMeasurement":
    from extensions.bench.active_run import evaluate_arms
    from orchestration.factories import make_index_embedder

    speaker, facts, at_once, close = _open_speaker(settings, name)
    place = settings.home_path() / "evaluations" / "pools"
    try:
        return await evaluate_arms(
            held, arms, speaker, read_calls, make_index_embedder(settings), place,
            facts=facts, limit=limit, at_once=at_once, progress=report_lines(),
        )  # fmt: skip
    finally:
        await close()


def _open_speaker(settings: Settings, name: str) -> tuple[Any, dict[str, Any], int, Any]:
    """(who converses, {provider, model}, cases at once, how it is closed)."""
    from extensions.bench.active_cases import LocalSpeaker
    from serving.agent_loop import OfflineSpeaker
    from training.evaluation.adapter_predictor import AdapterPredictor, resolve_model
    from training.evaluation.baselines import copy_slots

    home = settings.home_path()
    local = (home / "models" / name).is_dir() or Path(name).is_dir()
    if local:
        folder = resolve_model(home, name)
        predictor = AdapterPredictor(home, folder, device=settings.training.device)
        predictor.load()
        return LocalSpeaker(predictor), {"provider": "local", "model": name}, 1, _skip_close
    role = resolve_role(settings, name)
    if role is None:
        return OfflineSpeaker(copy_slots), {"provider": "offline", "model": None}, 1, _skip_close
    chat = open_chat(settings, role)
    facts = {"provider": role.provider, "model": role.model}
    return chat, facts, role.concurrency, chat.aclose


async def _skip_close() -> None:
    """Nothing is open."""


@app.command("agent-eval")
def agent_eval(
    small: Annotated[str, typer.Option(help="baseline, or a caller: its name or folder")],
    role: Annotated[str, typer.Option(help="whose model goes on, or a model's name")] = "actor",
    limit: Annotated[int, typer.Option(min=1, help="tasks")] = 30,
    split: Annotated[list[str] | None, typer.Option(help="only these; default: all tests")] = None,
    _: AlwaysJson = True,
) -> None:
    """A small model's first call, a larger one goes on: success and tokens against the larger one
    alone, on tasks whose tools run in the sandbox here."""
    from extensions.bench.agent_run import AgentPlan, evaluate_agents
    from orchestration.factories import open_warehouse
    from orchestration.settings.deploy_policy import make_deploy_policy

    settings = load_settings()
    plan = AgentPlan(limit, splits=tuple(split) if split else None)
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
    items: Annotated[bool, typer.Option("--items", help="a line for each flagged item")] = False,
    _: AlwaysJson = True,
) -> None:
    """How much of an outside set repeats the training pairs: copies, n-grams, near-duplicates."""
    from extensions.bench.contamination import check_against_training, read_texts
    from orchestration.factories import make_embedder, open_warehouse

    settings = load_settings()
    texts = read_texts(file, field)
    embed = make_embedder(settings).embed
    match = check_against_training(open_warehouse(settings), texts, file.name, embed)
    if items:
        for item in match.flagged:
            print_json(item)
    print_json(match.summary)


app.registered_commands += bfcl.registered_commands
