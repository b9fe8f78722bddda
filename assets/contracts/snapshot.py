"""Snapshots: every server's contracts as of the last run, with their first and last dates."""

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

from assets.columns import read_table_spec
from assets.contracts.canonical import DIGEST_PREFIX, index_contracts
from assets.contracts.validate import find_schema_problem
from warehouse.item_failure import INTERNAL, try_item
from warehouse.json_types import JsonObject, Record
from warehouse.sanitize.untrusted_text import escape_text
from warehouse.storage.blobs import Blobs
from warehouse.storage.digest import canonical_json, sha256

SNAPSHOTS = read_table_spec(__file__, "snapshots")

_SHOWN = 200  # characters of a name or a problem


def build_snapshot(
    previous: Iterable[JsonObject], deployments: Iterable[JsonObject], blobs: Blobs, now: float
) -> list[Record]:
    """Rows of SNAPSHOTS of this run for one marketplace.

    A server that ran gives its tools; one that failed, or whose list nobody foresaw to be
    unreadable (`list_malformed` says why), keeps its last good contracts; one that no
    longer has a deployment row (its listing is gone) is dropped. Tools without a usable contract
    are left out (`list_malformed` names them); of two tools with one name the first counts.
    now: epoch seconds.
    """
    before: dict[str, dict[str, JsonObject]] = {}
    for row in previous:
        before.setdefault(row["server_id"], {})[row["tool"]] = row
    run_date = format_date(now)
    rows: list[Record] = []
    for deployment in deployments:
        known_tools = before.get(deployment["server_id"], {})
        kept_rows = [
            {**row, "marketplace": deployment["marketplace"]} for row in known_tools.values()
        ]
        if deployment["status"] != "ok":
            rows += kept_rows
            continue
        seen_on = format_date(deployment["probed_at"] or now)
        build = partial(_build_rows, deployment, blobs, known_tools, run_date, seen_on)
        rows += try_item(build, lambda _, kept_rows=kept_rows: kept_rows)
    return sorted(rows, key=lambda row: (row["server_id"], row["tool"]))


def list_malformed(deployments: Iterable[JsonObject], blobs: Blobs) -> list[Record]:
    """{server_id, tool, problem} of every listed tool that has no usable contract, escaped."""
    rows: list[Record] = []
    for deployment in deployments:
        problems = try_item(
            partial(_list_problems, deployment, blobs), lambda hint: [("", f"{INTERNAL}: {hint}")]
        )
        for name, problem in problems:
            facts = {"tool": escape_text(name[:_SHOWN]), "problem": escape_text(problem[:_SHOWN])}
            rows.append({"server_id": deployment["server_id"], **facts})
    return rows


def _list_problems(deployment: JsonObject, blobs: Blobs) -> list[tuple[str, str]]:
    tools = read_raw_tools(deployment, blobs)
    return [
        (str(tool.get("name")) if isinstance(tool := tools[place], Mapping) else "", problem)
        for place, problem in index_contracts(tools)[1].items()
    ]


def _build_rows(
    deployment: JsonObject,
    blobs: Blobs,
    known_tools: Mapping[str, JsonObject],
    run_date: str,
    seen_on: str,
) -> list[Record]:
    sandbox = {name: deployment.get(name) for name in ("certificate", "certified", "protocol")}
    rows: list[Record] = []
    for body in index_contracts(read_raw_tools(deployment, blobs))[0].values():
        text = canonical_json(body)
        digest = DIGEST_PREFIX + sha256(text)
        last = known_tools.get(body["name"])
        last = last if last is not None and last["contract_digest"] == digest else None
        problem = last["schema_problem"] if last else find_schema_problem(body["inputSchema"])
        rows.append({
            "marketplace": deployment["marketplace"],
            "server_id": deployment["server_id"],
            "tool": body["name"],
            "contract_digest": digest,
            "contract": text.decode(),
            "schema_problem": problem,
            "recipe_digest": deployment["recipe_digest"],
            "first_seen": last["first_seen"] if last else run_date,
            "last_seen": seen_on,
            **sandbox,
        })  # fmt: skip
    return rows


def read_raw_tools(deployment: JsonObject, blobs: Blobs) -> list[Any]:
    """The list as the server sent it; [] where it did not run."""
    if not deployment.get("tools_blob"):
        return []
    tools = json.loads(blobs.get(deployment["tools_blob"]))
    return tools if isinstance(tools, list) else []


def format_date(epoch: float) -> str:
    """The UTC date of epoch seconds."""
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%d")
