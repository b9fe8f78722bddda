"""Parse success over saved payloads: one line a file.

    python benchmarks/parse_samples.py ../shared/data/marketplaces

A file that is not a payload of its marketplace (a schema, an error body, notes) is refused with one
line; the table says which, so that nobody takes a refusal for a loss.
"""

import sys
from collections import Counter
from pathlib import Path

from assets.marketplaces.crawl.adhoc import parse_file
from assets.marketplaces.policy import CrawlError

MARKETPLACES = {
    "official-registry": "registry",
    "github-registry": "registry",
    "toolhive": "registry",
    "docker-catalog": "docker",
    **{name: name for name in ("smithery", "glama", "pulsemcp", "mcpso", "mcphub")},
    **{name: name for name in ("deepnlp", "pipedream")},
}
SKIPPED = {"PROVENANCE.md"}


def main(folder: Path) -> None:
    print("| file | listings | runnable | reason if not |")
    print("| --- | ---: | ---: | --- |")
    for site, marketplace in sorted(MARKETPLACES.items()):
        for path in sorted((folder / site).glob("*")):
            if path.name not in SKIPPED:
                print(f"| {site}/{path.name} | {_line(marketplace, path)} |")


def _line(marketplace: str, path: Path) -> str:
    try:
        listings = parse_file(marketplace, path)
    except CrawlError as error:
        return f"refused | - | {error.kind}: {error.found}".replace("\n", " ")[:120]
    reasons = Counter(one["reason"] for one in listings if not one["runnable"])
    told = "; ".join(f"{count} x {reason}" for reason, count in reasons.most_common(3))
    runnable = sum(one["runnable"] for one in listings)
    return f"{len(listings)} | {runnable} | {told[:120]}"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
