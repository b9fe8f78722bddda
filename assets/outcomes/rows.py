"""The rows of executions: of one call each, and what only several calls of a tool show."""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from assets.outcomes.outcome import CANNED, STALE, USEFUL, find_canned
from assets.outcomes.run import Done, Job
from assets.outcomes.select import WantedCall
from assets.outcomes.table import EXECUTIONS, PROVED, UNPROVED
from assets.synthesis.contract_reading import read_purpose
from warehouse.item_failure import INTERNAL
from warehouse.json_types import Record
from warehouse.sanitize.redact import redact

_READS = ("read", "search", "compute")


def make_execution_row(job: Job, done: Done) -> dict[str, Any]:
    """The row of EXECUTIONS of one job, without its marketplace, plan and time."""
    call, wanted = job.wanted.call, job.wanted
    row: dict[str, Any] = {
        **dict.fromkeys(EXECUTIONS.columns),
        "execution_id": job.id,
        "server_id": call.server_id,
        "tool": call.tool,
        "contract_digest": call.contract_digest,
        "recipe_digest": job.server.recipe_digest,
        "arguments": wanted.arguments,
        "pair_ids": json.dumps(sorted(wanted.pairs)),
        "refused_ids": json.dumps(sorted(wanted.refused)),
        "twin_of": wanted.twin_of,
        "world": job.world.name,
        "seed": job.seed,
        "only_reads": call.only_reads,
        "status": "failed",
    }
    if (found := done.execution) is None:
        return row | {
            "error_kind": INTERNAL,
            "hint": redact(done.problem or ""),
            "changed": "[]",
            "withheld": "[]",
            "findings": "[]",
        }
    kept = ("status", "outcome", "blame", "evidence", "error_kind", "hint", "answer", "size")
    return row | {
        **{name: getattr(found, name) for name in (*kept, "differs", "seconds")},
        "call_key": call.make_key(found.before),
        "changed": redact(json.dumps(found.changed)),
        "breaks_hint": call.only_reads and found.changes_state,
        "withheld": json.dumps(found.withheld),
        "findings": json.dumps(found.findings),
        "proof": done.proofs[0].verdict if done.proofs else None,
        "proof_why": redact(done.proofs[0].why) if done.proofs else None,
        "proofs": json.dumps(_map_proofs(wanted, done), sort_keys=True),
        "result_blob": done.blob,
    }


def _map_proofs(wanted: WantedCall, done: Done) -> dict[str, str]:
    """Pair -> what the call proves of it, by its own request. One of several calls proves none."""
    verdicts = {one: proof.verdict for one, proof in zip(wanted.asked, done.proofs, strict=False)}
    found = {
        pair: verdicts[request]
        for pair, request in zip(wanted.pairs, wanted.requests, strict=False)
        if request in verdicts
    }
    found |= {
        pair: verdicts[request] for pair, request in wanted.refused.items() if request in verdicts
    }
    weak = [pair for pair in wanted.several if found.get(pair) == PROVED]
    return found | dict.fromkeys(weak, UNPROVED)


def mark_canned(rows: Iterable[Mapping[str, Any]]) -> list[Record]:
    """The rows, those of a tool that answers the same whatever it is asked marked as canned; rows
    that were so and are no longer are useful again."""
    listed = [
        {**row, "outcome": USEFUL, "blame": None, "evidence": ""}
        if row["outcome"] == CANNED
        else {**row}
        for row in rows
    ]
    groups: dict[tuple[str, str, str], list[Record]] = defaultdict(list)
    for row in listed:
        # That something was done is told in the same words whatever it was done to.
        reads = row["only_reads"] or read_purpose({"name": row["tool"]}).family in _READS
        if row["outcome"] == USEFUL and row["changed"] == "[]" and reads:
            groups[row["server_id"], row["tool"], row["contract_digest"]].append(row)
    for own in groups.values():
        canned = find_canned((row["arguments"], row["answer"], row["size"]) for row in own)
        evidence = f"{len(own)} calls with other arguments were answered alike"
        for row in own:
            if row["answer"] in canned:
                row |= {"outcome": CANNED, "blame": "tool", "evidence": evidence}
    return listed


def mark_stale(rows: Iterable[Record], stale: Collection[tuple[str, str | None]]) -> list[Record]:
    """The rows, useful answers of the tools named (server, tool) marked as stale."""
    evidence = "after a change, a running server answered as before it and a fresh one did not"
    marked = {"outcome": STALE, "blame": "tool", "evidence": evidence}
    return [
        {**row, **marked}
        if row["outcome"] == USEFUL and (row["server_id"], row["tool"]) in stale
        else row
        for row in rows
    ]
