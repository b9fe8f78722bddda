"""The tasks of a release's environment: what was played in worlds, and accepted pairs that ran.

A task is a row as `recording.py` takes it, with the split that its release puts it in.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assets.contracts.quarantined_tools import open_firewall
from assets.outcomes.execution import CallExecution
from assets.outcomes.outcome import USEFUL
from assets.outcomes.table import EXECUTIONS, PROVED
from assets.outcomes.trajectory import DROPPED, KEPT, TRAJECTORIES, TrajectoryStep
from assets.outcomes.trajectory_play import MOST_ANSWER
from assets.outcomes.worlds.task import replace_leaf, walk_leaves
from assets.synthesis.export.selection import ask_firewall
from assets.synthesis.tables import ONE_CALL
from extensions.environments.recording import ReplayRecording, record_trajectories
from training.sets.pool import ToolPool, draw_candidates, load_pool
from training.sets.split import SPLITS, TRAIN, Embed, SetPolicy, find_near_pairs
from training.sets.training_set import TRAINING_SET
from warehouse.errors import UnusableInput
from warehouse.json_types import Row
from warehouse.llm.chat import write_wire_name
from warehouse.store import Warehouse

OFFERED = 10  # tools of a task that is a pair
_RESERVED = ("reset", "step", "state", "close", "finish_task")
OBSERVED = "observed"  # the check of a call that no world's task proved: what it came to


@dataclass
class ReleaseTasks:
    """tasks: rows of `tasks.jsonl`, in the order of their ids. left_out: reason -> rows. learnt:
    rows of the release's training set that are trained on."""

    recording: ReplayRecording
    tasks: list[dict[str, Any]]
    learnt: Sequence[Row] = field(repr=False)
    left_out: dict[str, int] = field(default_factory=dict)


def select_tasks(warehouse: Warehouse, training_set: str) -> ReleaseTasks:
    """The tasks of the release that was made with a training set, over contracts that are clear
    now. Raises UnusableInput where there are none, BadOffer."""
    rows, left_out = _read_training_set(warehouse, training_set), Counter[str]()
    played = [_rename_tools(row) for row in warehouse.tables.read(TRAJECTORIES).to_dicts()]
    known = load_pool(warehouse.home, training_set)
    pool = _drop_held(warehouse, known, played, left_out)
    played = [row for row in played if _list_contracts(row) <= pool.keys()]
    ran = _read_executions(warehouse, rows, pool, left_out)
    clear = [*played, *ran]
    recording = record_trajectories(clear)
    places = {row["pair_id"]: row["split"] for row in rows}
    tasks = []
    for row in sorted(clear, key=lambda row: row["trajectory_id"]):
        name = row["trajectory_id"]
        if name not in recording.tasks:
            continue
        # Of a task that the training set does not hold: of its tools the least trained.
        of_tools = [pool[call.contract_digest]["split"] for call in recording.tasks[name].calls]
        split = places.get(name) or max(of_tools, key=SPLITS.index)
        tasks.append(_describe_task(row, recording, split))
    if not tasks:
        reasons = ", ".join(f"{name} {n}" for name, n in sorted(left_out.items()) if n) or "none"
        raise UnusableInput(
            f"release has no tasks (left out: {reasons}): its accepted pairs were not executed; run"
            " `toolmill run`, or `toolmill worlds --play`, then export again"
        )
    learnt = [row for row in rows if row["split"] == TRAIN]
    return ReleaseTasks(recording, tasks, learnt, {k: n for k, n in sorted(left_out.items()) if n})


def find_contamination(made: ReleaseTasks, embed: Embed | None) -> list[dict[str, Any]]:
    """{task, split, contracts, requests} of each task outside the train split of which a contract
    or the request is trained on too. embed: of requests; None compares words alone."""
    tested = [task for task in made.tasks if task["split"] != TRAIN]
    trained = {call["contract_digest"] for row in made.learnt for call in json.loads(row["calls"])}
    texts = [row["instruction"] for row in made.learnt]
    requests = [task["request"] for task in tested]
    near = find_near_pairs(requests, texts, embed or _embed_apart, SetPolicy().near_cosine)
    entries = []
    for task in tested:
        calls = made.recording.tasks[task["id"]].calls
        contracts = sorted({call.contract_digest for call in calls} & trained)
        if contracts or task["request"] in near:
            alike = near.get(task["request"], [])[:3]
            entry = {"task": task["id"], "split": task["split"]}
            entries.append({**entry, "contracts": contracts, "requests": alike})
    return entries


def _embed_apart(texts: Sequence[str]) -> Any:
    """Vectors of which no two are near."""
    import numpy as np

    return np.zeros((len(texts), 1))


def _read_training_set(warehouse: Warehouse, training_set: str) -> list[dict[str, Any]]:
    heads = warehouse.tables.history(TRAINING_SET.name)
    head = next((head for head in heads if head.digest == training_set), None)
    if head is None:
        raise UnusableInput(
            f"training set {training_set[:12] or '-'} of the release is not in this home any more:"
            " name another release by --release, or run again"
        )
    return warehouse.tables.read_publication(TRAINING_SET, "_", head).to_dicts()


def _drop_held(
    warehouse: Warehouse, known: Mapping[str, Row], played: Sequence[Row], left_out: Counter[str]
) -> dict[str, Row]:
    """The contracts of the release that are clear now. Of what was played the rows that rest on
    another are counted."""
    entries = [
        {**entry, "contract_digest": name, "contract": json.dumps(entry["contract"])}
        for name, entry in known.items()
    ]
    held = ask_firewall(open_firewall(warehouse))(entries)
    for row in played:
        if row["status"] == KEPT and not row["recovers"]:
            contracts = _list_contracts(row)
            left_out["contract_not_in_release"] += not contracts <= known.keys()
            left_out["contract_held"] += not contracts.isdisjoint(held)
    return {name: entry for name, entry in known.items() if name not in held}


def _list_contracts(row: Row) -> set[str]:
    return {item["contract_digest"] for item in json.loads(row["contracts"])}


def _write_name(tool: str) -> str:
    """A name that endpoints take, and that is none of the environment's own."""
    return f"{tool}_tool" if tool in _RESERVED else write_wire_name(tool)


def _rename_tools(row: Row) -> dict[str, Any]:
    """A row of TRAJECTORIES whose tools have the names that endpoints take."""
    steps, contracts = json.loads(row["steps"]), json.loads(row["contracts"])
    for item in (*steps, *contracts):
        item["tool"] = _write_name(item["tool"])
    return {**row, "steps": json.dumps(steps), "contracts": json.dumps(contracts)}


def _read_executions(
    warehouse: Warehouse, rows: Sequence[Row], pool: Mapping[str, Row], left_out: Counter[str]
) -> list[dict[str, Any]]:
    """Rows like those of TRAJECTORIES: one for each pair whose call was of use, and one for every
    other call that was answered, which is no task."""
    pairs = {row["pair_id"]: row for row in rows if (row["task"] or ONE_CALL[0]) in ONE_CALL}
    drawn, results = ToolPool(pool), list[dict[str, Any]]()
    digests = {id(drawn[name]): name for name in drawn}
    useless: dict[str, str] = {}  # pair -> why its call is no task
    for row in warehouse.tables.read(EXECUTIONS).to_dicts():
        if row["result_blob"] is None or row["contract_digest"] not in pool:
            left_out["call_not_kept" if row["contract_digest"] in pool else "contract_gone"] += 1
            continue
        stored = json.loads(warehouse.blobs.get(row["result_blob"]))["execution"]
        done = CallExecution.load(stored)
        text = done.text or (json.dumps(done.structured) if done.structured is not None else "")
        if done.differs or done.withheld or len(text) > MOST_ANSWER:
            left_out["answer_withheld_long_or_not_stable"] += 1
            continue
        identity = (row["server_id"], _write_name(row["tool"]), row["contract_digest"])
        step = TrajectoryStep(
            *identity, json.loads(row["arguments"]), text, done.outcome, done.before, done.after
        )
        place = {"world": row["world"], "seed": row["seed"], "before": done.before}
        made = {"step": step, "place": place, "check": row["proof"]}
        names = [name for name in json.loads(row["pair_ids"]) if name in pairs]
        if done.outcome != USEFUL:
            useless |= dict.fromkeys(names, f"call_{done.outcome}")
            names = []
        chosen = [pairs.pop(name) for name in names]  # one of several marketplaces' executions
        results += [_make_row(made, pool, drawn, digests, pair) for pair in chosen]
        if not chosen:
            results.append(_make_row(made, pool, drawn, digests, None, row["execution_id"]))
    left_out.update(reason for name, reason in useless.items() if name in pairs)
    return results


def _make_row(
    made: Mapping[str, Any],
    pool: Mapping[str, Row],
    drawn: ToolPool,
    digests: Mapping[int, str],
    pair: Row | None,
    name: str = "",
) -> dict[str, Any]:
    step: TrajectoryStep = made["step"]
    tools = draw_candidates(pair, drawn, OFFERED) if pair else []
    offered = {digests[id(tool)] for tool in tools} | {step.contract_digest}
    contracts = [
        {
            "server_id": pool[digest]["server_id"],
            "tool": _write_name(pool[digest]["contract"]["name"]),
            "contract_digest": digest,
            "contract": json.dumps(pool[digest]["contract"], ensure_ascii=False),
        }
        for digest in sorted(offered)
    ]
    return {
        "trajectory_id": pair["pair_id"] if pair else name,
        "status": KEPT if pair else DROPPED,
        "recovers": False,
        "instruction": pair["instruction"] if pair else "",
        "steps": json.dumps([vars(step)], ensure_ascii=False),
        "contracts": json.dumps(contracts, ensure_ascii=False),
        "worlds": json.dumps([made["place"]]),
        "check": PROVED if made["check"] == PROVED else OBSERVED,
        "source": "pair",
    }


def _describe_task(row: Row, recording: ReplayRecording, split: str) -> dict[str, Any]:
    """The row of `tasks.jsonl`. worlds: one for each server, with the digest of its first state."""
    task = recording.tasks[row["trajectory_id"]]
    stretches = json.loads(row["worlds"])
    calls = [{"name": call.tool, "arguments": call.arguments} for call in task.calls]
    return {
        "id": task.id,
        "split": split,
        "source": row.get("source", "world"),
        "check": row.get("check", PROVED),
        "request": task.request,
        "worlds": [
            {"server_id": server, **{key: place[key] for key in ("world", "seed", "before")}}
            for server, place in zip(task.states, stretches, strict=True)
        ],
        "tools": sorted(recording.contracts[name]["tool"] for name in task.contracts),
        "reference": calls,
        "perturbed": _perturb_calls(calls),
    }


def _perturb_calls(calls: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]] | None:
    """The calls with one value of the last that has any changed; None where none has."""
    for place in reversed(range(len(calls))):
        for path, value in walk_leaves(calls[place]["arguments"]):
            changed = f"{value}x" if isinstance(value, str) else value + 1
            arguments = replace_leaf(
                calls[place]["arguments"], path, not value if isinstance(value, bool) else changed
            )
            other = {**calls[place], "arguments": arguments}
            return [*map(dict, calls[:place]), other, *map(dict, calls[place + 1 :])]
    return None
