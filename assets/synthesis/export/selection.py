"""Selects the pairs of an export: accepted as of a moment, clear now, on one side of the split."""

import json
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache

import polars as pl
from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

from assets.contracts.quarantined_tools import ContractFirewall
from assets.contracts.snapshot import SNAPSHOTS
from assets.synthesis.old_contracts import read_old_contracts
from assets.synthesis.tables import JUDGEMENTS, PAIRS, TASKS, TRACE, read_contract, read_goldens
from warehouse.json_types import Contract, Record
from warehouse.storage.tables import Tables

# Approved by the Open Source Initiative (its sixth criterion forbids to exclude commerce), the
# Creative Commons licences without NC, and public-domain dedications. By their current SPDX ids;
# `-only`, `-or-later` and `+` are versions of the same.
_IDS = """
0BSD AAL AFL-1.1 AFL-1.2 AFL-2.0 AFL-2.1 AFL-3.0 AGPL-3.0 Apache-1.1 Apache-2.0 APSL-2.0
Artistic-1.0 Artistic-2.0 BlueOak-1.0.0 BSD-1-Clause BSD-2-Clause BSD-2-Clause-Patent BSD-3-Clause
BSL-1.0 CAL-1.0 CC0-1.0 CC-BY-2.0 CC-BY-2.5 CC-BY-3.0 CC-BY-4.0 CC-BY-SA-3.0 CC-BY-SA-4.0 CDDL-1.0
CECILL-2.1 CPL-1.0 ECL-2.0 EFL-2.0 EPL-1.0 EPL-2.0 EUPL-1.1 EUPL-1.2 GPL-2.0 GPL-3.0 HPND ISC
LGPL-2.0 LGPL-2.1 LGPL-3.0 MIT MIT-0 MPL-1.1 MPL-2.0 MS-PL MS-RL MulanPSL-2.0 NCSA ODbL-1.0
OFL-1.1 OSL-3.0 PostgreSQL PSF-2.0 Python-2.0 UPL-1.0 Unicode-3.0 Unlicense Vim W3C Zlib ZPL-2.1"""
_COMMERCIAL = frozenset(name.lower() for name in _IDS.split())


@cache
def normalise_licence(licence: str | None) -> str | None:
    """The SPDX expression in its normal form; None for what is none."""
    try:
        return canonicalize_license_expression(licence or "")
    except InvalidLicenseExpression:
        return None


@cache
def permits_commercial_use(licence: str | None) -> bool:
    """Whether the licence is known to permit commercial use: one side of an OR, both of an AND."""
    expression = normalise_licence(licence)
    if expression is None:
        return False
    while "(" in expression:  # the innermost parentheses first
        expression = re.sub(
            r"\(([^()]*)\)", lambda inner: "MIT" if _permits(inner[1]) else "NONE", expression
        )
    return _permits(expression)


def _permits(expression: str) -> bool:
    """Whether an expression without parentheses permits it; an exception only permits more."""
    return any(
        all(_is_commercial(name.split(" WITH ")[0].strip()) for name in option.split(" AND "))
        for option in expression.split(" OR ")
    )


def _is_commercial(name: str) -> bool:
    return name.removesuffix("+").removesuffix("-only").removesuffix("-or-later").lower() in (
        _COMMERCIAL
    )


Held = Callable[[Sequence[Record]], Collection[str]]  # snapshot rows -> digests that are held
TRAIN, TEST, ALL = "train", "test", "all"


class ExportError(ValueError):
    """An export that cannot be made: what was asked, what is there, and what to do."""


@dataclass(frozen=True)
class ExportChoice:
    """What is asked for. split_of: the side of a server, a frozen function of its id. proved: the
    pairs to keep, that execution proved; None for all. invalid: pairs whose executed call failed,
    which are left out."""

    as_of: float
    split_of: Callable[[str], str]
    held: Held
    split: str = ALL
    tasks: Collection[str] = TASKS
    commercial_only: bool = False
    proved: Collection[str] | None = None
    invalid: Collection[str] = frozenset()
    more: Sequence["ExtraRow"] = ()


@dataclass(frozen=True)
class ExtraRow:
    """A row like a pair's from no marketplace. judge: who accepted it; offered: snapshot rows."""

    row: Record
    judge: str
    offered: Sequence[Record]


@dataclass
class ExportPair:
    """One pair with its judgement and the contracts it needs."""

    row: Record
    judgement: Record
    split: str
    contracts: Mapping[str, Contract]


def parse_moment(text: str, now: float | None = None) -> float:
    """Epoch seconds of an ISO time, or of the end of a day (UTC). Raises ExportError."""
    now = time.time() if now is None else now
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ExportError(
            f"--as-of {text[:60]!r} is no date: expected a day as 2026-11-22, or a day and a time"
        ) from None
    at = at.replace(tzinfo=at.tzinfo or UTC)
    today = datetime.fromtimestamp(now, UTC)
    whole_day = len(text.strip()) <= len("2026-11-22")
    if at.timestamp() > now or (whole_day and at.date() > today.date()):
        raise ExportError(
            f"--as-of {text} is in the future: now it is {today:%Y-%m-%d %H:%M} UTC; ask for a day"
            " that has begun"
        )
    return (at + timedelta(days=1)).timestamp() - 1e-3 if whole_day else at.timestamp()


def check_published(tables: Tables, as_of: float) -> None:
    """Raises ExportError where no pairs were published by then."""
    histories = [tables.history(PAIRS.name, market) for market in tables.partitions(PAIRS.name)]
    first = min((heads[0].at for heads in histories if heads), default=None)
    if first is None:
        raise ExportError("no pairs were ever published here: run `toolmill run` first")
    if first > as_of:
        raise ExportError(
            f"nothing was published by {_format_moment(as_of)}: the first pairs are of"
            f" {_format_moment(first)};"
            " ask for that day or a later one"
        )


def select_pairs(
    tables: Tables, choice: ExportChoice, left_out: Counter[str]
) -> Iterator[ExportPair]:
    """Every pair accepted as of then, once; `left_out` counts why others are not there."""
    pair_ids: set[str] = set()
    for market in tables.partitions(PAIRS.name):
        verdicts = tables.read(JUDGEMENTS, market, as_of=choice.as_of)
        accepted = verdicts.filter(pl.col("verdict") == "accept")
        columns = accepted.select("pair_id", "judge", "score")
        judged = {row["pair_id"]: row for row in columns.iter_rows(named=True)}
        refused = (pl.col("verdict") == "reject").fill_null(False)
        whole = (pl.col("status") == "ok") & ~refused & pl.col("twin_of").is_null()
        frame = (
            tables.read(PAIRS, market, as_of=choice.as_of)
            .filter(whole)
            .filter(pl.col("pair_id").is_in(judged.keys()))
        )
        rows = _read_contracts(tables, market, frame, choice.as_of)
        bodies = {row["contract_digest"]: read_contract(row) for row in rows}
        sides = _find_sides(rows, choice)
        held_digests = set(choice.held(rows))
        for row in frame.iter_rows(named=True):
            if row["pair_id"] in pair_ids:
                continue
            pair_ids.add(row["pair_id"])
            split, why = _find_split(row, choice, sides, held_digests)
            if why is not None:
                left_out[why] += 1
            else:
                yield _make_pair(row, judged[row["pair_id"]], split, sides, bodies)
    if choice.more:
        yield from _select_added(tables, choice, left_out)


def _select_added(
    tables: Tables, choice: ExportChoice, left_out: Counter[str]
) -> Iterator[ExportPair]:
    """Those of `more` that the same rules let through."""
    choice = replace(choice, proved=None, invalid=frozenset())  # their end states are the proof
    digests = {row["contract_digest"] for added in choice.more for row in added.offered}
    snapshots = tables.read(SNAPSHOTS, as_of=choice.as_of)
    snapshots = snapshots.filter(pl.col("contract_digest").is_in(list(digests))).to_dicts()
    for added in choice.more:
        sides = _find_sides([*snapshots, *added.offered], choice)
        split, why = _find_split(added.row, choice, sides, set(choice.held(added.offered)))
        if why is not None:
            left_out[why] += 1
            continue
        bodies = {row["contract_digest"]: read_contract(row) for row in added.offered}
        judgement = {"judge": added.judge, "score": None}
        yield _make_pair(added.row, judgement, split, sides, bodies)


def _find_split(
    row: Record, choice: ExportChoice, sides: Mapping[str, set[str]], held: set[str]
) -> tuple[str, str | None]:
    """(the row's side of the split, why it is left out or None)."""
    split, calls = choice.split_of(row["server_id"]), read_goldens(row)
    called = {row["contract_digest"], *(call.contract_digest for call in calls)}
    proved = choice.proved is None or row["pair_id"] in choice.proved
    permitted = not choice.commercial_only or permits_commercial_use(row["license"])
    reasons = {
        "another task": row["task"] not in choice.tasks,
        "the other side of the split": choice.split not in (ALL, split),
        "not proved by execution": not proved,
        "its executed call had no valid response": row["pair_id"] in choice.invalid,
        "no licence that is known to permit commercial use": not permitted,
        "it calls servers of both sides of the split": any(
            choice.split_of(call.server_id) != split for call in calls
        ),
        "a contract that its prompts showed is held": bool(held & _list_shown(row)),
        "a trace is learnt from and not tested on": split != TRAIN and row["basis"] == TRACE,
        "a server of the test side lists the same tool": split == TRAIN
        and any(TEST in sides[name] for name in called),
    }
    return split, next((why for why, applies in reasons.items() if applies), None)


def _make_pair(
    row: Record,
    judgement: Record,
    split: str,
    sides: Mapping[str, set[str]],
    bodies: Mapping[str, Contract],
) -> ExportPair:
    offered = [name for name in _list_offered(row) if split in sides.get(name, {split})]
    return ExportPair({**row, "offered": json.dumps(offered)}, judgement, split, bodies)


def ask_firewall(wall: ContractFirewall) -> Held:
    """The firewall's answer."""
    return lambda rows: {row["contract_digest"] for row in wall.split(rows)[1]}


def _list_shown(row: Record) -> set[str]:
    digests = [*json.loads(row["contracts"] or "[]"), *_list_offered(row)]
    return {row["contract_digest"], *digests, *(call.contract_digest for call in read_goldens(row))}


def _list_offered(row: Record) -> list[str]:
    """The contracts to choose among. Where a row offers its own alone, the hard ones from which
    the checkers picked it without fail stand beside it: one tool alone teaches no choice."""
    offered = json.loads(row["offered"] or "[]")
    checks = json.loads(row["checks"] or "{}")
    sure = len(offered) <= 1 and checks.get("verdict") == "right"
    return list(dict.fromkeys([*offered, *(checks.get("candidates", []) if sure else [])]))


def _read_contracts(tables: Tables, market: str, frame: pl.DataFrame, at: float) -> list[Record]:
    """Snapshot rows of all contracts that the rows rest on, once for each server that has one."""
    digests: set[str] = set()
    for row in frame.iter_rows(named=True):
        digests |= _list_shown(row)
    snapshots = tables.read(SNAPSHOTS, market, as_of=at)
    rows = snapshots.filter(pl.col("contract_digest").is_in(list(digests))).to_dicts()
    lacking = digests - {row["contract_digest"] for row in rows}
    older = read_old_contracts(tables, lacking, market, as_of=at)
    return [*rows, *(row for name, row in older.items() if name in lacking)]


def _find_sides(rows: Sequence[Record], choice: ExportChoice) -> dict[str, set[str]]:
    """Contract digest -> the sides of its servers: training shows no tool of a test server."""
    sides: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        sides[row["contract_digest"]].add(choice.split_of(row["server_id"]))
    return sides


def _format_moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")
