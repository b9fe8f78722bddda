"""Rules and judge against a labelled corpus: what is caught per flaw, what good rows are refused.

    python -m benchmarks.bench_judge [--corpus DIR] [--servers FILE] [--json FILE]

The corpus was written and labelled by a language model, row by row, and validated; no person
labelled it. Two arms: rules alone; rules and the offline judge.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from assets.synthesis.judging.adhoc import judge_rows, read_rows, read_tools, verify_rows
from assets.synthesis.judging.judge import make_offline_provider
from assets.synthesis.policy import SynthesisPolicy
from assets.vectors.encoders.minilm import MiniLM, open_general
from benchmarks.shared_data import SHARED, require_paths
from extensions.publishing.review import measure_agreement
from warehouse.ledger.ledger import Ledger
from warehouse.llm.client import LLM, Role
from warehouse.statistics import wilson_interval
from warehouse.storage.blobs import Blobs

Json = Any
Verdicts = Sequence[Mapping[str, Json]]
KINDS = ("direct", "detailed", "implicit")
POLICY = SynthesisPolicy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, default=SHARED / "corpus")
    parser.add_argument("--servers", type=Path, default=SHARED / "smithery" / "servers.jsonl")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    require_paths(chosen.corpus, chosen.servers)
    files = sorted(chosen.corpus.glob("*.jsonl"))
    labelled = [json.loads(line) for file in files for line in file.open(encoding="utf-8")]
    rows = [row for file in files for row in read_rows(file)]
    tools = read_tools(chosen.servers)
    embed, find = _cache_embedding(MiniLM().embed), _cache_embedding(open_general().embed)
    found: dict[str, Json] = {"rows": len(rows), "arms": {}}
    with tempfile.TemporaryDirectory() as folder:
        arms: dict[str, Callable[[], Verdicts]] = {
            "rules": lambda: verify_rows(rows, tools, embed, POLICY, find),
            "rules + offline judge": lambda: judge_rows(
                rows, tools, embed, _open_offline_judge(Path(folder) / "offline"), POLICY, find
            ),
        }
        for name, run in arms.items():
            start = time.perf_counter()
            verdicts = run()
            seconds = time.perf_counter() - start
            found["arms"][name] = _summarise_arm(labelled, verdicts, name == "rules", seconds)
            print(_render_table(name, found["arms"][name]), flush=True)
    if chosen.json:
        chosen.json.write_text(json.dumps(found, indent=1))


def _summarise_arm(
    labelled: Sequence[Json], verdicts: Verdicts, rules_only: bool, seconds: float
) -> dict[str, Json]:
    decided = [
        (row["flaw"] is None, verdict["verdict"] == "accept")
        for row, verdict in zip(labelled, verdicts, strict=True)
        if verdict["verdict"] != "unsure" or not rules_only
    ]
    scored = [(row["judge_score"], verdict["score"]) for row, verdict in
              zip(labelled, verdicts, strict=True) if verdict["score"] is not None]  # fmt: skip
    rho = (
        pl.DataFrame(scored, ["model", "ours"], orient="row")
        .select(pl.corr("model", "ours", method="spearman"))
        .item()
    )
    return {
        "seconds": round(seconds, 1),
        "kinds": _count_verdicts(zip(labelled, verdicts, strict=True)),
        "agreement": measure_agreement(decided),
        "undecided": len(labelled) - len(decided),
        "rank_correlation": None if rho is None else round(rho, 3),
        "scored": len(scored),
    }


def _count_verdicts(pairs: Iterable[tuple[Json, Json]]) -> dict[str, Json]:
    counts: dict[str, dict[str, int]] = {}
    for row, verdict in pairs:
        names = [row["flaw"] or row["kind"], "all flaws" if row["flaw"] else "all good"]
        for name in names:
            one = counts.setdefault(name, {"n": 0, "reject": 0, "unsure": 0, "accept": 0})
            one["n"] += 1
            one[verdict["verdict"]] += 1
    for one in counts.values():
        one["low"], one["high"] = (round(x, 3) for x in wilson_interval(one["reject"], one["n"]))  # type: ignore[assignment]
    return dict(sorted(counts.items(), key=lambda item: (item[0] in KINDS, item[0])))


def _render_table(name: str, figures: Json) -> str:
    lines = [
        f"\n{name}: {figures['seconds']} s",
        "| kind | n | refused | 95% interval | unsure |",
        "| --- | --- | --- | --- | --- |",
    ]
    for kind, one in figures["kinds"].items():
        share = f"{one['reject']} ({one['reject'] / one['n']:.1%})"
        between = f"{one['low']:.1%} to {one['high']:.1%}"
        lines.append(f"| {kind} | {one['n']} | {share} | {between} | {one['unsure']} |")
    agreed = figures["agreement"]
    lines.append(
        f"agreement with the labels: {agreed['accuracy']['value']} (n = {agreed['n']},"
        f" {figures['undecided']} undecided), kappa {agreed['kappa']} [{agreed['kappa_low']},"
        f" {agreed['kappa_high']}]; rank correlation with the scores"
        f" {figures['rank_correlation']} (n = {figures['scored']})"
    )
    return "\n".join(lines)


def _cache_embedding(embed: Callable[[Sequence[str]], np.ndarray]) -> Callable[..., np.ndarray]:
    """Each text is embedded once for all arms; the first arm's seconds hold that."""
    kept: dict[str, np.ndarray] = {}

    def remembered(texts: Sequence[str], _: bool = False) -> np.ndarray:
        new = sorted({text for text in texts if text not in kept})
        if new:
            kept.update(zip(new, embed(new), strict=True))
        return np.stack([kept[text] for text in texts])

    return remembered


def _open_offline_judge(folder: Path) -> LLM:
    ledger = Ledger(folder / "ledger.db", Blobs(folder / "blobs"))
    return LLM([Role("judge")], ledger, offline=make_offline_provider())


if __name__ == "__main__":
    main()
