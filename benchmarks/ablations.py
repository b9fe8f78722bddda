"""The retriever's ablation arms on requests of people: MetaTool, zero-shot.

python -m training.evaluation.ablations --home HOME …     trains the arms
python -m benchmarks.ablations --home HOME     asks them 1,000 MetaTool queries over 199 tools
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.bench_pairs import ranks
from benchmarks.pairs_data import Suite, metatool
from benchmarks.shared_data import SHARED, require
from training.evaluation.ablations.table import ablation_summary, ablation_table
from training.evaluation.retriever import retriever_of
from training.sets.split import UNSEEN_SERVER
from warehouse.storage.digest import digest

Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--queries", type=int, default=1000)
    asked = parser.parse_args()
    require(SHARED / "metatool")
    path = asked.home / "ablations" / "arms.json"
    if not path.exists():
        raise SystemExit(
            f"{path}: no arms; run `python -m training.evaluation.ablations --home …` first"
        )
    suite = metatool(asked.queries)
    rows = [row for arm in json.loads(path.read_bytes()) for row in _asked(arm, suite, asked.home)]
    print(f"MetaTool, zero-shot: {suite.about}, {len(suite.pool)} tools\n")
    print(ablation_table(ablation_summary(rows)))


def _asked(arm: Row, suite: Suite, home: Path) -> Sequence[Row]:
    """The arm's rank of the right tool for each query, as rows of ABLATIONS."""
    embedder = retriever_of(home / "ablations", arm["model"])
    about = {name: arm[name] for name in ("role", "arm", "seed", "pairs", "minutes", "model")}
    return [
        {
            **about, "item_id": str(at), "rank": int(rank), "pool": len(suite.pool),
            "server_id": "metatool", "split": UNSEEN_SERVER, "text_digest": digest(group),
        }
        for at, (rank, group) in enumerate(
            zip(ranks(suite, embedder.embed), suite.groups, strict=True)
        )
    ]  # fmt: skip


if __name__ == "__main__":
    main()
