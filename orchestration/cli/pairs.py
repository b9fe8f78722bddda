"""Commands about pairs: `judge` and `export`."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from orchestration.cli.terminal import AsJson, fail, print_json, require_known
from orchestration.settings.load import load_settings
from orchestration.settings.model import Settings

if TYPE_CHECKING:
    from assets.synthesis.export.selection import ExportChoice
    from warehouse.llm.client import LLM
    from warehouse.store import Warehouse

app = typer.Typer()


@app.command()
def judge(
    pairs: Annotated[Path, typer.Argument(help="JSON Lines: tool_id, instruction, arguments")],
    tools: Annotated[Path, typer.Option("--tools", help="JSON Lines of servers with their tools")],
    rules_only: Annotated[
        bool, typer.Option("--rules-only", help="stop after the rules: accept, reject or unsure")
    ] = False,
) -> None:
    """Check pairs by rules, then by the judge of `roles.judge`, which scores them from 1 to 10.

    Without a model the judge is rules too, and each line says so."""
    from assets.synthesis.judging.adhoc import judge_rows, read_rows, read_tools, verify_rows
    from orchestration.factories import make_embedder, make_writer

    settings = load_settings()
    rows, tools_by_id = read_rows(pairs), read_tools(tools)
    embed, writer = make_embedder(settings).embed, make_writer(settings)
    retriever = writer.open_retriever()
    find = (lambda texts, _: retriever.embed(texts)) if retriever else None
    if rules_only:
        verdicts = verify_rows(rows, tools_by_id, embed, writer.policy, find)
    else:
        with _open_judge(settings) as llm:
            verdicts = judge_rows(rows, tools_by_id, embed, llm, writer.policy, find)
    for verdict in verdicts:
        print_json(verdict)
    unjudged = [] if rules_only else [row for row in verdicts if row["verdict"] == "unsure"]
    if unjudged:
        why = unjudged[0]["reasons"][-1]
        fail(f"{len(unjudged)} of {len(verdicts)} rows were not judged: {why}", 1)


@app.command(hidden=True)
def verify(
    pairs: Annotated[Path, typer.Argument(help="JSON Lines: tool_id, instruction, arguments")],
    tools: Annotated[Path, typer.Option("--tools", help="JSON Lines of servers with their tools")],
    _: AsJson = True,
) -> None:
    """Check pairs by rules: `judge --rules-only` in one word, for scripts that score the rules."""
    judge(pairs, tools, rules_only=True)


@contextmanager
def _open_judge(settings: Settings) -> Iterator["LLM"]:
    """The judge's client: over the ledger where a model is paid; rules need no home."""
    from orchestration.factories import make_writer, open_warehouse
    from warehouse.store import Warehouse

    if settings.roles.judge.model != "offline":
        yield make_writer(settings).make_llm(open_warehouse(settings), "_")
        return
    with TemporaryDirectory(prefix="toolmill-judge-") as folder:
        yield make_writer(settings).make_llm(Warehouse(Path(folder), Path(folder) / "state"), "_")


@app.command()
def export(
    name: Annotated[
        str, typer.Option("--format", help="hf, sharegpt, openai, trl, messages or dpo")
    ],
    as_of: Annotated[
        str | None, typer.Option("--as-of", help="as of a day (its end, UTC) or a date and time")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="a new folder; default: in the home")] = None,
    split: Annotated[str, typer.Option(help="train, test or all; by server")] = "all",
    tasks: Annotated[
        str | None,
        typer.Option(help="comma-separated; default: all of pairs; trajectory: those played"),
    ] = None,
    commercial_only: Annotated[
        bool, typer.Option("--commercial-only", help="sources known to permit commercial use")
    ] = False,
    proved: Annotated[
        bool, typer.Option("--proved", help="only pairs that their executed call proves")
    ] = False,
    valid: Annotated[
        bool, typer.Option("--valid", help="none whose executed call had an invalid response")
    ] = False,
    traces: Annotated[
        bool, typer.Option("--traces", help="also those of imported traces, which are private")
    ] = False,
) -> None:
    """Write accepted pairs with their tools, split by server, and a dataset card."""
    from assets.synthesis.export.formats import FORMATS
    from assets.synthesis.export.selection import ALL
    from assets.synthesis.export.write import export as write_export
    from assets.synthesis.tables import TASKS, TRAJECTORY
    from orchestration.factories import open_made_warehouse
    from training.sets.split import TEST, TRAIN

    day = as_of or time.strftime("%Y-%m-%d", time.gmtime())
    chosen = tuple(part.strip() for part in tasks.split(",")) if tasks else TASKS
    require_known("--format", [name], tuple(FORMATS))
    require_known("--split", [split], (TRAIN, TEST, ALL))
    require_known("--tasks", chosen, (*TASKS, TRAJECTORY))
    at, settings = _read_moment(day), load_settings()
    warehouse = open_made_warehouse(settings)
    folder = out or settings.home_path() / "exports" / f"{name}-{day.replace(':', '')}"
    choice = _make_choice(warehouse, at, split, chosen, commercial_only, proved, valid)
    if traces:
        from assets.outcomes.trace_pairs import list_traced

        choice = replace(choice, more=[*choice.more, *list_traced(warehouse.tables, at)])
    figures = write_export(warehouse.tables, folder, name, choice, day)
    print_json({"folder": str(folder), "format": name, "as_of": day, **figures.as_json()})


def _read_moment(day: str) -> float:
    from assets.synthesis.export.selection import ExportError, parse_moment

    try:
        return parse_moment(day)
    except ExportError as error:
        fail(str(error), 2)


def _make_choice(
    warehouse: "Warehouse",
    at: float,
    split: str,
    chosen: tuple[str, ...],
    commercial_only: bool,
    proved: bool,
    valid: bool,
) -> "ExportChoice":
    from assets.catalogue.catalogue import read_same_servers
    from assets.contracts.quarantined_tools import open_firewall
    from assets.outcomes.table import PROVED, read_tried
    from assets.outcomes.trajectory import list_exportable
    from assets.synthesis.export.selection import ExportChoice, ask_firewall
    from assets.synthesis.tables import TRAJECTORY
    from training.sets.split import split_of_same

    same = read_same_servers(warehouse.tables, at)
    clear = ask_firewall(open_firewall(warehouse))
    tried = read_tried(warehouse.tables, as_of=at) if proved or valid else {}
    return ExportChoice(
        at,
        lambda server: split_of_same(same.get(server, (server,))),
        clear,
        split,
        chosen,
        commercial_only,
        {name for name, one in tried.items() if one.proof == PROVED} if proved else None,
        {name for name, one in tried.items() if valid and one.invalid},
        list_exportable(warehouse.tables, at) if TRAJECTORY in chosen else (),
    )
