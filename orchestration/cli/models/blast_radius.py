"""The command `toolmill blast-radius`: what depends on a tool's contract."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestration.cli.terminal import print_json, print_line
from orchestration.settings.load import load_settings

if TYPE_CHECKING:
    from training.reporting.blast_radius import Made
    from warehouse.storage.tables import Tables
    from warehouse.store import Warehouse

app = typer.Typer(add_completion=False)


@app.command("blast-radius")
def blast(
    tool: Annotated[str, typer.Argument(help="server_id::tool, a tool's name, or c1:…")],
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object, all lists")] = False,
) -> None:
    """What was made of a tool: pairs, judgements, vectors, eval items, training sets, adapters,
    champions, the release. Exit 2 for an unknown tool, or where it is not plain which."""
    from assets.contracts.changes import iterate_contracts
    from orchestration.factories import open_made_warehouse
    from training.reporting.blast_radius import find_blast_radius, find_tool

    warehouse = open_made_warehouse(load_settings())
    target = find_tool(tool, iterate_contracts(warehouse.tables))
    radius = find_blast_radius(target, collect_made(warehouse))
    print_json(radius) if as_json else _print_radius(radius)


def collect_made(warehouse: "Warehouse") -> "Made":
    """What all packages keep, as plain rows."""
    from assets.synthesis.tables import JUDGEMENTS, PAIRS
    from assets.vectors.index import VECTORS
    from training.evaluation.caller_table import CALLER_EVALUATION
    from training.evaluation.retriever import RETRIEVER_EVALUATION
    from training.last_run import set_name
    from training.releases.champion import read_champion
    from training.releases.release import read_current_release
    from training.reporting.blast_radius import Made
    from training.role import list_roles
    from warehouse.storage.lance import LanceStore, make_vector_key

    tables, home = warehouse.tables, warehouse.home
    evaluations = {"retriever": RETRIEVER_EVALUATION, "caller": CALLER_EVALUATION}
    return Made(
        pairs=tables.read(PAIRS).iter_rows(named=True),
        judgements=tables.read(JUDGEMENTS).iter_rows(named=True),
        vectors=tables.read(VECTORS).to_dicts(),
        missing=LanceStore(home / "lance").find_missing,
        vector_key=make_vector_key,
        sets=_read_sets(tables),
        current_set=set_name(warehouse),
        evaluations={role: tables.read(spec).to_dicts() for role, spec in evaluations.items()},
        models=_read_cards(home),
        champions=[
            {"role": role, "model": read_champion(home, role).model} for role in list_roles()
        ],
        release=read_current_release(home),
        index=_read_entries(home),
    )


def _read_sets(tables: "Tables") -> dict[str, list[dict[str, Any]]]:
    """Every training set that was published, by its name."""
    from training.sets.training_set import TRAINING_SET

    return {
        head.digest: tables.read(TRAINING_SET, as_of=head.at)
        .select("pair_id", "server_id", "tool", "contract_digest", "negatives")
        .to_dicts()
        for head in tables.history(TRAINING_SET.name)
    }


def _read_cards(home: Path) -> Iterator[dict[str, Any]]:
    for path in sorted((home / "models").glob("*/model.json")):
        yield json.loads(path.read_bytes())


def _read_entries(home: Path) -> Iterator[dict[str, Any]]:
    """The tools of the served index, as its file lists them."""
    from serving.index.folder import read_served_version
    from serving.index.model import IndexMissing

    try:
        path = home / "router" / read_served_version(home) / "tools.jsonl"
    except IndexMissing:
        return
    with path.open() as lines:
        yield from map(json.loads, lines)


def _print_radius(radius: dict[str, Any]) -> None:
    from assets.contracts.tool_id import ToolId

    name = f"{ToolId.of_row(radius)}  " if radius["tool"] else ""
    print_line(f"{name}{len(radius['contracts'])} contracts: {', '.join(radius['contracts'])}")
    for kind, found in radius.items():
        if not isinstance(found, dict):
            continue
        parts = [
            f"{by.removeprefix('by_')} " + ", ".join(f"{k}: {n}" for k, n in counts.items())
            for by, counts in found.items()
            if by.startswith("by_") and counts
        ]
        print_line(f"{found['count']:>7}  {kind:<14} {'; '.join(parts)}".rstrip())
