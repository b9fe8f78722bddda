"""The command `toolmill rerank-eval`: which method orders tools best by judged executions."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestration.cli.terminal import fail, print_json, print_line, require_known
from orchestration.settings.load import load_settings

if TYPE_CHECKING:
    from extensions.recommender.feedback_file import FeedbackRows, JudgedPool
    from extensions.recommender.rerank_method import FoldResult

app = typer.Typer(add_completion=False)


@app.command("rerank-eval")
def rerank_eval(
    feedback: Annotated[Path, typer.Option(help="judged executions, in ToolFlix's format")],
    tools: Annotated[Path, typer.Option(help="servers with `id` and `tools`")],
    method: Annotated[list[str] | None, typer.Option(help="only these; default: all")] = None,
    folds: Annotated[int, typer.Option(min=2, max=20)] = 5,
    fold: Annotated[int | None, typer.Option(min=0, help="only this one, from 0")] = None,
    seed: Annotated[int, typer.Option(help="decides which task is in which fold")] = 0,
    embedder: Annotated[str | None, typer.Option(help="default: the settings'")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> None:
    """Fit every method on all folds but one and score that one, folds grouped by task: AUC and
    same-task pair accuracy, by fold and method."""
    from extensions.recommender.feedback_file import embed_judged, read_feedback, read_tools
    from extensions.recommender.methods import METHODS
    from extensions.recommender.rerank_method import tabulate_methods

    require_known("--method", method, list(METHODS))
    if fold is not None and fold >= folds:
        fail(f"--fold {fold}: folds are 0 to {folds - 1}", 2)
    read, described = read_feedback(feedback), read_tools(tools)
    if read.first_flaw:
        print_line(f"{feedback}: left out: {read.first_flaw}", err=True)
    held = embed_judged(read.rows, described, _open_embedder(embedder))
    for note in _list_notes(held, folds):
        print_line(f"{feedback}: {note}", err=True)
    names = [name for name in METHODS if name in (method or METHODS)]
    results = _run_folds(held, names, folds, fold, seed)
    table = tabulate_methods(results, held.examples)
    if as_json:
        facts = _tell_facts(read, held, folds, seed)
        print_json({**facts, "methods": table})
        return
    for name in sorted(table, key=lambda name: -float(str(table[name]["auc"] or 0))):
        row = table[name]
        auc, pairs = (_write_share(row[part]) for part in ("auc", "pair_accuracy"))
        print_line(f"{name:<18} AUC {auc}  pairs {pairs} of {row['pairs']}")


def _write_share(value: Any) -> str:
    return "not measured" if value is None else f"{value:.4f}"


def _list_notes(held: "JudgedPool", folds: int) -> list[str]:
    """What of a file leaves figures unmeasured, or worth less than they look."""
    verdicts, tasks = (
        {example.success for example in held.examples},
        {example.task for example in held.examples},
    )
    notes = []
    if len(verdicts) == 1:
        ended = "worked" if verdicts == {True} else "failed"
        notes.append(f"all {len(held.examples)} rows {ended}: nothing tells tools apart")
    if len(tasks) < folds:
        notes.append(f"tasks for {len(tasks)} of {folds} folds only")
    if held.unknown:
        some = f"{len(held.unknown)} of {len(held.pool)} tools"
        notes.append(f"{some} are in no file of tools, and known by their name only")
    return notes


def _open_embedder(spec: str | None) -> Any:
    from assets.vectors.encoders.choose import open_embedder
    from orchestration.factories import make_index_embedder

    return open_embedder(spec) if spec else make_index_embedder(load_settings())


def _run_folds(
    held: "JudgedPool", names: list[str], folds: int, fold: int | None, seed: int
) -> "dict[str, list[FoldResult]]":
    from extensions.recommender.methods import METHODS
    from extensions.recommender.rerank_method import assign_folds, run_fold

    fold_of = assign_folds(held.examples, folds, seed)
    chosen = range(folds) if fold is None else [fold]
    results = {}
    for name in names:
        results[name] = [
            run_fold(name, METHODS[name], held.examples, held.pool, fold_of, item)
            for item in chosen
            if (fold_of == item).any()
        ]
        print_line(f"{name}: {sum(result.seconds for result in results[name]):.1f} s", err=True)
    return results


def _tell_facts(read: "FeedbackRows", held: "JudgedPool", folds: int, seed: int) -> dict[str, Any]:
    return {
        "rows": len(held.examples),
        "tasks": len({example.task for example in held.examples}),
        "tools": len(held.pool),
        "unknown_tools": len(held.unknown),
        "left_out": dict(read.left_out),
        "folds": folds,
        "seed": seed,
    }
