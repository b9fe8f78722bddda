"""Commands that evaluate models beyond the pipeline's own measures."""

import asyncio
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestration.cli.evaluation import ENDPOINT, choose_role, load_caller
from orchestration.cli.search import open_chat
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

if TYPE_CHECKING:
    from extensions.bench.benchmark_items import BenchmarkPlan, BenchmarkSet
    from extensions.bench.benchmark_models import RouterPools
    from extensions.bench.benchmark_run import BenchmarkModel
    from warehouse.store import Warehouse

app = typer.Typer(rich_help_panel="Models and releases")

BENCHMARKS: dict[str, tuple[str, ...]] = {  # with the options that each reads
    **dict.fromkeys(("api-bank", "api-bank-turns", "bfcl"), ()),
    "livemcpbench": ("tasks",),
    "mcp-atlas": ("tools",),
    "metatool": (),
    "needle": ("requests", "sizes", "positions", "seeds"),
    "worlds": ("world", "server", "tasks"),
}


@app.command()
def bench(
    name: Annotated[str, typer.Argument(help=", ".join(BENCHMARKS))],
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            help="as for `evaluate`, smollm2, must-call:NAME, active:NAME, active-example:NAME,"
            " calls:FILE or retrieval (no model; the default); the first is compared with all",
        ),
    ] = None,
    data: Annotated[Path | None, typer.Option(help="the benchmark's folder or file")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="items, drawn evenly")] = None,
    candidates: Annotated[
        int, typer.Option(min=0, max=10_000, help="tools offered with a request; 0: all")
    ] = 10,
    seed: Annotated[int, typer.Option(min=0, help="of items, orders and endpoints")] = 0,
    epochs: Annotated[int, typer.Option(min=1, max=100, help="answers to each item")] = 1,
    option: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE, an option of the benchmark itself")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="folder for the card, its items and Inspect's logs")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure models on a public benchmark, as a task of Inspect. Answers are kept: a run that was
    stopped goes on where it was, and asks nothing twice.

    Exit 1 where questions got no answer."""
    from extensions.bench.benchmark_card import render_card
    from extensions.bench.benchmark_items import BenchmarkPlan
    from orchestration.factories import open_warehouse
    from orchestration.settings.deploy_policy import make_deploy_policy

    require_known("NAME", [name], BENCHMARKS)
    settings = load_settings()
    warehouse = open_warehouse(settings)
    options = {key: value for key, _, value in (text.partition("=") for text in option or ())}
    require_known("--option", options, BENCHMARKS[name])
    policy = make_deploy_policy(settings) if name == "worlds" else None
    plan = BenchmarkPlan(data, candidates, seed, options, warehouse, policy, report_lines())
    benchmark = _read_benchmark(name, plan)
    folder = out or settings.home_path() / "evaluations" / "bench" / name
    card = _measure_models(
        settings, warehouse, benchmark, plan, [*dict.fromkeys(model or ["retrieval"])],
        limit=limit, epochs=epochs, out=folder,
    )  # fmt: skip
    print_json(card) if as_json else print_markdown("\n".join(render_card(card)))
    print_line(
        f"wrote {folder}; `inspect view --log-dir {folder / 'logs'}` shows each answer", err=True
    )
    failed = sum(sum(each["failures"].values()) for each in card["models"])
    if failed:
        fail(f"{failed} questions got no answer; run again: what is done is kept", 1)


def _read_benchmark(name: str, plan: "BenchmarkPlan") -> "BenchmarkSet":
    from extensions.bench import api_bank, bfcl_items, needles, tool_choices, world_tasks

    readers = {
        "api-bank": api_bank.read_first_calls,
        "api-bank-turns": api_bank.read_turns,
        "bfcl": bfcl_items.read_bfcl_set,
        "livemcpbench": tool_choices.read_live_mcp,
        "mcp-atlas": tool_choices.read_mcp_atlas,
        "metatool": tool_choices.read_metatool,
        "needle": needles.read_needles,
        "worlds": world_tasks.read_worlds,
    }
    return readers[name](plan)


def _measure_models(
    settings: Settings,
    warehouse: "Warehouse",
    benchmark: "BenchmarkSet",
    plan: "BenchmarkPlan",
    names: list[str],
    *,
    limit: int | None,
    epochs: int,
    out: Path,
) -> dict[str, Any]:
    """The card; `out` gets it with every row."""
    from extensions.bench.benchmark_card import (
        describe_benchmark,
        find_repeated,
        measure_alignment,
        summarise_model,
        write_card,
    )
    from extensions.bench.benchmark_items import choose_items
    from extensions.bench.benchmark_run import require_inspect, run_inspect
    from orchestration.factories import make_embedder

    inspect_version = require_inspect()
    items = choose_items(benchmark, plan, limit)
    models = [_open_model(settings, warehouse, benchmark, name) for name in names]
    embed = make_embedder(settings).embed
    contamination, clean = find_repeated(warehouse, items, benchmark.name, embed)
    card = describe_benchmark(benchmark, items, plan, inspect_version, epochs)
    reports, every = list[dict[str, Any]](), list[dict[str, Any]]()
    progress = report_lines()
    for model in models:

        def tell(done: int, of: int, label: str = model.label) -> None:
            progress.update(f"asking {label[:40]}", done, of)

        logs = out / "logs"
        rows, log = run_inspect(
            benchmark, items, model, logs, seed=plan.seed, epochs=epochs, on_done=tell
        )
        first = [row for row in every if reports and row["model"] == reports[0]["model"]]
        summary = summarise_model(rows, benchmark.measures, clean, first)
        facts = {"model": model.label, "identity": model.identity, "log": log.name}
        aligned = measure_alignment(rows, items, embed)
        reports.append({**facts, **summary, "alignment": aligned})
        every += rows
    card |= {"contamination": contamination, "models": reports}
    write_card(out, card, every)
    return card


def _open_model(
    settings: Settings, warehouse: "Warehouse", benchmark: "BenchmarkSet", name: str
) -> "BenchmarkModel":
    """The model that `--model` names. Raises UnusableInput, CannotPredict."""
    from extensions.bench.benchmark_models import (
        ACTIVE,
        CALLS,
        EXAMPLE,
        RETRIEVAL,
        FilePredictor,
        RouterPools,
        RouterPredictor,
    )
    from extensions.bench.benchmark_run import BenchmarkModel
    from orchestration.factories import make_index_embedder

    if name.startswith(CALLS):
        answers = FilePredictor(Path(name.removeprefix(CALLS)))
        answers.require_items([item.item_id for item in benchmark.items], benchmark.name)
        return BenchmarkModel(answers.label, lambda _: answers)
    if name != RETRIEVAL and not name.startswith((ACTIVE, EXAMPLE)):
        return _open_asked_model(settings, warehouse, name)
    encoder = make_index_embedder(settings)
    place = settings.home_path() / "evaluations" / "pools"
    pools = RouterPools(place, encoder, benchmark.servers)
    if name == RETRIEVAL:
        return BenchmarkModel(RETRIEVAL, lambda _: RouterPredictor(pools), identity=encoder.id)
    return _open_active_model(settings, warehouse, name, pools)


def _open_asked_model(settings: Settings, warehouse: "Warehouse", name: str) -> "BenchmarkModel":
    """A model that is shown the tools."""
    from extensions.bench.benchmark_models import (
        MUST_CALL,
        CallingPredictor,
        KeptPredictor,
        identify_model,
    )
    from extensions.bench.benchmark_run import BenchmarkModel
    from training.evaluation.adapter_predictor import AdapterPredictor
    from training.evaluation.endpoint_predictor import EndpointPredictor

    if name.startswith(ENDPOINT):
        role = choose_role(settings, name.removeprefix(ENDPOINT))
        return BenchmarkModel(
            f"{ENDPOINT}{role.model}",
            lambda seed: EndpointPredictor(role, warehouse.ledger, seed=seed),
            role.concurrency,
            role.provider,
        )
    asked = name.removeprefix(MUST_CALL)
    predictor = load_caller(settings, asked)
    if not isinstance(predictor, AdapterPredictor):
        return BenchmarkModel(predictor.label, lambda _: predictor)
    identity = identify_model(settings.home_path(), asked)
    answers = CallingPredictor(predictor) if name.startswith(MUST_CALL) else predictor
    kept = KeptPredictor(answers, warehouse.ledger, identity)
    return BenchmarkModel(kept.label, lambda _: kept, identity=identity)


def _open_active_model(
    settings: Settings, warehouse: "Warehouse", name: str, pools: "RouterPools"
) -> "BenchmarkModel":
    """A model that asks for tools: an endpoint, a local one, or rules."""
    from extensions.bench.benchmark_models import (
        ActivePredictor,
        KeptPredictor,
        LocalSpeaker,
        SeededChat,
        identify_model,
    )
    from extensions.bench.benchmark_run import BenchmarkModel
    from serving.agent_loop import OfflineSpeaker
    from training.evaluation.adapter_predictor import AdapterPredictor
    from training.evaluation.baselines import copy_slots

    asked = name.partition(":")[2]
    if asked.startswith(ENDPOINT):
        role = choose_role(settings, asked.removeprefix(ENDPOINT))

        def open_chat_of(seed: int) -> ActivePredictor:
            return ActivePredictor(
                name, "endpoint", lambda: SeededChat(open_chat(settings, role), seed), pools
            )

        return BenchmarkModel(name, open_chat_of, role.concurrency, role.provider)
    predictor = load_caller(settings, asked)
    if not isinstance(predictor, AdapterPredictor):
        rules = ActivePredictor(
            name, "baseline", lambda: nullcontext(OfflineSpeaker(copy_slots)), pools
        )
        return BenchmarkModel(name, lambda _: rules)
    identity = identify_model(settings.home_path(), asked)
    speaker = LocalSpeaker(predictor)
    active = ActivePredictor(name, "adapter", lambda: nullcontext(speaker), pools)
    kept = KeptPredictor(active, warehouse.ledger, [identity, pools.encoder_id])
    return BenchmarkModel(name, lambda _: kept, identity=identity)


@app.command("agent-eval")
def agent_eval(
    small: Annotated[str, typer.Option(help="baseline, or a caller: its name or folder")],
    limit: Annotated[int, typer.Option(min=1, help="tasks")] = 30,
) -> None:
    """A small model's first call, a larger one goes on: success and tokens against the larger one
    alone, on tasks whose tools run in the sandbox here."""
    from extensions.bench.agent_run import AgentPlan, evaluate_agents
    from orchestration.factories import open_warehouse
    from orchestration.settings.deploy_policy import make_deploy_policy

    settings = load_settings()
    work = evaluate_agents(
        open_warehouse(settings),
        make_deploy_policy(settings),
        load_caller(settings, small),
        choose_role(settings, "actor"),
        AgentPlan(limit),
        report_lines(),
    )
    print_json(asyncio.run(work))
