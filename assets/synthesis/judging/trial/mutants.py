"""What the judge is tried on: good rows that are known, and mutants with one flaw each.

The known-good rows carry three mutants that only sense can tell (`unrealistic`, `wrong_tool`,
`copies_description`): a mechanical mutant of those kinds is the easy case.
"""

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path

from assets.contracts.canonical import canonicalize_contract as canonical
from assets.contracts.canonical import contract_digest
from assets.synthesis.common.tables import (
    ONE_CALL,
    Golden,
    dump_text,
    make_pair_id,
    make_single_row,
    reaches_judge,
)
from assets.synthesis.judging.trial.flaws import make_mutants, rewrite_row
from assets.synthesis.verify.verify_row import verify_row
from warehouse.json_types import Json, JsonObject
from warehouse.storage.digest import sha256

Pair = dict[str, Json]
Contracts = Mapping[str, JsonObject]
GOOD = "good"  # written and read by a person: refusing one is a false alarm
OF_THE_RUN = "of_the_run"  # accepted by the rules in this run: presumed good, and counted apart


@dataclass(frozen=True)
class Case:
    """One row of the trial, and what is wrong with it: a flaw's kind, `GOOD` or `OF_THE_RUN`.

    by_rules: the rules' verdict, where it is the same in every run; else "".
    """

    kind: str
    row: Pair
    by_rules: str = ""


@cache
def read_known_good() -> tuple[tuple[Pair, ...], dict[str, dict[str, Json]]]:
    """The known-good rows as rows of PAIRS, and their contracts by digest."""
    known = json.loads(Path(__file__).with_name("known_good.json").read_text(encoding="utf-8"))
    contracts: dict[str, dict[str, Json]] = {}
    digests: dict[tuple[str, str], str] = {}
    for one in known["tools"]:
        found = canonical(one["contract"])
        digest = contract_digest(one["contract"])
        contracts[digest] = found
        digests[one["server_id"], found["name"]] = digest
    rows = [_make_row(one, digests) for one in known["rows"]]
    return tuple(rows), contracts


def _make_row(facts: JsonObject, digests: Mapping[tuple[str, str], str]) -> Pair:
    server, tool = facts["server_id"], facts["tool"]
    digest = digests[server, tool]
    offered = sorted(found for (of, _), found in digests.items() if of == server)
    call = Golden(server, tool, digest, facts["arguments"])
    row = make_single_row(call, facts["instruction"], offered) | {
        "marketplace": "known_good",
        "plan_digest": "known_good",
        "index": 0,
        "kind": facts["kind"],
        "profile": dump_text({"language": facts["language"]}),
        "contracts": dump_text(offered),
    }
    row = rewrite_row(row, facts["instruction"], facts["arguments"])
    return {**row, "pair_id": make_pair_id(row), "_mutants": facts["mutants"]}


def make_cases(
    written: Iterable[Pair], contracts: Contracts, *, seed: int, good: int
) -> tuple[list[Case], dict[str, JsonObject]]:
    """Every case of one trial, and the contracts they stand on; the same for the same seed.

    `written`: rows of PAIRS; up to `good` of those that hold one call and that the rules accepted
    are drawn. Only rules have accepted them: what the judge said of them would make its false
    alarms look rare. Each row is drawn, and its mutants are made, by itself: where one row is
    another, what the judge said of the others' is in the ledger.
    """
    found = [*_make_known_cases(seed)]
    for row in _draw_rows(written, contracts, seed, good):
        found.append(Case(OF_THE_RUN, row))
        found += _make_mechanical(row, contracts, seed, without=set())
    return found, {**contracts, **read_known_good()[1]}


@lru_cache(maxsize=4)
def _make_known_cases(seed: int) -> tuple[Case, ...]:
    """The known-good rows and their mutants: the same for every marketplace of a run."""
    rows, own = read_known_good()
    found: list[Case] = []
    for row in rows:
        by_sense = row["_mutants"]
        plain = {name: value for name, value in row.items() if name != "_mutants"}
        found.append(Case(GOOD, plain))
        found += _make_mechanical(plain, own, seed, without=set(by_sense))
        arguments = json.loads(row["arguments"])
        found += [
            Case(kind, rewrite_row(plain, text, arguments)) for kind, text in by_sense.items()
        ]
    return tuple(replace(one, by_rules=verify_row(one.row, own).verdict) for one in found)


def _draw_rows(written: Iterable[Pair], contracts: Contracts, seed: int, n: int) -> list[Pair]:
    known = [row for row in written if row["task"] in ONE_CALL and row["verdict"] == "accept"]
    known = [row for row in known if reaches_judge(row) and row["contract_digest"] in contracts]
    return sorted(known, key=lambda row: sha256(f"{seed}:{row['pair_id']}".encode()))[:n]


def _make_mechanical(
    row: Pair, contracts: Contracts, seed: int, without: set[str]
) -> Sequence[Case]:
    rng = random.Random(f"{seed}:{row['pair_id']}")
    made = make_mutants(row, contracts[row["contract_digest"]], contracts, rng)
    return [Case(one["flaw"], one["pair"]) for one in made if one["flaw"] not in without]
