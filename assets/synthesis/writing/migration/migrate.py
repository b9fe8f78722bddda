"""Migration: a row's words carried over to the contract that stands now, where they still fit.

Nothing is bought and no model is asked: words stay, calls are rewritten, and the rules look at the
row again (`verify_row.py`); its `pair_id` is new, so the judge does too. Receipts stay as they
were, with a step `migrate` of no cost that names the row before; `migrated_from` names the first
one, whose words these are. The filters over many rows (`cosine`, `twin_of`) are due again.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assets.synthesis.common.tables import (
    CLARIFY,
    LOOKALIKE,
    MISSING,
    NO_TOOL,
    Golden,
    goldens,
    pair_id,
    text_of,
)
from assets.synthesis.verify.verify_row import verify_row
from assets.synthesis.writing.migration.calls import (
    Side,
    Unmovable,
    moves,
    renamed_names,
    rewritten,
)
from assets.synthesis.writing.migration.contract_map import Book
from assets.synthesis.writing.migration.messages import carried_messages, results_change

Row = Mapping[str, Any]
_FILTERS = {"copies_description", "near_duplicate"}  # found again by filters over many rows


@dataclass(frozen=True)
class Migration:
    """moved: whole rows of PAIRS. retired: (pair_id, why) of rows that nothing can be made of."""

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

    old: contract digest -> snapshot row of then (`migrate_book.old_contracts`). now: `server_id/
    tool` -> snapshot row, clear and usable ones only. barred: contracts that are held now: a row
    one of whose prompts showed one is retired. A row that needs no change comes back as it was.
    """
    book, held, made = Book(old, now), set(barred), Migration()
    for row in rows:
        try:
            made.moved.append(_moved(row, book, held))
        except Unmovable as why:
            made.retired.append((row["pair_id"], str(why)))
    return made


def _moved(row: Row, book: Book, barred: set[str]) -> dict[str, Any]:
    _worth(row, barred)
    then, here = _own(row, book)
    calls = [_call(golden, book) for golden in goldens(row)]
    offered = _offered(row, book)
    _same_question(row, book, then, here)
    _same_results(row, book)
    own = next(
        (c for c in calls if (c.server_id, c.tool) == (row["server_id"], here["tool"])), None
    )
    made: dict[str, Any] = {
        **row,
        **{name: here[name] for name in ("tool", "contract_digest", "recipe_digest")},
        "license": here.get("license") or row.get("license"),
        "arguments": text_of(own.arguments) if own and row["arguments"] is not None else None,
        "calls": text_of(_told(row, calls)),
        "messages": carried_messages(row, book, calls),
        "contracts": text_of(_followed(row, "contracts", book)),
        "offered": text_of(offered),
        "checks": _checks(row, book),
    }
    made["pair_id"] = pair_id(made)
    if made["pair_id"] == row["pair_id"]:  # only what stood beside it changed
        return {**made, "recipe_digest": row["recipe_digest"]}
    return _verified(row, {**made, **_receipt(row), "cosine": None, "twin_of": None}, book)


def _worth(row: Row, barred: set[str]) -> None:
    """A row that failed, or that the rules refused, has nothing to carry over."""
    if row["status"] != "ok":
        raise Unmovable("it had failed")
    if row["verdict"] == "reject":
        raise Unmovable("the rules had refused it")
    if shown := barred & set(_list(row, "contracts")):
        raise Unmovable(f"a prompt of it showed a contract that is held: {min(shown)[:15]}")


def _own(row: Row, book: Book) -> tuple[Row, Row]:
    """The contract the row was written for, and the one that stands there now."""
    then = book.before(row["contract_digest"])
    here = book.follow(row["server_id"], row["tool"])
    if then is None:
        raise Unmovable("the contract it was written for is not at hand")
    if here is None:
        raise Unmovable("the tool is gone or held")
    if here.get("schema_problem"):
        raise Unmovable("the tool's schema is no JSON Schema now")
    return then, here


def _call(golden: Golden, book: Book) -> Golden:
    then = book.before(golden.contract_digest)
    here = book.follow(golden.server_id, golden.tool)
    if then is None or here is None:
        raise Unmovable(f"{golden.tool}, which it calls, is gone or held")
    if then["contract_digest"] == here["contract_digest"]:
        return golden
    old, new = book.contract(then), book.contract(here)
    names = renamed_names(Side.of(old["inputSchema"]), Side.of(new["inputSchema"]))
    return Golden(
        golden.server_id,
        here["tool"],
        here["contract_digest"],
        rewritten(old, new, golden.arguments),
        tuple(names.get(name, name) for name in golden.borrowed),
    )


def _offered(row: Row, book: Book) -> list[str]:
    """The contracts to choose among; one that is gone leaves, unless the row was about it."""
    before = _list(row, "offered")
    after = _followed(row, "offered", book)
    if row["task"] == LOOKALIKE and len(after) < min(2, len(before)):
        raise Unmovable("the tool it could be mistaken for is gone")
    if row["task"] == NO_TOOL and not after and before:
        raise Unmovable("none of the tools it was offered is left")
    return after


def _followed(row: Row, column: str, book: Book) -> list[str]:
    found = (_own_or_followed(digest, row, book) for digest in _list(row, column))
    return list(dict.fromkeys(digest for digest in found if digest is not None))


def _own_or_followed(digest: str, row: Row, book: Book) -> str | None:
    """Twins of two servers share a digest: the row's own server knows where its own went."""
    for server, tool, name in _owners(row):
        if name == digest and (here := book.follow(server, tool)):
            return here["contract_digest"]
    found = book.follow_digest(digest)
    return found["contract_digest"] if found else None


def _owners(row: Row) -> list[tuple[str, str, str]]:
    calls = [(one.server_id, one.tool, one.contract_digest) for one in goldens(row)]
    return [(row["server_id"], row["tool"], row["contract_digest"]), *calls]


def _same_question(row: Row, book: Book, then: Row, here: Row) -> None:
    """A row that asks for a value stands only while the same values are required."""
    if row["task"] not in (MISSING, CLARIFY) or then["contract_digest"] == here["contract_digest"]:
        return
    old, new = book.contract(then)["inputSchema"], book.contract(here)["inputSchema"]
    went = moves(Side.of(old), Side.of(new))
    asked = {went.get((name,), (name,)) for name in old.get("required") or ()}
    if asked != {(name,) for name in new.get("required") or ()}:
        raise Unmovable("other values are required now than the one it asks for")


def _same_results(row: Row, book: Book) -> None:
    """What a tool answered in the row is only so while its results are described alike."""
    if '"tool"' not in (row["messages"] or ""):
        return
    for golden in goldens(row):
        then = book.before(golden.contract_digest)
        here = book.follow(golden.server_id, golden.tool)
        if then and here and results_change(book.contract(then), book.contract(here)):
            raise Unmovable(f"the results of {golden.tool} changed")


def _checks(row: Row, book: Book) -> str | None:
    if not row.get("checks"):
        return row.get("checks")
    checks = json.loads(row["checks"])
    picks = checks.get("picks") or {}
    checks["candidates"] = [
        found
        for digest in checks.get("candidates") or ()
        if (found := _own_or_followed(digest, row, book))
    ]
    checks["picks"] = {
        role: _own_or_followed(digest, row, book) if digest else digest
        for role, digest in picks.items()
    }
    return text_of(checks)


def _receipt(row: Row) -> dict[str, Any]:
    step = {
        "step": "migrate",
        "role": "",
        "model": "rules",
        "seed": row["seed"],
        "prompt_tokens": 0,
        "completion_tokens": 0,
        "usd": 0.0,
        "from": row["pair_id"],
    }
    steps = text_of([*_list(row, "steps"), step])
    return {"steps": steps, "migrated_from": row.get("migrated_from") or row["pair_id"]}


def _verified(row: Row, made: dict[str, Any], book: Book) -> dict[str, Any]:
    """The row with the rules' verdict of now, and what others had found and rules cannot see."""
    names = {*_list(row, "offered"), *(one.contract_digest for one in goldens(row))}
    before = _bodies({row["contract_digest"], *names}, book)
    names = {*_list(made, "offered"), *(one.contract_digest for one in goldens(made))}
    after = verify_row(made, _bodies({made["contract_digest"], *names}, book))
    rules = set(verify_row(row, before).kinds) | _FILTERS
    kept = [flaw for flaw in _list(row, "flaws") if flaw["kind"] not in rules]
    flaws = [*(vars(one) for one in after.findings), *kept]
    certain = [flaw["kind"] for flaw in flaws if flaw["certain"]]
    if certain:
        raise Unmovable(f"the rules refuse it now: {', '.join(sorted(set(certain)))}")
    return {**made, "verdict": "unsure" if flaws else "accept", "flaws": text_of(flaws)}


def _bodies(digests: set[str], book: Book) -> dict[str, dict[str, Any]]:
    rows = {digest: book.before(digest) for digest in digests}
    return {digest: book.contract(row) for digest, row in rows.items() if row is not None}


def _told(row: Row, calls: Sequence[Golden]) -> list[dict[str, Any]]:
    """The calls as the column holds them, with the members that each had before."""
    before = _list(row, "calls")
    return [
        {name: value for name, value in vars(call).items() if name in was}
        | ({"borrowed": list(call.borrowed)} if "borrowed" in was else {})
        for was, call in zip(before, calls, strict=True)
    ]


def _list(row: Row, column: str) -> list[Any]:
    return json.loads(row.get(column) or "[]")
