"""The door of training: the set, the adapters, their evaluations, champions, release and index."""

import base64
import json
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl
from dagster._core.errors import DagsterPipesExecutionError

from assets.contracts.canonical import tool_text
from assets.contracts.snapshot import SNAPSHOTS
from assets.synthesis.rows import JUDGEMENTS, PAIRS
from assets.vectors.embed import BASE, Embedder
from assets.vectors.index import contract_of, embed_texts
from serving.index import load_index, make_router_index
from training.adapters import adapter_row, adapter_rules, adapter_table
from training.caller import CallerSettings
from training.champion import Promotion, champion, consider, current_release, make_release
from training.drift import DRIFT, drift_row, drift_state
from training.evaluate import (
    BASE_LABEL,
    RETRIEVER_EVALUATION,
    NothingToEvaluate,
    encoder,
    evaluate_retriever,
    recall_summary,
)
from training.evaluate_caller import (
    BASELINE,
    CALLER_EVALUATION,
    CallerTest,
    call_summary,
    evaluate_callers,
)
from training.models import card, write_job
from training.report import write_report
from training.retrain import RetrainPolicy, decide
from training.retriever import RetrieverSettings
from training.split import TEST, TRAIN
from training.training_set import (
    TRAINING_SET,
    accepted,
    build_training_set,
    load_manifest,
    manifest,
    save_manifest,
    set_flaws,
)
from warehouse.audit import Audit, Verdict, expect_one_of, expect_unique
from warehouse.digest import digest
from warehouse.effects.ledger import Outcome
from warehouse.lance import LanceStore
from warehouse.publish import Published, audited, publish, publish_digest, refuse
from warehouse.store import Warehouse
from warehouse.tables import plan

ROOT = Path(__file__).resolve().parent.parent
Row = dict[str, Any]
# The run's log shows the loss; progress bars and library notices would hide it.
QUIET = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "PYTHONWARNINGS": "ignore",
    "TQDM_DISABLE": "1",
}
MEASURES = ("valid", "tool_ok", "ast_ok")


@dataclass(frozen=True)
class Trainer:
    """What is trained, for how long, and where."""

    retriever: RetrieverSettings = field(default_factory=RetrieverSettings)
    caller: CallerSettings = field(default_factory=CallerSettings)
    caller_base: str = "tiny"
    caller_test: CallerTest = field(default_factory=CallerTest)
    drift: RetrainPolicy = field(default_factory=RetrainPolicy)


@dg.asset(
    deps=["judgements", "pairs", "snapshots"],
    group_name="training",
    check_specs=audited("training_set"),
    pool="lance",
    description="Accepted pairs of current contracts, split by server, with hard negatives.",
)
def training_set(
    context: dg.AssetExecutionContext,
    warehouse: dg.ResourceParam[Warehouse],
    embedder: dg.ResourceParam[Embedder],
) -> Published:
    tables, store = warehouse.tables, LanceStore(warehouse.home / "lance")
    chosen = accepted(tables.read(PAIRS).to_dicts(), tables.read(JUDGEMENTS).to_dicts())
    contracts = tables.read(SNAPSHOTS).unique(["server_id", "tool"], keep="first").to_dicts()
    made = build_training_set(chosen, contracts, lambda texts: embed_texts(texts, embedder, store))
    frame = TRAINING_SET.frame(made.rows)
    name = TRAINING_SET.digest(frame)
    flaws = set_flaws(made.rows)
    previous = tables.read(TRAINING_SET)
    if not flaws:
        # Kept before the pointer moves: a set without its manifest cannot be compared with.
        lance = store.tag(f"training-set-{name[:16]}") if made.rows else None
        save_manifest(
            warehouse.home, manifest(made, name, embedder=embedder.id, lance_version=lance)
        )
    yield from publish(
        context,
        warehouse,
        TRAINING_SET,
        frame,
        expectations=[expect_unique("pair_id"), expect_one_of("split", [TRAIN, TEST])],
        rules=[Verdict("splits_and_negatives", not flaws, "; ".join(flaws[:3]) or "no flaw")],
        plan=plan(_ids(previous), _ids(frame)),
        metadata={
            "train": len(frame.filter(pl.col("split") == TRAIN)),
            "test": len(frame.filter(pl.col("split") == TEST)),
            "dropped": made.dropped,
        },
    )


@dg.asset(
    deps=["training_set", "snapshots", "retriever_champion"],
    group_name="training",
    check_specs=audited("drift"),
    description="How far the contracts have moved since the last training, and whether to retrain.",
)
def drift(
    context: dg.AssetExecutionContext,
    warehouse: dg.ResourceParam[Warehouse],
    trainer: dg.ResourceParam[Trainer],
) -> Published:
    state = drift_state(warehouse)
    decision = decide(state, trainer.drift)
    yield from publish(
        context,
        warehouse,
        DRIFT,
        DRIFT.frame([drift_row(state, decision)]),
        metadata={
            "share": state.share,
            "retrain": decision.retrain,
            "reasons": "; ".join(decision.reasons),
        },
    )


@dg.asset(
    deps=["training_set"],
    group_name="training",
    check_specs=audited("retriever_adapter"),
    pool="train",
    description="LoRA adapter of the embedder, trained on accepted pairs of the train servers.",
)
def retriever_adapter(
    context: dg.AssetExecutionContext,
    warehouse: dg.ResourceParam[Warehouse],
    trainer: dg.ResourceParam[Trainer],
    pipes: dg.ResourceParam[dg.PipesSubprocessClient],
) -> Published:
    yield from _train(context, warehouse, pipes, "retriever", BASE, asdict(trainer.retriever))


@dg.asset(
    deps=["training_set"],
    group_name="training",
    check_specs=audited("caller_adapter"),
    pool="train",
    description="LoRA adapter of a causal model that writes the call; the tiny base is made here.",
)
def caller_adapter(
    context: dg.AssetExecutionContext,
    warehouse: dg.ResourceParam[Warehouse],
    trainer: dg.ResourceParam[Trainer],
    pipes: dg.ResourceParam[dg.PipesSubprocessClient],
) -> Published:
    base = trainer.caller_base
    yield from _train(context, warehouse, pipes, "caller", base, asdict(trainer.caller))


@dg.asset(
    deps=["retriever_adapter", "training_set"],
    group_name="training",
    check_specs=audited("retriever_evaluation"),
    pool="lance",
    description="Rank of the right tool for each request of servers never trained on.",
)
def retriever_evaluation(
    context: dg.AssetExecutionContext, warehouse: dg.ResourceParam[Warehouse]
) -> Published:
    candidate = _candidate(warehouse, "retriever")
    store = LanceStore(warehouse.home / "lance")
    labels = dict.fromkeys([BASE_LABEL, champion(warehouse.home, "retriever").model, candidate])
    texts = [tool_text(contract_of(row)) for row in warehouse.tables.read(SNAPSHOTS).to_dicts()]
    try:
        rows = evaluate_retriever(
            _rows(warehouse, TEST),
            texts,
            {label: encoder(warehouse.home, label, store) for label in labels},
            _set_name(warehouse),
        )
    except NothingToEvaluate as error:
        yield from refuse(context, warehouse, "retriever_evaluation", "test_items", error)
        return
    summary = recall_summary(rows, candidate)
    yield from publish(
        context,
        warehouse,
        RETRIEVER_EVALUATION,
        RETRIEVER_EVALUATION.frame(rows),
        expectations=[expect_unique("model", "pair_id")],
        metadata={
            "n": summary["n"],
            "recall_at_1_base": summary["recall_at_1"]["incumbent"]["value"],
            "recall_at_1": summary["recall_at_1"]["candidate"]["value"],
            "recall_at_5": summary["recall_at_5"]["candidate"]["value"],
            "summary": dg.MetadataValue.json(summary),
        },
    )


@dg.asset(
    deps=["caller_adapter", "training_set"],
    group_name="training",
    check_specs=audited("caller_evaluation"),
    pool="train",
    description="Tool and AST of the caller on servers never trained on, beside BM25 + slots.",
)
def caller_evaluation(
    context: dg.AssetExecutionContext,
    warehouse: dg.ResourceParam[Warehouse],
    trainer: dg.ResourceParam[Trainer],
) -> Published:
    candidate = _candidate(warehouse, "caller")
    incumbent = champion(warehouse.home, "caller").model
    models = [name for name in dict.fromkeys([incumbent, candidate]) if name != BASELINE]
    try:
        rows = evaluate_callers(
            _rows(warehouse, TEST),
            warehouse.home,
            models,
            _set_name(warehouse),
            trainer.caller_test,
        )
    except NothingToEvaluate as error:
        yield from refuse(context, warehouse, "caller_evaluation", "test_items", error)
        return
    summary = call_summary(rows, candidate)
    yield from publish(
        context,
        warehouse,
        CALLER_EVALUATION,
        CALLER_EVALUATION.frame(rows),
        expectations=[expect_unique("model", "pair_id")],
        metadata={
            "n": summary["n"],
            **{
                name: summary[name]["candidate"]["value"] for name in ("valid", "tool_ok", "ast_ok")
            },
            "baseline_ast": summary["ast_ok"]["incumbent"]["value"],
            "summary": dg.MetadataValue.json(summary),
        },
    )


@dg.asset(
    deps=["retriever_evaluation"],
    group_name="training",
    check_specs=audited("retriever_champion"),
    description="The best retriever so far; a candidate must be better beyond its interval.",
)
def retriever_champion(
    context: dg.AssetExecutionContext, warehouse: dg.ResourceParam[Warehouse]
) -> Published:
    rows = warehouse.tables.read(RETRIEVER_EVALUATION).to_dicts()
    candidate = _candidate(warehouse, "retriever")
    incumbent = champion(warehouse.home, "retriever").model
    against = BASE_LABEL if incumbent == candidate else incumbent
    summary = recall_summary(rows, candidate, against)
    yield from _crown(warehouse, "retriever", candidate, summary["gain_at_1"], summary)


@dg.asset(
    deps=["caller_evaluation"],
    group_name="training",
    check_specs=audited("caller_champion"),
    description="The best caller so far; it starts with BM25 selection and slot copying.",
)
def caller_champion(
    context: dg.AssetExecutionContext, warehouse: dg.ResourceParam[Warehouse]
) -> Published:
    rows = warehouse.tables.read(CALLER_EVALUATION).to_dicts()
    candidate = _candidate(warehouse, "caller")
    incumbent = champion(warehouse.home, "caller").model
    against = BASELINE if incumbent == candidate else incumbent
    summary = call_summary(rows, candidate, against)
    yield from _crown(warehouse, "caller", candidate, summary["gain"], summary)


@dg.asset(
    deps=["retriever_champion", "caller_champion", "snapshots"],
    group_name="serving",
    check_specs=audited("release"),
    description="One consistent set: the champions and the contracts they serve.",
)
def release(context: dg.AssetExecutionContext, warehouse: dg.ResourceParam[Warehouse]) -> Published:
    models = {role: champion(warehouse.home, role).model for role in ("retriever", "caller")}
    missing = [
        f"{role} {name[:12]}"
        for role, name in models.items()
        if name not in (BASE_LABEL, BASELINE) and card(warehouse.home, name) is None
    ]
    rules = [Verdict("models_present", not missing, ", ".join(missing) or "all on disk")]
    if missing:
        yield from publish_digest("release", "", Audit(rules))
        return
    tables = warehouse.tables
    heads = {name: tables.head("snapshots", name) for name in tables.partitions("snapshots")}
    contracts = digest({name: head.digest for name, head in heads.items() if head})
    name = make_release(warehouse.home, models, contracts, _set_name(warehouse))
    yield from publish_digest("release", name, Audit(rules), **models)


@dg.asset(
    deps=["release", "contract_vectors"],
    group_name="serving",
    check_specs=audited("router_index"),
    pool="lance",
    description="What the router searches: every current tool, by the release's retriever.",
)
def router_index(
    context: dg.AssetExecutionContext, warehouse: dg.ResourceParam[Warehouse]
) -> Published:
    served = current_release(warehouse.home)
    rows = warehouse.tables.read(SNAPSHOTS).to_dicts()
    store = LanceStore(warehouse.home / "lance")
    tools = {(row["server_id"], row["tool"]) for row in rows}
    version = make_router_index(
        warehouse.home, rows, store, served["models"]["retriever"], served["release"]
    )
    held = len(load_index(warehouse.home, version).entries)
    verdict = Verdict("one_entry_per_tool", held == len(tools), f"{held} of {len(tools)} tools")
    yield from publish_digest("router_index", version, Audit([verdict]), tools=held)


@dg.asset(
    deps=["router_index", "drift"],
    group_name="serving",
    check_specs=audited("report"),
    description="What was measured, on how much, beside which baseline; with plots.",
)
def report(context: dg.AssetExecutionContext, warehouse: dg.ResourceParam[Warehouse]) -> Published:
    home = warehouse.home
    trained_on = champion(home, "retriever").last_candidate.get("training_set")
    content = load_manifest(home, trained_on or _set_name(warehouse)) or {}
    facts = {
        "manifest": content,
        "retriever_card": _last_card(warehouse, "retriever"),
        "retriever": _summary(warehouse, "retriever"),
        "caller_card": _last_card(warehouse, "caller"),
        "caller": _summary(warehouse, "caller"),
        "champions": [asdict(champion(home, role)) for role in ("retriever", "caller")],
        "release": current_release(home),
        "drift": warehouse.tables.read(DRIFT).to_dicts()[0],
    }
    name = digest(json.loads(json.dumps(facts)))
    # Named by the release's day and the facts: the same facts again are the same folder.
    day = time.strftime("%Y-%m-%d", time.gmtime(facts["release"]["at"]))
    path = write_report(home, f"{day}-{name[:8]}", **facts)
    verdict = Verdict("written", path.exists(), str(path))
    text = dg.MetadataValue.md(_inlined(path))
    yield from publish_digest(
        "report", name, Audit([verdict]), path=dg.MetadataValue.path(str(path)), report=text
    )


def _train(
    context: dg.AssetExecutionContext,
    warehouse: Warehouse,
    pipes: dg.PipesSubprocessClient,
    role: str,
    base: str,
    settings: Row,
) -> Published:
    """Trains in a process of its own, once per (role, base, set, settings); the ledger knows."""
    home, asset = warehouse.home, f"{role}_adapter"
    rows = _rows(warehouse, TRAIN)
    name, job = write_job(home, role, base, _set_name(warehouse), settings, rows)

    def train() -> Outcome:
        pipes.run(
            context=context,
            command=[sys.executable, "-m", f"training.{role}_script", str(job)],
            cwd=str(ROOT),
            env=QUIET,
        )
        return Outcome(name.encode(), model=name)

    key = digest({"train": name})
    if card(home, name) is None:
        warehouse.ledger.forget(key)  # its product was lost, so the effect is due again
    try:
        warehouse.ledger.once(f"train:{role}", key, train)
    except DagsterPipesExecutionError as error:
        told = RuntimeError(f"{role} training failed; the run's log has its last words ({error})")
        yield from refuse(context, warehouse, asset, "training", told)
        return
    made = card(home, name) or {}
    spec = adapter_table(role)
    yield from publish(
        context,
        warehouse,
        spec,
        spec.frame([adapter_row(made)]),
        rules=adapter_rules(home, made),
        metadata={key: made[key] for key in ("pairs", "loss_first", "loss_last", "seconds")},
    )


def _crown(warehouse: Warehouse, role: str, candidate: str, gain: Row, evidence: Row) -> Published:
    considered: Promotion = consider(
        warehouse.home, role, candidate, _candidate_set(warehouse, role), gain, evidence
    )
    now = considered.champion
    verdict = Verdict("better_or_kept", True, considered.why)
    yield from publish_digest(
        f"{role}_champion",
        digest({"role": role, "model": now.model}),
        Audit([verdict]),
        model=now.model,
        promoted=considered.promoted,
        why=considered.why,
    )


def _rows(warehouse: Warehouse, split: str) -> list[Row]:
    return warehouse.tables.read(TRAINING_SET).filter(pl.col("split") == split).to_dicts()


def _set_name(warehouse: Warehouse) -> str:
    head = warehouse.tables.head(TRAINING_SET.name)
    return head.digest if head else ""


def _last_adapter(warehouse: Warehouse, role: str) -> Row:
    rows = warehouse.tables.read(adapter_table(role)).to_dicts()
    if not rows:
        raise dg.Failure(
            f"no {role} was trained yet: materialize {role}_adapter first", allow_retries=False
        )
    return rows[0]


def _candidate(warehouse: Warehouse, role: str) -> str:
    return _last_adapter(warehouse, role)["model"]


def _candidate_set(warehouse: Warehouse, role: str) -> str:
    return _last_adapter(warehouse, role)["training_set"]


def _last_card(warehouse: Warehouse, role: str) -> Row | None:
    rows = warehouse.tables.read(adapter_table(role)).to_dicts()
    return card(warehouse.home, rows[0]["model"]) if rows else None


def _summary(warehouse: Warehouse, role: str) -> Row | None:
    """The last evaluation of the last candidate against the untrained model, or None."""
    spec = RETRIEVER_EVALUATION if role == "retriever" else CALLER_EVALUATION
    rows = warehouse.tables.read(spec).to_dicts()
    last = warehouse.tables.read(adapter_table(role)).to_dicts()
    if not rows or not last or last[0]["model"] not in {row["model"] for row in rows}:
        return None
    measure = recall_summary if role == "retriever" else call_summary
    return measure(rows, last[0]["model"])


def _ids(frame: pl.DataFrame) -> dict[str, str]:
    return dict(frame.select("pair_id", "contract_digest").iter_rows())


def _inlined(path: Path) -> str:
    """The report with its plots as data URLs, so that the UI shows them."""
    text = path.read_text()
    for plot in sorted(path.parent.glob("*.png")):
        data = base64.b64encode(plot.read_bytes()).decode()
        text = text.replace(f"({plot.name})", f"(data:image/png;base64,{data})")
    return text
