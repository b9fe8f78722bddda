"""Carries pairs of one call over to a contract that changed, where their words still fit.

A renamed tool, a renamed parameter, a new option or default, a wider type and a longer enumeration
leave a request true. Pairs of any other change or task are written again. No model is asked: the
call is rewritten, validated and verified, and its new `pair_id` sends it to the judge again.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import polars as pl

from assets.contracts.schema_shapes import collect_properties, list_kinds, resolve
from assets.contracts.snapshot import SNAPSHOTS
from assets.contracts.tool_renames import find_renames
from assets.contracts.validate import validate_call
from assets.synthesis.tables import (
    ONE_CALL,
    dump_text,
    make_call_message,
    make_pair_id,
    make_user_message,
    read_contract,
    read_goldens,
)
from assets.synthesis.verify.rules import verify_row
from assets.vectors.lexicon import collect_words, split_identifier
from warehouse.item_failure import INTERNAL, describe_failure, try_item
from warehouse.json_types import Json, JsonObject, Row
from warehouse.storage.tables import Tables

_FILTERS = {"copies_description", "near_duplicate"}  # found again by filters over many rows
_DIGEST_COLUMNS = ("contracts", "offered", "checks")  # JSON that names contracts by digest
# Parameters that one description may fit although they differ.
_OPPOSITES = collect_words("""
min max minimum maximum start end begin from to before after since until source target src dst
origin destination first last old new exclude include not left right top bottom""")  # fmt: skip


class UnmovablePair(ValueError):
    """Why a row cannot be carried over, in words for the list of retired rows."""


@dataclass(frozen=True)
class MigrationResult:
    """moved: whole rows of PAIRS. retired: (pair_id, why) of rows to write again."""

    moved: list[dict[str, Any]] = field(default_factory=list)
    retired: list[tuple[str, str]] = field(default_factory=list)


def migrate_pairs(
    rows: Sequence[Row],
    old: Mapping[str, Row],
    now: Mapping[str, Row],
    *,
    barred: Collection[str] = (),
) -> MigrationResult:
    """Carries `rows` of PAIRS over to the contracts of `now`; each is moved or retired with why.

    old: contract digest -> snapshot row of then (`read_old_contracts`). now: `server_id/tool` ->
    snapshot row, clear and usable ones only. barred: contracts that are held now: a row one of
    whose prompts showed one is retired.
    """
    contracts, result = _ContractHistory(old, now), MigrationResult()
    for row in rows:
        try:
            result.moved.append(_migrate_row(row, contracts, set(barred)))
        except UnmovablePair as why:
            result.retired.append((row["pair_id"], str(why)))
        except Exception as error:  # nobody foresaw it: its words are written again
            result.retired.append((row["pair_id"], f"{INTERNAL}: {describe_failure(error)}"))
    return result


def _migrate_row(row: Row, contracts: "_ContractHistory", barred: set[str]) -> dict[str, Any]:
    if row["status"] != "ok":
        raise UnmovablePair("it had failed")
    if row["verdict"] == "reject":
        raise UnmovablePair("the rules had refused it")
    if row["task"] not in ONE_CALL:
        raise UnmovablePair(f"pairs of the task {row['task']} are written again")
    shown = _read_list(row, "contracts")
    if held := barred & set(shown):
        raise UnmovablePair(f"a prompt of it showed a contract that is held: {min(held)[:15]}")
    [call] = read_goldens(row)
    digests = {row["contract_digest"], *shown, *_read_list(row, "offered")}
    own = {row["contract_digest"]: row}  # other servers may list the same contract
    went = {digest: contracts.find_successor(digest, own.get(digest)) for digest in digests}
    here = went[call.contract_digest]
    old, new = contracts.bodies[call.contract_digest], contracts.bodies[here["contract_digest"]]
    arguments = rewrite_arguments(old, new, call.arguments)
    identity = {name: here[name] for name in ("tool", "contract_digest")}
    receipt = {"step": "migrate", "role": "", "model": "rules", "seed": row["seed"], "usd": 0.0,
               "prompt_tokens": 0, "completion_tokens": 0, "from": row["pair_id"]}  # fmt: skip
    messages = [
        make_user_message(row["instruction"]),
        make_call_message(1, [(here["tool"], arguments)]),
    ]
    moved: dict[str, Any] = {
        **row,
        **identity,
        "recipe_digest": here["recipe_digest"],
        "license": here.get("license") or row.get("license"),
        "arguments": dump_text(arguments),
        "calls": dump_text([{**vars(call), **identity, "arguments": arguments}]),
        "messages": dump_text(messages) if row["messages"] else row["messages"],
        "steps": dump_text([*_read_list(row, "steps"), receipt]),
        "migrated_from": row.get("migrated_from") or row["pair_id"],
        "cosine": None,
        "twin_of": None,
    }
    for column in _DIGEST_COLUMNS:
        for digest, successor in went.items():
            moved[column] = moved[column] and moved[column].replace(
                digest, successor["contract_digest"]
            )
    moved["pair_id"] = make_pair_id(moved)
    # The rules' verdict of now, and what others had found and rules cannot see.
    by_rules = set(verify_row(row, contracts.bodies).kinds) | _FILTERS
    others = [flaw for flaw in _read_list(row, "flaws") if flaw["kind"] not in by_rules]
    findings = verify_row(moved, contracts.bodies).findings
    flaws = [*(vars(finding) for finding in findings), *others]
    if certain := sorted({flaw["kind"] for flaw in flaws if flaw["certain"]}):
        raise UnmovablePair(f"the rules refuse it now: {', '.join(certain)}")
    return {**moved, "verdict": "unsure" if flaws else "accept", "flaws": dump_text(flaws)}


def _read_list(row: Row, column: str) -> list[Any]:
    return json.loads(row.get(column) or "[]")


class _ContractHistory:
    """The contracts of before (digest -> snapshot row) and of now (`server_id/tool` -> row).

    `old` also holds the unchanged neighbours of the tools asked about: a tool that was listed
    beside the one that is gone cannot be its new name.
    """

    def __init__(self, old: Mapping[str, Row], now: Mapping[str, Row]) -> None:
        self._rows = {**{row["contract_digest"]: row for row in now.values()}, **old}
        self.bodies = _read_bodies(self._rows)
        self._then, self._now = _group_by_server(old.values()), _group_by_server(now.values())
        self._renamed: dict[str, dict[str, Row]] = {}

    def find_successor(self, digest: str, of: Row | None) -> Row:
        """The row now in a tool's place: by its name, else by a rename. Raises UnmovablePair."""
        if digest not in self._rows:
            raise UnmovablePair(f"the contract {digest[:15]} was never published")
        server, tool = ((of or self._rows[digest])[name] for name in ("server_id", "tool"))
        had, has = self._then[server], self._now[server]
        if server not in self._renamed:
            gone = _read_bodies({name: row for name, row in had.items() if name not in has})
            come = _read_bodies({name: row for name, row in has.items() if name not in had})
            self._renamed[server] = {old: has[new] for new, old in find_renames(gone, come).items()}
        here = has.get(tool) or self._renamed[server].get(tool)
        if here is None:
            raise UnmovablePair(f"{tool}, which it shows or calls, is gone or held")
        return here


def _read_bodies(rows: Mapping[str, Row]) -> dict[str, dict[str, Any]]:
    """The contracts that can be read, by the names of their rows."""
    bodies = {
        name: try_item(partial(read_contract, row), lambda _: None) for name, row in rows.items()
    }
    return {name: body for name, body in bodies.items() if body is not None}


def _group_by_server(rows: Iterable[Row]) -> dict[str, dict[str, Row]]:
    grouped: dict[str, dict[str, Row]] = defaultdict(dict)
    for row in rows:
        grouped[row["server_id"]].setdefault(row["tool"], row)
    return grouped


def read_old_contracts(
    tables: Tables,
    digests: Collection[str],
    marketplace: str | None = None,
    *,
    as_of: float | None = None,
) -> dict[str, dict[str, Any]]:
    """digest -> snapshot row of each of `digests` in what was ever published, and of every tool
    that its server listed beside it then.

    The latest publication (before `as_of`) that holds a digest counts; reading stops when all are
    found. Of one marketplace, or of all. Digests that nothing published holds are left out.
    """
    rows: dict[str, dict[str, Any]] = {}
    due = set(digests)
    for market in [marketplace] if marketplace else tables.partitions(SNAPSHOTS.name):
        read: set[str] = set()
        for head in reversed(tables.history(SNAPSHOTS.name, market)):
            if not due:
                return rows
            if head.digest in read or (as_of is not None and head.at > as_of):
                continue
            read.add(head.digest)
            frame = tables.read(SNAPSHOTS, market, as_of=head.at)
            servers = frame.filter(pl.col("contract_digest").is_in(list(due)))["server_id"]
            for row in frame.filter(pl.col("server_id").is_in(servers.to_list())).to_dicts():
                rows.setdefault(row["contract_digest"], row)
            due -= rows.keys()
    return rows


def rewrite_arguments(old: JsonObject, new: JsonObject, arguments: JsonObject) -> dict[str, Json]:
    """The same values under the names of the new contract, valid. Raises UnmovablePair."""
    if old is new:
        return dict(arguments)
    before, after = old["inputSchema"], new["inputSchema"]
    names = find_renamed_parameters(before, after)
    declared, now = collect_properties(before, before), collect_properties(after, after)
    for name in arguments:
        target = names.get(name, name)
        if name not in declared and target in now:
            raise UnmovablePair(f"{name} was free to be anything and is declared now")
        if name in declared and target not in now:
            raise UnmovablePair(f"parameter {name} is gone")
        # A number whose description changed may count seconds where it counted minutes.
        numeric = name in declared and _list_schema_kinds(now[target]) & {"integer", "number"}
        if numeric and _fold_description(declared[name]) != _fold_description(now[target]):
            raise UnmovablePair(f"parameter {name} may count something else now")
    moved = {names.get(name, name): value for name, value in arguments.items()}
    if flaws := validate_call(new, moved):
        where = flaws[0].path or "the call"
        raise UnmovablePair(f"{flaws[0].kind} at {where}: {flaws[0].message}"[:200])
    if len(moved) < len(arguments):
        raise UnmovablePair("two values would get one name")
    return moved


def find_renamed_parameters(old: JsonObject, new: JsonObject) -> dict[str, str]:
    """Old name -> new name of each parameter that plainly has another name now, one to one.

    Plain is: the same words (`userId`, `user_id`), or the very same description, unless it is a
    number (`seconds`, `ms`), an opposite, or one of several with like descriptions.
    """
    before, after = collect_properties(old, old), collect_properties(new, new)
    gone = {name: before[name] for name in before if name not in after}
    come = {name: after[name] for name in after if name not in before}
    pairs = [(a, b) for a in gone for b in come if _is_renamed(a, gone[a], b, come[b])]
    of, to = Counter(a for a, _ in pairs), Counter(b for _, b in pairs)
    return {a: b for a, b in pairs if of[a] == to[b] == 1}


def _is_renamed(old_name: str, old: Json, new_name: str, new: Json) -> bool:
    kinds = _list_schema_kinds(new)
    before, after = split_identifier(old_name), split_identifier(new_name)
    if not _list_schema_kinds(old) <= kinds:
        return False
    if "".join(before) == "".join(after):
        return True
    if kinds & {"integer", "number"} or {*before, *after} & _OPPOSITES:
        return False
    description = _fold_description(old)
    return len(description.split()) >= 2 and description == _fold_description(new)


def _list_schema_kinds(schema: Json) -> frozenset[str]:
    return list_kinds(resolve(schema, {}))


def _fold_description(schema: Json) -> str:
    description = schema.get("description") if isinstance(schema, Mapping) else None
    return " ".join(re.findall(r"\w+", str(description or "").casefold()))
