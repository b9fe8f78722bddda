"""Migration: pairs whose words still fit are carried over to the contract that stands now.

A renamed tool, a renamed parameter, a new option or default, a wider type and a longer enumeration
leave a request true. Any other change has its pairs written anew. No model is asked: the call is
rewritten, validated and verified again, and its new `pair_id` sends it to the judge again.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assets.synthesis.tables import (
    CLARIFY,
    MISSING,
    RECOVERY,
    dump_text,
    make_pair_id,
    read_goldens,
)
from assets.synthesis.verify.rules import verify_row
from assets.synthesis.writing.migration.moved_arguments import (
    Unmovable,
    find_renamed_parameters,
    rewrite_arguments,
)
from assets.synthesis.writing.migration.old_contracts import Contracts
from warehouse.item_failure import INTERNAL, describe_failure
from warehouse.json_types import Json, JsonObject, Row

_FILTERS = {"copies_description", "near_duplicate"}  # found again by filters over many rows
_SHOWING = ("contracts", "offered", "checks")  # columns of JSON that name contracts by digest


@dataclass(frozen=True)
class Migration:
    """moved: whole rows of PAIRS. retired: (pair_id, why) of rows to write anew."""

    moved: list[dict[str, Any]] = field(default_factory=list)
    retired: list[tuple[str, str]] = field(default_factory=list)


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
        except Exception as error:  # nobody foresaw it: its words are written anew
            made.retired.append((row["pair_id"], f"{INTERNAL}: {describe_failure(error)}"))
    return made


def _migrate_row(row: Row, contracts: Contracts, barred: set[str]) -> dict[str, Any]:
    _check_worth(row, barred)
    went = _find_successors(row, contracts)
    here = went[row["contract_digest"]]
    calls = _rewrite_calls(row, contracts, went)
    _check_same_question(row, contracts, here)
    own = next((call for call in calls if call["tool"] == here["tool"]), None)
    shown = {name: _replace_digests(row.get(name), went) for name in _SHOWING}
    receipt = {"step": "migrate", "role": "", "model": "rules", "seed": row["seed"], "usd": 0.0,
               "prompt_tokens": 0, "completion_tokens": 0, "from": row["pair_id"]}  # fmt: skip
    made: dict[str, Any] = {
        **row,
        **shown,
        **{name: here[name] for name in ("tool", "contract_digest", "recipe_digest")},
        "license": here.get("license") or row.get("license"),
        "arguments": dump_text(own["arguments"]) if own and row["arguments"] is not None else None,
        "calls": dump_text(calls),
        "messages": _rewrite_messages(row, calls),
        "steps": dump_text([*_read_list(row, "steps"), receipt]),
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
    owners = [
        (golden.server_id, golden.tool, golden.contract_digest) for golden in read_goldens(row)
    ]
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
        if '"tool"' in (row["messages"] or "") and _is_result_changed(old, new):
            raise Unmovable(f"the results of {call['tool']} changed")
        names = find_renamed_parameters(old["inputSchema"], new["inputSchema"])
        moved: Json = {"arguments": rewrite_arguments(old, new, call["arguments"])}
        moved |= {name: here[name] for name in ("tool", "contract_digest")}
        if "borrowed" in call:
            moved["borrowed"] = [names.get(name, name) for name in call["borrowed"]]
        calls.append({**call, **moved})
    return calls


def _is_result_changed(old: JsonObject, new: JsonObject) -> bool:
    before = old.get("outputSchema")
    return before is not None and before != new.get("outputSchema")


def _rewrite_messages(row: Row, calls: Sequence[JsonObject]) -> str | None:
    """The conversation with every call as it is made now; its calls are those of the row."""
    if not row["messages"]:
        return row["messages"]
    messages = json.loads(row["messages"])
    made = [one["function"] for message in messages for one in message.get("tool_calls") or ()]
    if len(made) != len(calls):
        raise Unmovable("its conversation holds other calls than the row")
    for function, now in zip(made, calls, strict=True):
        arguments = json.dumps(now["arguments"], ensure_ascii=False)
        function |= {"name": now["tool"], "arguments": arguments}
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
    for old, here in went.items():
        text = text and text.replace(old, here["contract_digest"])
    return text


def _verify_again(row: Row, made: dict[str, Any], contracts: Contracts) -> dict[str, Any]:
    """The row with the rules' verdict of now, and what others had found and rules cannot see."""
    after = verify_row(made, contracts.bodies)
    rules = set(verify_row(row, contracts.bodies).kinds) | _FILTERS
    kept = [flaw for flaw in _read_list(row, "flaws") if flaw["kind"] not in rules]
    flaws = [*(vars(finding) for finding in after.findings), *kept]
    certain = sorted({flaw["kind"] for flaw in flaws if flaw["certain"]})
    if certain:
        raise Unmovable(f"the rules refuse it now: {', '.join(certain)}")
    return {**made, "verdict": "unsure" if flaws else "accept", "flaws": dump_text(flaws)}


def _read_list(row: Row, column: str) -> list[Any]:
    return json.loads(row.get(column) or "[]")
