"""A new canonical form renames every contract and buys nothing again."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from assets.contracts.canonical import CANON_VERSION, contract, contract_digest
from assets.contracts.history.aliases import Aliases, Form, read_aliases, upgrade
from assets.contracts.history.snapshot import SNAPSHOTS, snapshot
from assets.synthesis.common.tables import JUDGEMENTS, PAIRS, contract_of, tool_key, unit_key
from assets.synthesis.judging.judge import judge, wanted_judgements
from assets.synthesis.writing.compose import compose
from assets.synthesis.writing.units import wanted as wanted_pairs
from assets.vectors.index import VECTORS, embed_contracts
from tests.synthesis.contracts import ADD_RELATIONS, CITY_TIME, READ_FILE
from tests.synthesis.scripted import SINGLES as POLICY
from tests.synthesis.scripted import offline_llm, planned
from warehouse.llm.client import LLM
from warehouse.storage.lance import LanceStore
from warehouse.storage.tables import TableSpec, plan
from warehouse.store import Warehouse

TOOLS = [CITY_TIME, READ_FILE, ADD_RELATIONS]
MARKET = "registry"


def shouted(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A made-up form: every text and every schema comes out otherwise."""
    made = contract(tool)
    schema = {**made["inputSchema"], "x-form": "next"}
    return {**made, "description": made.get("description", "").upper(), "inputSchema": schema}


NEXT = Form(CANON_VERSION + 1, shouted)


class CountingEmbedder:
    """Vectors out of nothing, and a count of the texts that were asked for."""

    id, dim = "counting", 8

    def __init__(self) -> None:
        self.asked = 0

    def embed(self, texts: Sequence[str], **_: Any) -> np.ndarray:
        self.asked += len(texts)
        rows = np.array([[len(text) % 7 + 1.0, *range(1, 8)] for text in texts], np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.fixture
def night(warehouse: Warehouse) -> Iterator["Night"]:
    made = Night(warehouse)
    made.snapshots([deployment(warehouse, TOOLS)])
    yield made
    warehouse.ledger.close()


def deployment(warehouse: Warehouse, tools: list[Any], server: str = "npm:demo") -> dict[str, Any]:
    blob = warehouse.blobs.put(json.dumps(tools).encode())
    return {"server_id": server, "marketplace": MARKET, "status": "ok", "tools_blob": blob,
            "recipe_digest": "r" * 64, "probed_at": 0.0}  # fmt: skip


class Night:
    """The stages that pay, over one warehouse, as the doors run them."""

    def __init__(self, warehouse: Warehouse) -> None:
        self.warehouse, self.tables = warehouse, warehouse.tables
        self.embedder = CountingEmbedder()

    def publish(self, spec: TableSpec, rows: list[dict[str, Any]]) -> None:
        self.tables.promote(self.tables.stage(spec, spec.frame(rows), MARKET), "-", [])

    def read(self, spec: TableSpec) -> list[dict[str, Any]]:
        return self.tables.read(spec, MARKET).to_dicts()

    def snapshots(self, deployments: list[dict[str, Any]]) -> None:
        rows = snapshot(self.read(SNAPSHOTS), deployments, self.warehouse.blobs, 86400.0)
        self.publish(SNAPSHOTS, rows)

    def pay(self, llm: LLM, *, keep: bool = True) -> dict[str, int]:
        """What each stage had to do: pairs and judgements due, texts embedded, effects asked."""
        aliases, before = read_aliases(self.tables, MARKET), self.embedder.asked
        rows, pairs = self.read(SNAPSHOTS), self.read(PAIRS)
        bought = {tool_key(row): row for row in aliases.as_bought(rows, pairs)}
        asks = planned(list(bought.values()))
        due = plan({unit_key(row): row["plan_digest"] for row in pairs},
                   wanted_pairs(asks, llm, POLICY))  # fmt: skip
        kept = [row for row in pairs if unit_key(row) in set(due.unchanged)]
        written = compose([unit for unit in asks if unit.key in set(due.due)], llm, POLICY)
        made = PAIRS.frame([*kept, *written]).to_dicts()
        judged = self.read(JUDGEMENTS)
        asked = plan({row["pair_id"]: row["plan_digest"] for row in judged},
                     wanted_judgements(made, llm, POLICY))  # fmt: skip
        contracts = {row["contract_digest"]: contract_of(row) for row in bought.values()}
        verdicts = judge(
            [row for row in made if row["pair_id"] in asked.due], contracts, llm, POLICY
        )
        held = self.read(VECTORS)
        store = LanceStore(self.warehouse.home / "lance")
        vectors = embed_contracts(aliases.as_bought(rows, held), self.embedder, store)
        if keep:
            self.publish(PAIRS, made)
            self.publish(JUDGEMENTS, [*judged, *verdicts])
            self.publish(VECTORS, vectors)
        texts = self.embedder.asked - before
        return {"pairs": len(due.due), "judgements": len(asked.due), "texts": texts,
                "asked": llm.counts["asked"]}  # fmt: skip

    def llm(self) -> LLM:
        return offline_llm(self.warehouse.ledger)


NOTHING = {"pairs": 0, "judgements": 0, "texts": 0, "asked": 0}


def test_a_new_form_renames_every_contract_and_buys_nothing(night: Night) -> None:
    first = night.pay(night.llm())
    assert first["pairs"] == len(TOOLS)
    assert first["asked"] > 0
    assert first["texts"] == len(TOOLS) + 1
    effects, before = night.warehouse.ledger.counts(), night.read(SNAPSHOTS)

    renamed = upgrade(night.tables, MARKET, form=NEXT)
    after = night.read(SNAPSHOTS)

    assert len(renamed) == len(TOOLS)
    assert not {row["contract_digest"] for row in after} & {r["contract_digest"] for r in before}
    assert [row["first_seen"] for row in after] == [row["first_seen"] for row in before]
    assert night.pay(night.llm()) == NOTHING
    assert night.warehouse.ledger.counts() == effects


def test_without_the_aliases_everything_would_be_bought_again(night: Night) -> None:
    night.pay(night.llm())
    upgrade(night.tables, MARKET, form=NEXT)
    due = wanted_pairs(planned(night.read(SNAPSHOTS)), night.llm(), POLICY)
    stored = {unit_key(row): row["plan_digest"] for row in night.read(PAIRS)}
    assert len(plan(stored, due).due) == len(TOOLS)


def test_what_a_killed_run_bought_is_found_in_the_ledger_too(night: Night) -> None:
    night.pay(night.llm(), keep=False)  # the effects are in the ledger, no table was published
    effects = night.warehouse.ledger.counts()
    upgrade(night.tables, MARKET, form=NEXT)
    again = night.pay(night.llm())
    assert (again["asked"], again["texts"]) == (0, 0)
    assert night.warehouse.ledger.counts() == effects


def test_a_tool_that_really_changed_is_bought_again_and_only_that(night: Night) -> None:
    night.pay(night.llm())
    upgrade(night.tables, MARKET, form=NEXT)
    changed = shouted({**CITY_TIME, "description": "Tell the time in a city"})
    rows = [row for row in night.read(SNAPSHOTS) if row["tool"] != CITY_TIME["name"]]
    digest = contract_digest(changed)
    row = {**night.read(SNAPSHOTS)[0], "tool": CITY_TIME["name"], "contract_digest": digest,
           "contract": json.dumps(changed)}  # fmt: skip
    night.publish(SNAPSHOTS, [*rows, row])
    assert night.pay(night.llm())["pairs"] == 1


def test_every_name_of_a_contract_finds_the_same(night: Night) -> None:
    old = contract_digest(CITY_TIME)
    upgrade(night.tables, MARKET, form=NEXT)
    aliases = read_aliases(night.tables)
    new = aliases.current(old)
    assert new != old
    assert aliases.names(old) == aliases.names(new) == (new, old)
    assert aliases.find({old: "bought"}, new) == aliases.find({new: "bought"}, old) == "bought"
    assert aliases.find({}, new) is None
    assert aliases.current("c1:unknown") == "c1:unknown"


def test_a_third_form_maps_first_names_straight_to_third_names(night: Night) -> None:
    first = contract_digest(CITY_TIME)
    upgrade(night.tables, MARKET, form=NEXT)
    second = read_aliases(night.tables).current(first)
    third = Form(NEXT.version + 1, lambda tool: {**shouted(tool), "title": "T"})
    upgrade(night.tables, MARKET, form=third)
    aliases = read_aliases(night.tables)
    assert aliases.current(first) == aliases.current(second) not in (first, second)
    assert len(aliases.names(first)) == 3


def test_contracts_of_earlier_nights_are_renamed_too(night: Night) -> None:
    night.snapshots([deployment(night.warehouse, [READ_FILE])])
    renamed = {row["old_digest"] for row in upgrade(night.tables, MARKET, form=NEXT)}
    assert contract_digest(CITY_TIME) in renamed


def test_two_contracts_that_become_one_keep_what_each_bought(night: Night) -> None:
    blank = Form(NEXT.version, lambda tool: {**contract(tool), "description": "same"})
    twin = {**CITY_TIME, "description": "Something else entirely"}
    both = [deployment(night.warehouse, [CITY_TIME]), deployment(night.warehouse, [twin], "npm:b")]
    night.snapshots(both)
    night.pay(night.llm())
    upgrade(night.tables, MARKET, form=blank)
    assert len({row["contract_digest"] for row in night.read(SNAPSHOTS)}) == 1
    assert night.pay(night.llm()) == NOTHING


def test_an_upgrade_that_was_killed_before_its_end_is_done_by_the_next(
    night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    night.pay(night.llm())
    whole, calls = night.tables.promote, []

    def dies_at_the_second(*args: Any) -> Any:
        calls.append(args)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return whole(*args)

    monkeypatch.setattr(type(night.tables), "promote", lambda _, *a: dies_at_the_second(*a))
    with pytest.raises(KeyboardInterrupt):
        upgrade(night.tables, MARKET, form=NEXT)
    monkeypatch.undo()
    upgrade(night.tables, MARKET, form=NEXT)
    assert len(read_aliases(night.tables)) == len(TOOLS)
    assert night.pay(night.llm()) == NOTHING


def test_a_second_upgrade_to_the_same_form_does_nothing(night: Night) -> None:
    upgrade(night.tables, MARKET, form=NEXT)
    heads = len(night.tables.history(SNAPSHOTS.name, MARKET))
    assert upgrade(night.tables, MARKET, form=NEXT) == []
    assert len(night.tables.history(SNAPSHOTS.name, MARKET)) == heads


def test_stored_contracts_that_are_in_the_form_already_keep_their_names(night: Night) -> None:
    before = night.tables.head(SNAPSHOTS.name, MARKET)
    assert upgrade(night.tables, MARKET) == []
    assert night.tables.head(SNAPSHOTS.name, MARKET) == before


def test_a_contract_of_the_first_form_is_found_under_its_name_of_today(night: Night) -> None:
    body = {"name": "t", "description": "Two  blanks", "inputSchema": {"type": ["object"]}}
    row = {**night.read(SNAPSHOTS)[0], "tool": "t", "contract_digest": "c1:first",
           "contract": json.dumps(body)}  # fmt: skip
    night.publish(SNAPSHOTS, [row])
    upgrade(night.tables, MARKET)
    assert read_aliases(night.tables).current("c1:first") == contract_digest(body)
    assert json.loads(night.read(SNAPSHOTS)[0]["contract"])["description"] == "Two blanks"


def test_no_aliases_change_nothing(night: Night) -> None:
    rows = night.read(SNAPSHOTS)
    assert Aliases().as_bought(rows, rows) == rows
