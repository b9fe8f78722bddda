"""The router's figures, part by part, as Markdown tables or JSON.

    python -m benchmarks.router train --home /tmp/router                  adapters, once
    python -m benchmarks.router quality outside needle latency serve --home /tmp/router
    python -m benchmarks.router all --json out.json

Needs the shared data (`TOOLMILL_SHARED`). Vectors, indexes and adapters are kept under --home, so
a second run embeds nothing. FastMCP is measured by its own Python, made for it alone:
`python -m venv /tmp/fastmcp-venv && /tmp/fastmcp-venv/bin/pip install fastmcp`.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.shared_data import SHARED, require

PARTS = ("train", "quality", "outside", "needle", "latency", "serve")


def main() -> None:
    asked = _arguments()
    require(SHARED / "corpus", SHARED / "smithery")
    asked.home.mkdir(parents=True, exist_ok=True)
    from benchmarks.router_tables import table

    found: dict[str, Any] = {}
    for part in PARTS if "all" in asked.parts else asked.parts:
        began = time.perf_counter()
        load = os.getloadavg()[0]
        found[part] = _part(part)(asked)
        spent = time.perf_counter() - began
        print(f"## {part}\n\n{table(part, found[part])}\n")
        print(
            f"{spent:.0f} s; load {load:.1f} before, {os.getloadavg()[0]:.1f} after\n", flush=True
        )
        if asked.json:
            asked.json.write_text(json.dumps(found, indent=1, ensure_ascii=False, default=str))


def _part(name: str) -> Callable[[argparse.Namespace], Any]:
    """The function of a part; imported late, as each needs other libraries."""
    if name == "train":
        from benchmarks.router_train import ARMS, train

        return lambda asked: {
            arm: str(at) for arm, at in train(asked.home, ARMS, asked.threads).items()
        }
    if name == "quality":
        from benchmarks.router_quality import quality

        return quality
    if name == "outside":
        from benchmarks.router_outside import outside

        return outside
    if name == "needle":
        from benchmarks.router_needle import needle

        return needle
    if name == "latency":
        from benchmarks.router_latency import latency

        return latency
    from benchmarks.router_serve import serve

    return serve


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", choices=[*PARTS, "all"], default=[])
    parser.add_argument("--home", type=Path, default=Path("var/router_bench"))
    parser.add_argument("--threads", type=int, default=1, help="of an encoder or a training")
    parser.add_argument("--json", type=Path, help="write every figure to this file")
    parser.add_argument(
        "--arms", nargs="*", default=["offline", "written"], help="quality: adapters"
    )
    parser.add_argument(
        "--fastmcp-python", type=Path, default=Path("/tmp/fastmcp-venv/bin/python"),
        help="quality: a Python that has fastmcp",
    )  # fmt: skip
    parser.add_argument("--sample", type=int, default=0, help="outside: MetaTool queries; 0 all")
    parser.add_argument("--sizes", type=int, default=12, help="needle: pool sizes")
    parser.add_argument("--seeds", type=int, default=5, help="needle")
    parser.add_argument("--positions", type=int, default=5, help="needle: orders of insertion")
    parser.add_argument("--pool-sizes", type=int, nargs="+", default=[12_600, 100_000])
    parser.add_argument("--asked", type=int, default=300, help="latency: queries")
    parser.add_argument("--clients", type=int, default=32, help="serve")
    parser.add_argument("--seconds", type=float, default=60, help="serve")
    parser.add_argument("--every", type=float, default=4, help="serve: seconds between versions")
    asked = parser.parse_args()
    if not asked.parts:
        parser.error(f"name at least one part of {', '.join(PARTS)} or all")
    return asked


if __name__ == "__main__":
    sys.exit(main())
