"""Migration: pairs whose words still fit are carried over to the contract that stands now.

A renamed tool, a renamed parameter, a new option or default, a wider type and a longer enumeration
leave a request true. Any other change has its pairs written anew. No model is asked: the call is
rewritten, validated and verified again, and its new `pair_id` sends it to the judge again.
"""

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assets.contracts.schema.reading import collect_properties, resolve
from assets.contracts.schema.shapes import list_kinds
from assets.contracts.schema.tool_renames import find_renames
from assets.contracts.validate import validate_call
from assets.synthesis.common.tables import (
    CLARIFY,
    MISSING,
    RECOVERY,
    dump_text,
    make_pair_id,
    read_contract,
    read_goldens,
)
from assets.synthesis.verify.verify_row import verify_row
from assets.vectors.lexicon import split_identifier, split_list

Json = Any
Row = Mapping[str, Any]
_FILTERS = {"copies_description", "near_duplicate"}  # found again by filters over many rows
_SHOWING = ("contracts", "offered", "checks")  # columns of JSON that name contracts by digest
# Parameters that one description may fit and that are two all the same.
_OPPOSITES = frozenset(split_list("""
min max minimum maximum start end begin from to before after since until source target src dst
origin destination first last old new exclude include not left right top bottom"""))  # fmt: skip


class Unmovable(ValueError):
    """Why a row cannot be carried over, in words for the list of retired rows."""


@dataclass(frozen=True)
class Migration:
    """moved: whole rows of PAIRS. retired: (pair_id, why) of rows to write anew."""

    moved: list[dict[str, Any]] = field(default_factory=list)
    retired: list[tuple[str, str]] = field(default_factory=list)


class Contracts:
    """The contracts of before (digest -> snapshot row) and of now (`server_id/tool` -> row).

    `old` should also hold the unchanged neighbours of the tools asked about: a tool that stood
    beside the one that is gone cannot be what it was renamed to.
    """

    def __init__(self, old: Mapping[str, Row], now: Mapping[str, Row]) -> None:
        current = {row["contract_digest"]: row for row in now.values()}
        self.rows = {**current, **old}
        self.bodies = {digest: read_contract(row) for digest, row in self.rows.items()}
        self._then, self._now = _group_by_server(old.values()), _group_by_server(now.values())
        self._renamed: dict[str, dict[str, Row]] = {}

    def find_successor(self, digest: str, server: str, tool: str) -> Row:
        """The row that stands now where a tool stood: by its name, else by a rename."""
        if digest not in self.rows:
            raise Unmovable(f"the contract {digest[:15]} was never published")
        here = self._now[server].get(tool) or self._find_renamed_tools(server).get(tool)
        if here is None:
            raise Unmovable(f"{tool}, which it shows or calls, is gone or held")
        return here

    def _find_renamed_tools(self, server: str) -> dict[str, Row]:
        if server not in self._renamed:
            had, has = self._then[server], self._now[server]
            gone = {name: read_contract(row) for name, row in had.items() if name not in has}
            come = {name: read_contract(row) for name, row in has.items() if name not in had}
            self._renamed[server] = {old: has[new] for new, old in find_renames(gone, come).items()}
        return self._renamed[server]


def _group_by_server(rows: Iterable[Row]) -> dict[str, dict[str, Row]]:
    found: dict[str, dict[str, Row]] = defaultdict(dict)
    for row in rows:
        found[row["server_id"]].setdefault(row["tool"], row)
    return found


def migrate(
    rows: Sequence[Row],
    old: Mapping[str, Row],
    now: Mapping[str, Row],
    *,
    barred: Collection[str] = (),
) -> Migration:
    """Carries `rows` of PAIRS over to the contracts of `now`; each is moved or retired with why.

    old: contract digest -> snapshot row of then (`old_contracts.py`). now: `server_id/tool` ->
    snapshot row, clear and usable ones only. barred: contracts that are held now: a row one of
    whose prompts showed one is retired.
    """
    contracts, held, made = Contracts(old, now), set(barred), Migration()
    for row in rows:
        try:
            made.moved.append(_migrate_row(row, contracts, held))
        except Unmovable as why:
            made.retired.append((row["pair_id"], str(why)))
    return made


def _migrate_row(row: Row, contracts: Contracts, barred: set[str]) -> dict[str, Any]:
    _check_worth(row, barred)
    went = _find_successors(row, contracts)
    here = went[row["contract_digest"]]
    calls = _rewrite_calls(row, contracts, went)
    _check_same_question(row, contracts, here)
    own = next((one for one in calls if one["tool"] == here["tool"]), None)
    shown = {name: _replace_digests(row.get(name), went) for name in _SHOWING}
    made: dict[str, Any] = {
        **row,
        **shown,
        **{name: here[name] for name in ("tool", "contract_digest", "recipe_digest")},
        "license": here.get("license") or row.get("license"),
        "arguments": dump_text(own["arguments"]) if own and row["arguments"] is not None else None,
        "calls": dump_text(calls),
        "messages": _rewrite_messages(row, calls),
        "steps": dump_text([*_read_list(row, "steps"), _make_receipt(row)]),
        "migrated_from": row.get("migrated_from") or row["pair_id"],
        "cosine": None,
        "twin_of": None,
    }
    return _verify_again(row, {**made, "pair_id": make_pair_id(made)}, contracts)


def _check_worth(row: Row, barred: set[str]) -> None:
    """A row that failed, or that the rules refused, has nothing to carry over."""
    if row["status"] != "ok":
        raise Unmovable("it had failed")
    if row["verdict"] == "reject":
        raise Unmovable("the rules had refused it")
    if row["task"] == RECOVERY:
        raise Unmovable("a call that was wrong on purpose is made wrong anew")
    if shown := barred & set(_read_list(row, "contracts")):
        raise Unmovable(f"a prompt of it showed a contract that is held: {min(shown)[:15]}")


def _find_successors(row: Row, contracts: Contracts) -> dict[str, Row]:
    """Digest of then -> snapshot row of now, of every contract that the row calls or showed. Twins
    of two servers share a digest: the row's own server knows where its own went."""
    owners = [(one.server_id, one.tool, one.contract_digest) for one in read_goldens(row)]
    owners.append((row["server_id"], row["tool"], row["contract_digest"]))
    went = {digest: contracts.find_successor(digest, server, tool)
            for server, tool, digest in owners}  # fmt: skip
    for digest in {*_read_list(row, "contracts"), *_read_list(row, "offered")} - went.keys():
        then = contracts.rows.get(digest) or {"server_id": "", "tool": ""}
        went[digest] = contracts.find_successor(digest, then["server_id"], then["tool"])
    return went


def _rewrite_calls(row: Row, contracts: Contracts, went: Mapping[str, Row]) -> list[dict[str, Any]]:
    calls = []
    for call in _read_list(row, "calls"):
        here = went[call["contract_digest"]]
        old = contracts.bodies[call["contract_digest"]]
        new = contracts.bodies[here["contract_digest"]]
        if '"tool"' in (row["messages"] or "") and _results_differ(old, new):
            raise Unmovable(f"the results of {call['tool']} changed")
        names = find_renamed_parameters(old["inputSchema"], new["inputSchema"])
        moved: Json = {"arguments": rewrite_arguments(old, new, call["arguments"])}
        moved |= {name: here[name] for name in ("tool", "contract_digest")}
        if "borrowed" in call:
            moved["borrowed"] = [names.get(name, name) for name in call["borrowed"]]
        calls.append({**call, **moved})
    return calls


def _results_differ(old: Mapping[str, Json], new: Mapping[str, Json]) -> bool:
    before = old.get("outputSchema")
    return before is not None and before != new.get("outputSchema")


def rewrite_arguments(
    old: Mapping[str, Json], new: Mapping[str, Json], arguments: Mapping[str, Json]
) -> dict[str, Json]:
    """The same values under the names of the new contract, valid. Raises Unmovable."""
    before, after = old["inputSchema"], new["inputSchema"]
    if old is new:
        return dict(arguments)
    names = find_renamed_parameters(before, after)
    declared, now = collect_properties(before, before), collect_properties(after, after)
    for name in arguments:
        target = names.get(name, name)
        if name not in declared and target in now:
            raise Unmovable(f"{name} was free to be anything and is declared now")
        if name in declared and target not in now:
            raise Unmovable(f"parameter {name} is gone")
        if name in declared and _means_another_amount(declared[name], now[target]):
            raise Unmovable(f"parameter {name} may count something else now")
    moved = {names.get(name, name): value for name, value in arguments.items()}
    if flaws := validate_call(new, moved):
        where = flaws[0].path or "the call"
        raise Unmovable(f"{flaws[0].kind} at {where}: {flaws[0].message}"[:200])
    if len(moved) < len(arguments):
        raise Unmovable("two values would stand at one place")
    return moved


def _means_another_amount(old: Json, new: Json) -> bool:
    """A number whose description changed may count seconds where it counted minutes."""
    numeric = list_kinds(resolve(new, {})) & {"integer", "number"}
    return bool(numeric) and _describe(old) != _describe(new)


def find_renamed_parameters(old: Mapping[str, Json], new: Mapping[str, Json]) -> dict[str, str]:
    """Old name -> new name of each parameter that plainly has another name now, one to one.

    Plain is: the same words (`userId`, `user_id`), or the very same description, unless it is a
    number (`seconds`, `ms`), an opposite, or one of several that are described alike.
    """
    before, after = collect_properties(old, old), collect_properties(new, new)
    gone = {name: before[name] for name in before if name not in after}
    come = {name: after[name] for name in after if name not in before}
    pairs = [(a, b) for a in gone for b in come if _is_renamed(a, gone[a], b, come[b])]
    return {
        a: b
        for a, b in pairs
        if sum(one == a for one, _ in pairs) == 1 and sum(other == b for _, other in pairs) == 1
    }


def _is_renamed(old_name: str, old: Json, new_name: str, new: Json) -> bool:
    kinds = list_kinds(resolve(old, {})), list_kinds(resolve(new, {}))
    if not kinds[0] <= kinds[1]:
        return False
    ours, theirs = split_identifier(old_name), split_identifier(new_name)
    if "".join(ours) == "".join(theirs):
        return True
    if kinds[1] & {"integer", "number"} or {*ours, *theirs} & _OPPOSITES:
        return False
    return len(_describe(old).split()) >= 2 and _describe(old) == _describe(new)


def _describe(schema: Json) -> str:
    said = schema.get("description") if isinstance(schema, Mapping) else None
    return " ".join(re.findall(r"\w+", str(said or "").casefold()))


def _rewrite_messages(row: Row, calls: Sequence[Mapping[str, Json]]) -> str | None:
    """The conversation with every right call as it is made now."""
    if not row["messages"]:
        return row["messages"]
    messages = json.loads(row["messages"])
    pairs = list(zip(read_goldens(row), calls, strict=True))
    for call in (one for message in messages for one in message.get("tool_calls") or ()):
        function = call["function"]
        written = function["arguments"]
        said = json.loads(written) if isinstance(written, str) else written
        right = [new for old, new in pairs if (old.tool, old.arguments) == (function["name"], said)]
        if len({dump_text([new["tool"], new["arguments"]]) for new in right}) != 1:
            raise Unmovable(f"which of its calls that of {function['name']} is, is not plain")
        if (right[0]["tool"], right[0]["arguments"]) == (function["name"], said):
            continue
        function["name"], now = right[0]["tool"], right[0]["arguments"]
        textual = isinstance(written, str)
        function["arguments"] = json.dumps(now, ensure_ascii=False) if textual else now
    return dump_text(messages)


def _check_same_question(row: Row, contracts: Contracts, here: Row) -> None:
    """A row that asks for a value stands only while the same values are required."""
    if row["task"] not in (MISSING, CLARIFY):
        return
    old = contracts.bodies[row["contract_digest"]]["inputSchema"]
    new = contracts.bodies[here["contract_digest"]]["inputSchema"]
    names = find_renamed_parameters(old, new)
    if {names.get(one, one) for one in old.get("required") or ()} != set(new.get("required") or ()):
        raise Unmovable("other values are required now than the one it asks for")


def _replace_digests(text: str | None, went: Mapping[str, Row]) -> str | None:
    for old, here in went.items() if text else ():
        text = text.replace(old, here["contract_digest"]) if text else text
    return text


def _make_receipt(row: Row) -> dict[str, Any]:
    said = {"step": "migrate", "role": "", "model": "rules", "seed": row["seed"], "usd": 0.0}
    return {**said, "prompt_tokens": 0, "completion_tokens": 0, "from": row["pair_id"]}


def _verify_again(row: Row, made: dict[str, Any], contracts: Contracts) -> dict[str, Any]:
    """The row with the rules' verdict of now, and what others had found and rules cannot see."""
    after = verify_row(made, contracts.bodies)
    rules = set(verify_row(row, contracts.bodies).kinds) | _FILTERS
    kept = [flaw for flaw in _read_list(row, "flaws") if flaw["kind"] not in rules]
    flaws = [*(vars(one) for one in after.findings), *kept]
    certain = sorted({flaw["kind"] for flaw in flaws if flaw["certain"]})
    if certain:
        raise Unmovable(f"the rules refuse it now: {', '.join(certain)}")
    return {**made, "verdict": "unsure" if flaws else "accept", "flaws": dump_text(flaws)}


def _read_list(row: Row, column: str) -> list[Any]:
    return json.loads(row.get(column) or "[]")
