"""Launch: how many servers drawn at random list their tools, and what each costs.

    python benchmarks/bench_launch.py --freeze            # once: draws and writes the list
    python benchmarks/bench_launch.py                     # the forty, placeholders on and off
    python benchmarks/bench_launch.py --list known        # the thirteen of shared/data/real-servers
    python benchmarks/bench_launch.py --list development  # others of the same seed, to learn from

The population is every record of the registry's seed whose package has the form of an npm or PyPI
name: 123 of 471, also those that were never published or whose arguments start a checkout. Forty
are drawn from the sorted names with a fixed seed, and the list is committed before any of them is
launched (`launch_forty.json`). Recipes and guesses were developed on other records of the seed; no
result of the forty led to a change.
"""

import argparse
import json
from pathlib import Path
from random import Random
from typing import Any

from assets.marketplaces.listing import Listing
from assets.marketplaces.serverjson import server_listing

FROZEN = Path(__file__).with_name("launch_forty.json")
SEED, COUNT = 4, 40


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--freeze", action="store_true", help="draw the forty and write the list")
    options = parser.parse_args()
    if options.freeze:
        freeze(population(options.data))


def population(data: Path) -> dict[str, Listing]:
    """`npm:NAME` or `pypi:NAME` -> listing, of every record with such a package."""
    [path] = sorted((data / "registry-seed").glob("seed_*.json"))
    found = {}
    for record in json.loads(path.read_text(encoding="utf-8")):
        if record.get("name"):
            listing = server_listing(record, "registry")
            package = listing.package
            if package and package.type in ("npm", "pypi"):
                found[f"{package.type}:{package.identifier}"] = listing
    return dict(sorted(found.items()))


def drawn(names: list[str]) -> list[str]:
    return sorted(Random(SEED).sample(names, COUNT))


def freeze(listings: dict[str, Listing]) -> None:
    """Writes the list; one that is there stays."""
    facts: dict[str, Any] = {
        "seed": SEED,
        "population": len(listings),
        "draw": "sorted(random.Random(seed).sample(sorted names, 40))",
        "servers": drawn(list(listings)),
    }
    with FROZEN.open("x", encoding="utf-8") as file:
        file.write(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
