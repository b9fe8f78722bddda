"""The ablations by hand: `python -m training.evaluation.ablations --home HOME [--seeds 7 8] [--set
epochs=2]`.
"""

import argparse
import json
import os
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

from assets.vectors.embed import MiniLM
from training.caller.settings import profile_of
from training.evaluation.ablations.arms import ARMS
from training.evaluation.ablations.data import ablation_sets
from training.evaluation.ablations.measure import CALLER, ROLES
from training.evaluation.ablations.run import AblationSettings, run_ablations
from training.evaluation.ablations.table import ablation_summary, ablation_table, draw
from training.evaluation.retriever import NothingToEvaluate
from training.retriever.settings import RetrieverSettings, read_settings
from training.runtime.model_store import TrainingFailed
from warehouse.progress import Lines
from warehouse.storage.files import write_atomically
from warehouse.store import Warehouse


def main(argv: list[str] | None = None) -> int:
    """0 done, 1 failed, 2 usage."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    warnings.simplefilter("ignore", FutureWarning)
    asked = _arguments(argv)
    try:
        return _run(asked)
    except (TrainingFailed, NothingToEvaluate) as error:
        _stderr(f"ablations: {error}")
        return 1


def _run(asked: argparse.Namespace) -> int:
    caller = replace(profile_of(asked.caller_base), device=asked.device, threads=asked.threads)
    settings = AblationSettings(
        roles=tuple(asked.roles),
        arms=tuple(asked.arms),
        seeds=tuple(asked.seeds),
        retriever=_retriever(asked),
        retriever_base=asked.base,
        caller=caller,
        caller_base=asked.caller_base,
    )
    warehouse = Warehouse(asked.home, asked.state or asked.home / "state")
    lines = Lines(_stderr)
    sets = ablation_sets(warehouse, MiniLM(threads=asked.threads))
    rows = run_ablations(
        asked.home, sets.accepted, sets.raw, sets.pool, sets.texts, sets.name, settings, lines,
        lambda at: lines.update("training", at["step"], at["steps"], loss=at["loss"])
        if "step" in at else None,
    )  # fmt: skip
    summary = ablation_summary(rows)
    out = asked.out or asked.home / "reports" / "ablations"
    out.mkdir(parents=True, exist_ok=True)
    tiny = CALLER not in asked.roles or asked.caller_base == "tiny"
    write_atomically(out / "ablations.md", ablation_table(summary, tiny=tiny).encode())
    write_atomically(out / "ablations.json", json.dumps(summary, indent=1).encode())
    if summary:
        draw(summary, out / "ablations.png")
    print(json.dumps({"report": str(out / "ablations.md"), **summary}))  # noqa: T201
    return 0


def _retriever(asked: argparse.Namespace) -> RetrieverSettings:
    """The retriever's settings with those given by hand. Raises TrainingFailed."""
    given: dict[str, Any] = {"device": asked.device, "threads": asked.threads}
    for one in asked.set:
        name, _, value = one.partition("=")
        try:
            given[name] = json.loads(value)
        except ValueError:
            given[name] = value  # a word
    return read_settings(given)


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m training.evaluation.ablations", description=__doc__
    )
    parser.add_argument("--home", type=Path, required=True, help="data folder with its tables")
    parser.add_argument("--state", type=Path, help="local state (default: <home>/state)")
    parser.add_argument("--out", type=Path, help="report (default: <home>/reports/ablations)")
    parser.add_argument("--roles", nargs="+", choices=ROLES, default=[ROLES[0]])
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[7, 8, 9])
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="NAME=VALUE", help="of the retriever: epochs=2"
    )
    parser.add_argument("--base", default="minilm", help="the retriever's")
    parser.add_argument("--caller-base", default="tiny")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--threads", type=int)
    return parser.parse_args(argv)


def _stderr(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
