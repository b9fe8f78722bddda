"""How well do the rules sort pairs? Catch rate per flaw kind and false alarms on good pairs.

    python -m benchmarks.bench_verify [--shared DATA] [--mutants 2000] [--embed]

1. The labelled corpus (written by a language model, row by row, not by people), rules alone: each
   flaw kind, and the good rows of each kind, with 95% Wilson intervals; then by halves of its
   servers. `--embed` adds the cosine rule.
2. Mechanical mutants of its good direct and detailed rows, one flaw each; kinds whose flaw is in
   the meaning stand apart.
3. Near misses: one stated value of a good row is changed a little (another digit, day, month,
   choice) and the call stays valid.
"""

import argparse
import json
import random
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from assets.contracts.canonical import ContractError, contract, contract_digest
from assets.contracts.validate import validate_call
from assets.synthesis.common.contract_reading import resolve
from assets.synthesis.common.policy import SynthesisPolicy
from assets.synthesis.judging.trial.flaws import mutants
from assets.synthesis.verify.filters import cosines, echo_finding
from assets.synthesis.verify.grounding.grounding import STATED, Text, grade
from assets.synthesis.verify.verify import verify
from benchmarks.shared_data import SHARED, require
from warehouse.statistics import wilson
from warehouse.storage.digest import digest

Json = Any
Row = dict[str, Json]
GOOD = ("direct", "detailed", "implicit")
# Flaws of meaning: what no rule over one call and one text is meant to see.
SEMANTIC = ("wrong_tool", "unrealistic", "copies_description")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shared", type=Path, default=SHARED)
    parser.add_argument("--mutants", type=int, default=2000)
    parser.add_argument("--embed", action="store_true")
    given = parser.parse_args()
    require(given.shared / "corpus")
    contracts = tools(given.shared / "smithery" / "servers.jsonl")
    files = sorted((given.shared / "corpus").glob("pairs_*.jsonl"))
    rows = [json.loads(line) for path in files for line in path.open(encoding="utf-8")]
    began = time.perf_counter()
    verdicts = [judged(row, contracts) for row in rows]
    print(f"{len(rows)} rows in {time.perf_counter() - began:.1f} s, rules alone")
    table("corpus", zip([row["flaw"] or row["kind"] for row in rows], verdicts, strict=True))
    halves(rows, verdicts)
    if given.embed:
        embedded(rows, contracts)
    good = [row for row in rows if row["kind"] in ("direct", "detailed")]
    accepted = [row for row in good if judged(row, contracts) == "accept"]
    made = list(mechanical(accepted, contracts, given.mutants))
    for title, wanted in (("mechanical mutants", False), ("mechanical mutants of meaning", True)):
        kinds = [(k, v) for k, v in made if (k in SEMANTIC) == wanted]
        table(title, kinds)
    table("near misses", near_misses(accepted, contracts))


def tools(path: Path) -> dict[str, Row]:
    found: dict[str, Row] = {}
    for line in path.open(encoding="utf-8"):
        server = json.loads(line)
        for tool in server.get("tools") or []:
            try:
                schema = tool.get("inputSchema") or {"type": "object"}
                of = contract({**tool, "inputSchema": schema})
                found[f"{server['qualified_name']}::{tool['name']}"] = of
            except (ContractError, KeyError, TypeError, AttributeError):
                continue
    return found


def judged(row: Row, contracts: dict[str, Row]) -> str:
    server = row["tool_id"].rsplit("::", 1)[0]
    of = contracts[row["tool_id"]]
    return verify(of, row["instruction"], row["arguments"], server=server).verdict


def table(title: str, cases: Iterable[tuple[str, str]]) -> None:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for kind, verdict in cases:
        counts[kind][verdict] += 1
    print(
        f"\n{title}\n| kind | n | rejected | 95% | not accepted | 95% |\n|---|---|---|---|---|---|"
    )
    for kind, count in sorted(counts.items()):
        n = count.total()
        cells = [share(count["reject"], n), share(n - count["accept"], n)]
        print(f"| {kind} | {n} | {' | '.join(cells)} |")


def share(hits: int, n: int) -> str:
    low, high = wilson(hits, n)
    return f"{hits / max(1, n):.3f} | {low:.3f}-{high:.3f}"


def halves(rows: Sequence[Row], verdicts: Sequence[str]) -> None:
    """The figures of the issue on either half of the servers, split by a hash of the server."""
    groups = {
        "direct, detailed accepted": (("direct", "detailed"), "accept"),
        "implicit rejected": (("implicit",), "reject"),
        "grounding flaws accepted": (("missing_required_value", "ungrounded_value"), "accept"),
        "form flaws rejected": (("not_an_instruction", "names_the_tool"), "reject"),
    }
    print("\n| figure | half 0 | 95% | half 1 | 95% |\n|---|---|---|---|---|")
    for name, (kinds, verdict) in groups.items():
        cells: list[str] = []
        for half in (0, 1):
            mine = [
                v for row, v in zip(rows, verdicts, strict=True)
                if (row["flaw"] or row["kind"]) in kinds and side(row) == half
            ]  # fmt: skip
            cells.append(share(mine.count(verdict), len(mine)))
        print(f"| {name} | {' | '.join(cells)} |")


def side(row: Row) -> int:
    return int(digest(row["tool_id"].rsplit("::", 1)[0])[:8], 16) % 2


def embedded(rows: Sequence[Row], contracts: dict[str, Row]) -> None:
    """The cosine rule alone, and with the rules."""
    from assets.vectors.embed import MiniLM

    began = time.perf_counter()
    pairs = [
        (r["instruction"], str(contracts[r["tool_id"]].get("description") or "")) for r in rows
    ]
    found = cosines(pairs, MiniLM().embed)
    print(f"\n{len(pairs)} cosines in {time.perf_counter() - began:.1f} s, model loaded anew")
    above = SynthesisPolicy().copies_above
    alone, both = list[tuple[str, str]](), list[tuple[str, str]]()
    for row, cosine in zip(rows, found, strict=True):
        kind = row["flaw"] or row["kind"]
        echo = echo_finding(cosine, above) is not None
        alone.append((kind, "reject" if echo else "accept"))
        both.append((kind, "reject" if echo else judged(row, contracts)))
    table(f"cosine > {above} alone", alone)
    table("rules and cosine", both)


def mechanical(
    rows: Sequence[Row], contracts: dict[str, Row], most: int
) -> Iterator[tuple[str, str]]:
    """(flaw, verdict) of at least `most` mutants of good rows, one flaw each."""
    rng = random.Random(0)
    known = {contract_digest(of): of for of in contracts.values()}
    servers = {contract_digest(of): tool_id for tool_id, of in contracts.items()}
    made = 0
    for row in rng.sample(list(rows), len(rows)):
        of = contracts[row["tool_id"]]
        pair = {
            **row, "contract_digest": contract_digest(of), "tool": of["name"],
            "server_id": row["tool_id"].rsplit("::", 1)[0], "task": "single",
            "arguments": json.dumps(row["arguments"], ensure_ascii=False),
        }  # fmt: skip
        for one in mutants(pair, of, known, rng):
            mutant = one["pair"]
            held = mutant["arguments"]
            call = json.loads(held) if isinstance(held, str) else held
            tool_id = servers[mutant["contract_digest"]]
            made += 1
            changed = {"tool_id": tool_id, "instruction": mutant["instruction"], "arguments": call}
            yield one["flaw"], judged(changed, contracts)
        if made >= most and made % 7 == 0:
            return


def near_misses(rows: Sequence[Row], contracts: dict[str, Row]) -> Iterator[tuple[str, str]]:
    """(what was changed, verdict) where one top-level value that is stated was changed."""
    rng = random.Random(1)
    for row in rows:
        of = contracts[row["tool_id"]]
        root = of["inputSchema"]
        for name, value in row["arguments"].items():
            declared = (root.get("properties") or {}).get(name)
            schema = resolve(declared or {}, root)
            if grade(value, schema, name, Text(row["instruction"])) != STATED:
                continue
            if schema.get("default") == value or isinstance(value, (bool, list, dict)):
                continue
            for kind, other in changes(value, schema, rng):
                call = {**row["arguments"], name: other}
                if (
                    other != value
                    and schema.get("default") != other
                    and not validate_call(of, call)
                ):
                    yield kind, judged({**row, "arguments": call}, contracts)


def changes(value: Json, schema: Row, rng: random.Random) -> Iterator[tuple[str, Json]]:
    """Small lies about one value."""
    if isinstance(value, (int, float)):
        yield "number: plus one", value + 1
        yield "number: tenfold", value * 10
        digits = str(abs(value))
        if len(set(digits)) > 1 and digits.isdigit():
            yield "number: digits turned round", int(digits[::-1])
        return
    text = str(value)
    choices = [c for c in schema.get("enum") or [] if isinstance(c, str) and c != value]
    if choices:
        yield "choice: another one", rng.choice(choices)
        return
    if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
        day = date.fromisoformat(text)
        yield "date: the day after", (day + timedelta(days=1)).isoformat()
        yield "date: another month", day.replace(day=1, month=day.month % 12 + 1).isoformat()
        yield "date: another year", f"{day.year + 1}{text[4:]}"
    elif len(text) > 3 and any(char.isdigit() for char in text):
        place = rng.choice([n for n, char in enumerate(text) if char.isdigit()])
        yield "id: another digit", f"{text[:place]}{(int(text[place]) + 3) % 10}{text[place + 1 :]}"
    elif len(text) > 3:
        yield "text: another one", rng.choice(["Quillfeather", "mossgrove", "zanzibar", "Umberto"])


if __name__ == "__main__":
    main()
