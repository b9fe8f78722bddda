"""The ladder alone, with a sidecar taught by examples, and with one that went on by rewards.

    python -m benchmarks.bench_sidecar [--rows 200] [--steps 30] [--test 200] [--seeds 7]

The tiny base learns from drafts of good calls of the corpus (written by a language model) on
servers of the train side of the frozen split; what it makes of drafts of servers of the test side
is counted, by the evaluation that gates a sidecar. Three tools are on offer and a prompt has 640
tokens at most, so that a training takes a few minutes of one core. It shows that the path works;
what GRPO gains is a question for a larger base on a GPU.
"""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.repair.calls import read_calls
from benchmarks.shared_data import SHARED, require_paths
from extensions.sidecar.evaluation import SidecarBench, evaluate_sidecars, summarise_sidecar
from extensions.sidecar.flaws import HELD_OUT, WEIGHTS
from extensions.sidecar.prompt import (
    RevisionRow,
    fit_request,
    rank_candidates,
    read_revision,
    write_row,
)
from extensions.sidecar.revision_data import KnownContracts, PlacedCall, build_rows, choose_rows
from extensions.sidecar.settings import ROLE, TINY_GRPO, get_sidecar_profile
from extensions.sidecar.train import train_sidecar
from serving.repair.revision import ProposedCall, RevisionRequest
from training.caller.bases import load_caller
from training.caller.generation import generate_completions
from training.caller.tiny.base import TINY
from training.runtime.model_store import read_job, write_job
from training.sets.split import TRAIN, UNSEEN_SERVER

_OFFERED, _CONTEXT, _NEW = 3, 736, 96
_SHOWN = ("right", "corrected", "corrected_left", "copied", "harmed", "asked", "asked_rightly")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=200, help="drafts learned from")
    parser.add_argument("--steps", type=int, default=30, help="updates of GRPO")
    parser.add_argument("--test", type=int, default=200, help="drafts measured")
    parser.add_argument("--seeds", default="7", help="comma-separated")
    args = parser.parse_args()
    require_paths(SHARED / "corpus", SHARED / "smithery" / "servers.jsonl")
    learned = _make_rows("train", TRAIN, args.rows)
    measured = _make_rows("test", UNSEEN_SERVER, args.test)
    for seed in map(int, args.seeds.split(",")):
        with TemporaryDirectory() as home:
            _measure_seed(Path(home), seed, learned, measured, args.steps)


def _measure_seed(
    home: Path, seed: int, learned: list[RevisionRow], measured: list[RevisionRow], steps: int
) -> None:
    arms = {}
    for algorithm in ("sft", "sft+grpo"):
        began = time.process_time()
        card = _train(home, seed, learned, algorithm, steps)
        arms[algorithm] = _Trained(home, card["name"])
        print(f"seed {seed}, {algorithm}: {time.process_time() - began:.0f} s of one core, SFT loss"
              f" {card['loss_first']} to {card['loss_last']}")  # fmt: skip
        if "grpo" in card:
            _print_rewards(card["grpo"])
    rows = evaluate_sidecars(SidecarBench(measured, "corpus"), arms)
    found = summarise_sidecar(rows, "sft+grpo")
    print(f"\n{found['n']} drafts of {found['servers']} servers, 95% intervals over servers\n")
    print(f"| arm | {' | '.join(_SHOWN)} |\n| --- |{' --- |' * len(_SHOWN)}")
    for arm, figures in found["arms"].items():
        print(f"| {arm} | {' | '.join(_write_figure(figures[name]) for name in _SHOWN)} |")
    against = summarise_sidecar(rows, "sft+grpo", "sft")
    print(f"\ngain of sft+grpo over the ladder {_write_figure(found['gain'])},"
          f" over sft {_write_figure(against['gain'])}\n", flush=True)  # fmt: skip


def _train(
    home: Path, seed: int, rows: Sequence[RevisionRow], algorithm: str, steps: int
) -> dict[str, Any]:
    few = replace(TINY_GRPO, steps=steps, group=6, prompts=2, pass_rows=6, max_new=_NEW, probe=64)
    settings: Any = {
        "algorithm": algorithm,
        "grpo": few if "grpo" in algorithm else None,
        "seed": seed,
        "context": _CONTEXT,
        "threads": 1,
        "epochs": 2,
    }
    chosen = replace(get_sidecar_profile(TINY), **settings)
    held = json.loads(json.dumps(list(map(write_row, rows))))
    _, path = write_job(home, ROLE, TINY, "corpus", _as_json(chosen), held)
    return train_sidecar(read_job(path), lambda _: None)


def _as_json(settings: Any) -> dict[str, Any]:
    from dataclasses import asdict

    return json.loads(json.dumps(asdict(settings)))


class _Trained:
    """A trained sidecar, asked greedily."""

    def __init__(self, home: Path, name: str) -> None:
        self._model, self._tokenizer, _ = load_caller(home, name)

    def revise_requests(self, requests: Sequence[RevisionRequest]) -> list[ProposedCall | None]:
        limit = _CONTEXT - _NEW
        fitted = [
            fit_request(self._tokenizer, rank_candidates(request), limit) for request in requests
        ]
        asked = [item.prompt for item in fitted if item is not None]
        texts = iter(generate_completions(self._model, self._tokenizer, asked, max_new=_NEW))
        return [
            None if item is None
            else read_revision(next(texts), [each.contract for each in item.request.candidates])
            for item in fitted
        ]  # fmt: skip


def _make_rows(side: str, split: str, most: int) -> list[RevisionRow]:
    """Drafts of the corpus, as many as asked for, of servers drawn by their names. Kinds that are
    held out are measured and never learned."""
    kinds = [kind for kind in WEIGHTS if split != TRAIN or kind not in HELD_OUT]
    calls = list(_place_calls(side, split))
    Random(7).shuffle(calls)
    return choose_rows(build_rows(calls[:most], KnownContracts(kinds=kinds)), most)


def _place_calls(side: str, split: str) -> Iterator[PlacedCall]:
    draw = Random(7)
    for at, one in enumerate(read_calls("corpus", side)):
        good = one.good
        others = [tool for tool in one.beside if tool["name"] != good.name]
        shown = [good.contract, *draw.sample(others, min(len(others), _OFFERED - 1))]
        draw.shuffle(shown)
        row = {"pair_id": f"corpus-{at}", "split": split, "task": "single"}
        yield PlacedCall(row, good, tuple(one.conversation), tuple(shown))


def _print_rewards(held: dict[str, Any]) -> None:
    share, curve = held["failed_share"], held["curve"]
    print(f"groups {held['groups']}, failed alike {_write_figure(share)}, written again"
          f" {held['replaced']}, of which differed then {held['differing']}")  # fmt: skip
    third = max(1, len(curve) // 3)
    for name in ("reward", "values", "kept", "is_right", "is_copied"):
        ends = (part for part in (curve[:third], curve[-third:]))
        means = [sum(item.get(name, 0) for item in part) / len(part) for part in ends]
        print(f"  {name}: first third {means[0]:.3f}, last third {means[1]:.3f}")
    for when in ("before", "after"):
        rates = {
            name: _write_figure(held[when][name]) for name in ("corrected", "copied", "harmed")
        }
        print(f"  {when}: {rates}")


def _write_figure(figure: dict[str, Any]) -> str:
    ends = f"{figure['low']:.3f} to {figure['high']:.3f}"
    return f"{figure['value']:.3f} ({ends}; {figure['n']})"


if __name__ == "__main__":
    main()
