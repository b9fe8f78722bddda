"""Snapshots: every server's contracts as of the last run, with their first and last dates."""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import polars as pl

from assets.contracts.canonical import DIGEST_PREFIX, ContractError, canonicalize_contract
from assets.contracts.history.tool_diff import compare_tools
from assets.contracts.validate import find_schema_problem
from warehouse.sanitize.escape import escape_text
from warehouse.storage.blobs import Blobs
from warehouse.storage.digest import canonical_json, sha256
from warehouse.storage.tables import TableSpec

Row = dict[str, Any]

SNAPSHOTS = TableSpec(
    name="snapshots",
    key=("server_id", "tool"),
    columns={
        "marketplace": pl.String,
        "server_id": pl.String,
        "tool": pl.String,
        "contract_digest": pl.String,  # "c1:<sha256>"
        "contract": pl.String,  # canonical JSON
        "schema_problem": pl.String,  # why the input schema is no JSON Schema; null: it is one
        "recipe_digest": pl.String,  # of the launch that listed it
        "first_seen": pl.String,  # UTC date on which this contract was first listed
        "last_seen": pl.String,  # UTC date on which it was last listed
        "certificate": pl.String,  # sha256 of the sandbox's certificate at the launch
        "certified": pl.Boolean,  # whether that sandbox held every attempt to escape
    },
    volatile=("last_seen", "certificate"),
    schema_version=2,
)

CHANGES = TableSpec(
    name="contract_changes",
    key=("server_id", "tool", "from_digest", "to_digest", "run_date"),
    columns={
        "server_id": pl.String,
        "tool": pl.String,
        "from_digest": pl.String,  # "" where the tool is new
        "to_digest": pl.String,  # "" where the tool is gone
        "run_date": pl.String,  # UTC date
        "cls": pl.String,  # breaking, compatible, wording, suspicious
        "fields": pl.String,  # JSON list
        "renamed_from": pl.String,
        "why": pl.String,  # about the fields that decide the class; null in rows of older versions
    },
    schema_version=2,
)
TWICE = "its name was listed before"
_WHY = 500  # characters
_SHOWN = 200  # characters of a name or a problem


def build_snapshot(
    previous: Iterable[Mapping[str, Any]],
    deployments: Iterable[Mapping[str, Any]],
    blobs: Blobs,
    now: float,
) -> list[Row]:
    """Rows of SNAPSHOTS of this run for one marketplace.

    A server that ran gives its tools; one that failed keeps its last good contracts; one that no
    longer has a deployment row (its listing is gone) is dropped. Tools without a usable contract
    are left out (`malformed` lists them); of two tools with one name the first counts.
    now: epoch seconds.
    """
    before: dict[str, dict[str, Mapping[str, Any]]] = {}
    for row in previous:
        before.setdefault(row["server_id"], {})[row["tool"]] = row
    run_date = _format_date(now)
    rows: list[Row] = []
    for deployment in deployments:
        known = before.get(deployment["server_id"], {})
        if deployment["status"] != "ok":
            kept = ({**row, "marketplace": deployment["marketplace"]} for row in known.values())
            rows.extend(kept)
            continue
        seen = _format_date(deployment["probed_at"] or now)
        for body in contracts_of(raw_tools(deployment, blobs)):
            rows.append(_build_row(deployment, body, known, run_date, seen))
    return sorted(rows, key=lambda row: (row["server_id"], row["tool"]))


def contracts_of(tools: Iterable[Any]) -> list[dict[str, Any]]:
    """The contracts of raw tools: usable ones, first of each name."""
    found: dict[str, dict[str, Any]] = {}
    for tool in tools:
        try:
            body = canonicalize_contract(tool)
        except (ContractError, AttributeError):
            continue
        found.setdefault(body["name"], body)
    return list(found.values())


def list_malformed(deployments: Iterable[Mapping[str, Any]], blobs: Blobs) -> list[Row]:
    """{server_id, tool, problem} of every listed tool that has no usable contract, escaped."""
    rows: list[Row] = []
    for deployment in deployments:
        tools = raw_tools(deployment, blobs)
        for place, problem in find_problems(tools).items():
            tool = tools[place]
            name = str(tool.get("name")) if isinstance(tool, Mapping) else ""
            rows.append(
                {
                    "server_id": deployment["server_id"],
                    "tool": escape_text(name[:_SHOWN]),
                    "problem": escape_text(problem[:_SHOWN]),
                }
            )
    return rows


def find_problems(tools: Sequence[Any]) -> dict[int, str]:
    """Place in a raw list -> why that entry has no contract of its own."""
    found: dict[int, str] = {}
    names: set[str] = set()
    for place, tool in enumerate(tools):
        try:
            name = canonicalize_contract(tool)["name"]
        except (ContractError, AttributeError) as error:
            found[place] = str(error)
            continue
        if name in names:
            found[place] = TWICE
        names.add(name)
    return found


def add_changes(
    history: Iterable[Mapping[str, Any]],
    old: Iterable[Mapping[str, Any]],
    new: Iterable[Mapping[str, Any]],
    now: float,
) -> list[Row]:
    """`history` (rows of CHANGES) and what changed from snapshot rows `old` to `new`.

    A server that is new has no changes. One that two marketplaces list counts once. now: epoch
    seconds.
    """
    run_date = _format_date(now)
    before, after = _group_by_server(old), _group_by_server(new)
    found: dict[tuple[Any, ...], Row] = {
        tuple(row[name] for name in CHANGES.key): dict(row) for row in history
    }
    for server in sorted(before):
        gone, come = before[server], after.get(server, {})
        for row in _compare_server(server, gone, come, run_date):
            found.setdefault(tuple(row[name] for name in CHANGES.key), row)
    return sorted(found.values(), key=lambda row: tuple(row[name] for name in CHANGES.key))


def _compare_server(
    server: str,
    old: Mapping[str, Mapping[str, Any]],
    new: Mapping[str, Mapping[str, Any]],
    run_date: str,
) -> Sequence[Row]:
    if {t: r["contract_digest"] for t, r in old.items()} == {
        t: r["contract_digest"] for t, r in new.items()
    }:
        return []
    found = compare_tools(
        [json.loads(row["contract"]) for row in old.values()],
        [json.loads(row["contract"]) for row in new.values()],
    )
    return [
        {
            "server_id": server,
            "tool": change.tool,
            "from_digest": old.get(change.renamed_from or change.tool, {}).get(
                "contract_digest", ""
            ),
            "to_digest": new.get(change.tool, {}).get("contract_digest", ""),
            "run_date": run_date,
            "cls": change.cls,
            "fields": canonical_json(list(change.fields)).decode(),
            "renamed_from": change.renamed_from,
            "why": escape_text(change.why[:_WHY]),
        }
        for change in found
    ]


def _build_row(
    deployment: Mapping[str, Any],
    body: dict[str, Any],
    known: Mapping[str, Mapping[str, Any]],
    run_date: str,
    seen: str,
) -> Row:
    text = canonical_json(body)
    name = DIGEST_PREFIX + sha256(text)
    last = known.get(body["name"])
    same = last is not None and last["contract_digest"] == name
    return {
        "marketplace": deployment["marketplace"],
        "server_id": deployment["server_id"],
        "tool": body["name"],
        "contract_digest": name,
        "contract": text.decode(),
        "schema_problem": last["schema_problem"]
        if same and last
        else find_schema_problem(body["inputSchema"]),
        "recipe_digest": deployment["recipe_digest"],
        "first_seen": last["first_seen"] if same and last else run_date,
        "last_seen": seen,
        "certificate": deployment.get("certificate"),
        "certified": deployment.get("certified"),
    }


def raw_tools(deployment: Mapping[str, Any], blobs: Blobs) -> list[Any]:
    """The list as the server sent it; [] where it did not run."""
    if not deployment.get("tools_blob"):
        return []
    tools = json.loads(blobs.get(deployment["tools_blob"]))
    return tools if isinstance(tools, list) else []


def _group_by_server(rows: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Mapping[str, Any]]]:
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["server_id"], {}).setdefault(row["tool"], row)
    return found


def _format_date(epoch: float) -> str:
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%d")
