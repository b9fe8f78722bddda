"""Results: how often the scan is wrong about honest answers of tools, and what it costs.

    python -m benchmarks.bench_results

Three sources: the API answers of `api-bank/`, the sample pages of `marketplaces/`, and what a file
or fetch server would hand on of the packages installed here (their descriptions, and each twentieth
Python file). Each is inspected as a call's result is; printed are those with a high finding, those
whose text was changed (a key taken out), and characters a second. One process, one thread.
"""

import json
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from assets.servers.calls.content import check_result
from assets.servers.calls.result import CallResult
from benchmarks.shared_data import SHARED, require_paths
from warehouse.statistics import wilson_interval

_LONGEST = 262_144  # characters of one text block, as calls hand them on


def main() -> None:
    require_paths(SHARED)
    packages = Path(sysconfig.get_paths()["purelib"])
    sources = {
        "api-bank": read_api_answers(SHARED),
        "pages": read_files((SHARED / "marketplaces").rglob("*")),
        "package texts": read_files(packages.glob("*.dist-info/METADATA")),
        "python files": read_files(sorted(packages.rglob("*.py"))[::20]),
    }
    print(json.dumps({name: measure_alarms(texts) for name, texts in sources.items()}, indent=1))


def measure_alarms(texts: Iterator[tuple[str, str]]) -> dict[str, Any]:
    """Alarms and changes over (where, text) of honest results of one text each."""
    count = size = 0
    high: list[str] = []
    changed: list[str] = []
    seconds = 0.0
    for where, text in texts:
        content = [{"type": "text", "text": text[:_LONGEST]}]
        began = time.perf_counter()
        made, _ = check_result(CallResult("ok", content), "read", {}, own_words=True)
        seconds += time.perf_counter() - began
        count, size = count + 1, size + len(content[0]["text"])
        high += [f"{where} {rule}" for rule in made.alarming]
        changed += [where] if made.content != content else []
    flagged = len({line.rsplit(" ", 1)[0] for line in high})
    return {
        "results": count,
        "characters": size,
        "characters_per_second": round(size / seconds) if seconds else 0,
        "high": flagged,
        "high_interval": wilson_interval(flagged, count),
        "changed": changed,
        "alarms": high,
    }


def read_api_answers(data: Path) -> Iterator[tuple[str, str]]:
    """(file and line, answer) of every API answer of API-Bank's dialogues."""
    for path in sorted((data / "api-bank" / "lv1-lv2-samples").rglob("*.jsonl")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            turn = json.loads(line)
            if turn["role"] == "API":
                yield f"{path.name}:{number}", json.dumps(turn["result"], ensure_ascii=False)


def read_files(paths: Any) -> Iterator[tuple[str, str]]:
    """(name, text) of each file that is text."""
    for path in sorted(paths):
        if path.is_file():
            try:
                text = path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue
            yield f"{path.parent.name}/{path.name}", text


if __name__ == "__main__":
    main()
