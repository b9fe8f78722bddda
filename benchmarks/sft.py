"""Fine-tuning: tokens/s, memory and FLOPs utilisation of ours against TRL's defaults.

    python -m benchmarks.sft --shape qwen3-4b --device cuda        the shape with weights made here
    python -m benchmarks.sft --shape tiny --device cpu --rows 32

All arms learn the same rows. Tokens are those of rows, never padding. TRL is asked for its defaults
but for the length, which would otherwise cut rows at 1,024. On a CPU one thread is used and its own
seconds are counted, so that what runs beside it does not.
"""

import argparse
import json
import os
import sys
from typing import Any

from benchmarks.own_process import run_alone
from benchmarks.sft_arms import ARMS, run_arm
from benchmarks.sft_shapes import SHAPES

NAMES = {
    "packed": "ours, packed",
    "padded": "ours, packing off (2 x 8)",
    "trl": "TRL's defaults (8 x 1)",
}
LENGTHS = {"cuda": "2048,8192", "cpu": "512,1024"}


def main() -> int:
    given = _make_parser().parse_args()
    lengths = [int(n) for n in (given.lengths or LENGTHS[given.device]).split(",")]
    quiet = {"TQDM_DISABLE": "1", "PYTHONWARNINGS": "ignore", "TRANSFORMERS_VERBOSITY": "error"}
    os.environ |= quiet
    rows = []
    for length in lengths:
        for arm in ARMS:
            found = _measure_arm(arm, length, given)
            rows.append({"length": length, "arm": arm, **found})
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    print(render_table(rows, given.shape, given.device))
    return 0


def render_table(rows: list[dict[str, Any]], shape: str, device: str) -> str:
    """The figures as Markdown; what did not run says why."""
    names = ("updates", "tokens_per_s", "step_ms", "peak_mb", "mfu")
    lines = [
        f"Shape {shape}, {device}:",
        "",
        "| length | arm | updates | tokens/s | ms an update | peak MB | FLOPs utilisation |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        cells = [_render_cell(name, row) for name in names]
        lines.append(f"| {row['length']} | {NAMES[row['arm']]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _render_cell(name: str, row: dict[str, Any]) -> str:
    if "error" in row:
        return row["error"] if name == "updates" else ""
    held = row.get(name)
    if held is None:
        return "-"
    return f"{100 * held:.1f}%" if name == "mfu" else f"{held:,}"


def _measure_arm(arm: str, length: int, given: argparse.Namespace) -> dict[str, Any]:
    """An arm's figures, or why it has none."""
    try:
        return run_alone(run_arm, arm, given.shape, given.device, length, given.rows)
    except Exception as error:
        return {"error": f"failed: {type(error).__name__}: {str(error)[:80]}"}


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=sorted(SHAPES), default="tiny")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--lengths", help="most tokens of a row, by commas")
    parser.add_argument("--rows", type=int, default=96)
    return parser


if __name__ == "__main__":
    sys.exit(main())
