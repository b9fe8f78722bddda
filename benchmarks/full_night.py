"""A nightly run over the full replica, with launches simulated from published tool lists.

    python -m benchmarks.full_night --data SERVERS.jsonl [--servers 1482] [--home DIR]

A line of SERVERS.jsonl is a server with its `tools`. The crawl reads the replica of Smithery; its
n-th listing gets the tools of the n-th server, as if it had been launched. All other assets run as
every night, with the offline writer and judge. On the second night 1% of the tool lists differ.
Tokens are a quarter of the bytes of questions and answers. Prints one JSON object a night.
"""

import argparse
import json
import os
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

from assets.marketplaces.listing_table import LISTINGS
from assets.marketplaces.policy import CrawlPolicy
from assets.servers.deploy.deployment_table import DEPLOYMENTS
from assets.synthesis.offline.provider import OfflineProvider
from assets.synthesis.pair_report import count_accepted_pairs
from assets.synthesis.tables import JUDGEMENTS, PAIRS
from benchmarks.bench_crawl import SITE, run_replica
from orchestration.definitions import build_defs
from orchestration.factories import open_warehouse
from orchestration.runs.instance import make_config, open_instance
from orchestration.runs.workers import RunTask
from orchestration.settings.load import load_settings
from training.sets.training_set import TRAINING_SET
from warehouse.json_types import Row
from warehouse.llm.client import ModelCompletion, ModelRequest
from warehouse.storage.digest import canonical_json, digest
from warehouse.store import Warehouse

NIGHT = ("snapshots", "findings", "clear_contracts", "contract_vectors", "pairs", "judgements")
JOINED = ("contract_changes", "catalogue", "listed_contracts", "confusables", "training_set")
SERVED = ("release", "router_index")
CHANGED = 100  # one server in so many has another tool list on the second night
PRICES = 0.10, 0.40  # US dollars a million tokens in and out: an example, as in docs/scale.md


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--servers", type=int, default=1482)
    parser.add_argument("--home", type=Path, default=None)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, chosen.data.open(encoding="utf-8") as lines:
        home = (chosen.home or Path(folder)).resolve()
        os.environ |= {"TOOLMILL_HOME": str(home), "DAGSTER_HOME": str(home / "history")}
        (home / "history").mkdir(parents=True, exist_ok=True)
        (home / "history" / "dagster.yaml").write_bytes(make_config())
        servers = [row for row in map(json.loads, lines) if row["tools"]][: chosen.servers]
        for day in (1, 2):
            with run_replica(len(servers), day=1) as url, open_instance() as instance:
                figures = run_night(instance, url, home, change_tools(servers, day))
            print(
                json.dumps({"night": day, "servers": len(servers), **figures}, indent=1), flush=True
            )


def count_tokens() -> list[int]:
    """[tokens of questions, of answers] that the offline provider has to do with from now on."""
    tokens, answer = [0, 0], OfflineProvider.answer

    async def count(self: OfflineProvider, request: ModelRequest) -> ModelCompletion:
        completion = await answer(self, request)
        tokens[0] += len(json.dumps(request.messages, ensure_ascii=False).encode()) // 4
        tokens[1] += len(completion.text.encode()) // 4
        return completion

    OfflineProvider.answer = count
    return tokens


def change_tools(servers: list[Row], day: int) -> list[list[dict[str, Any]]]:
    """The tools of each server; on day two one server in a hundred has another first tool."""
    lists = []
    for at, server in enumerate(servers):
        tools = [
            {"inputSchema": {"type": "object", "properties": {}}, **tool}
            for tool in server["tools"]
        ]
        if day == 2 and at % CHANGED == 0:
            tools[0] = {**tools[0], "description": f"{tools[0].get('description') or ''} Updated."}
        lists.append(tools)
    return lists


def run_night(
    instance: Any, url: str, home: Path, tools: list[list[dict[str, Any]]]
) -> dict[str, Any]:
    """Seconds and processor seconds a stage, and what the night left."""
    policy = CrawlPolicy(
        base_url=url, site_url=url, requests_per_second=0, allow_loopback=True, concurrency=8
    )
    defs = build_defs(resources={"crawlers": {SITE: policy}})
    warehouse, stages, tokens = open_warehouse(load_settings()), dict[str, Any](), count_tokens()

    def run(job: str, name: str, partition: str | None = None) -> None:
        began, busy = time.perf_counter(), count_cpu()
        result = defs.resolve_job_def(job).execute_in_process(
            instance=instance, partition_key=partition,
            asset_selection=RunTask(job, names=(name,)).list_assets(), raise_on_error=False,
        )  # fmt: skip
        stages[name] = {
            "wall_s": round(time.perf_counter() - began, 1),
            "cpu_s": round(count_cpu() - busy, 1),
            "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
        }
        if not result.success:
            failed = [event for event in result.all_events if event.is_step_failure]
            stages[name]["failed"] = str(failed[0].step_failure_data.error_display_string)[:2_000]
        print(name, stages[name], flush=True)

    run("nightly", "listings", SITE)
    began = time.perf_counter()
    deploy_listed(warehouse, tools)
    stages["deployments (simulated)"] = {"wall_s": round(time.perf_counter() - began, 1)}
    for job, names, partition in (
        ("nightly", NIGHT, SITE),
        ("fan_in", JOINED, None),
        ("serve", SERVED, None),
    ):
        for name in names:
            run(job, name, partition)
    usd = sum(n * price / 1e6 for n, price in zip(tokens, PRICES, strict=True))
    spent = {"tokens": tokens, "usd": round(usd, 4)}
    return {"stages": stages, **count_results(warehouse, home), **spent}


def deploy_listed(warehouse: Warehouse, tools: list[list[dict[str, Any]]]) -> None:
    """Writes deployments of the crawled listings, in their order, with these tools."""
    listed = warehouse.tables.read(LISTINGS, SITE).sort("listing_id").to_dicts()
    rows = [
        {
            **dict.fromkeys(DEPLOYMENTS.columns),
            "server_id": f"npm:@simulated/{row['listing_id'].rpartition('/')[2]}",
            "marketplace": SITE,
            "listing_id": row["listing_id"],
            "launch_digest": digest([row["listing_id"]]),
            "recipe_digest": digest([row["listing_id"]]),
            "ecosystem": "npm",
            "version": "1.0.0",
            "status": "ok",
            "n_tools": len(of),
            "tools_blob": warehouse.blobs.put(canonical_json(of)),
            "attempts": 1,
        }
        for row, of in zip(listed, tools, strict=False)
    ]
    staged = warehouse.tables.stage(DEPLOYMENTS, DEPLOYMENTS.frame(rows), SITE)
    warehouse.tables.promote(staged, "simulated", [])


def count_results(warehouse: Warehouse, home: Path) -> dict[str, Any]:
    """Rows of both nights' tables, model answers so far, and megabytes on the disk."""
    costs, tables = warehouse.ledger.costs(), warehouse.tables
    judged = tables.read(JUDGEMENTS)
    size = sum(path.stat().st_size for path in home.rglob("*") if path.is_file())
    return {
        "tools": sum(row["n_tools"] for row in tables.read(DEPLOYMENTS, SITE).to_dicts()),
        "pairs": len(tables.read(PAIRS)),
        "accepted": count_accepted_pairs(judged)[1] if len(judged) else 0,
        "training_rows": len(tables.read(TRAINING_SET)),
        "model_answers": sum(row["effects"] for row in costs if row["model"]),
        "disk_mb": size >> 20,
    }


def count_cpu() -> float:
    """Processor seconds of this process and its ended children."""
    return sum(
        used.ru_utime + used.ru_stime
        for used in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


if __name__ == "__main__":
    main()
