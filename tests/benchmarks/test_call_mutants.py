"""Mutants are valid by their contracts, seeded, and know nothing but calls and contracts."""

from random import Random
from typing import Any

from assets.contracts.repair.problems import find_problems
from assets.outcomes.worlds.task import TaskCall
from benchmarks.call_mutants import (
    OPERATORS,
    Mutant,
    choose_mutants,
    collect_donors,
    is_target,
    make_mutants,
    scale_number,
)

TEXT = {"type": "string"}


def make_contract(name: str, description: str = "", **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": [*properties]}
    closed = {**schema, "additionalProperties": False}
    return {"name": name, "description": description, "inputSchema": closed}


SEND = make_contract(
    "send", "Send a parcel", to_name=TEXT, weight={"type": "integer", "minimum": 1},
    note=TEXT, speed={"enum": ["slow", "fast"]}, insured={"type": "boolean"},
)  # fmt: skip
QUERY = make_contract("query", "Ask the database", sql=TEXT)
RUN = make_contract("run_query", "Ask the database for more", sql=TEXT)
OTHER = make_contract("other", "Nothing of the kind", z=TEXT)
CONTRACTS = {one["name"]: one for one in (SEND, QUERY, RUN, OTHER)}


def send(name: str = "Ada", note: str = "two kilos of 12 apples") -> TaskCall:
    given = {"to_name": name, "weight": 200, "note": note, "speed": "slow", "insured": True}
    return TaskCall("send", given)


def mutate(call: TaskCall, *donors: TaskCall, seed: int = 1) -> list[Mutant]:
    return make_mutants(call, CONTRACTS, collect_donors([call, *donors]), Random(seed))


def list_changed(mutants: list[Mutant], call: TaskCall, operator: str) -> set[str]:
    own = [mutant.call.arguments for mutant in mutants if mutant.operator == operator]
    return {name for made in own for name in made if made[name] != call.arguments.get(name)}


def test_each_mutant_is_valid_and_changes_one_argument() -> None:
    for seed in range(30):
        for one in mutate(send(), send("Bo", "one pear"), seed=seed):
            assert not find_problems(CONTRACTS[one.call.tool], one.call.arguments)
            changed = [k for k, v in one.call.arguments.items() if v != send().arguments[k]]
            assert len(changed) == 1


def test_operators_change_what_they_are_named_after() -> None:
    donors = [send("Bo", "one pear")]
    found = [one for seed in range(30) for one in mutate(send(), *donors, seed=seed)]
    assert list_changed(found, send(), "wrong_target") == {"to_name"}
    assert list_changed(found, send(), "wrong_unit") == {"weight", "note"}
    values = list_changed(found, send(), "wrong_value")
    assert values == {"weight", "note", "speed", "insured"}
    targets = {one.call.arguments["to_name"] for one in found if one.operator == "wrong_target"}
    assert targets == {"Bo"}


def test_the_same_seed_makes_the_same_mutants() -> None:
    assert mutate(send(), send("Bo")) == mutate(send(), send("Bo"))
    assert mutate(send(), send("Bo")) != mutate(send(), send("Bo"), seed=2)


def test_a_statement_gets_another_where_another_number_and_stays_a_statement() -> None:
    call = TaskCall("query", {"sql": "UPDATE orders SET n = 5, s = 'new' WHERE id = 7"})
    donor = TaskCall("query", {"sql": "UPDATE orders SET n = 9 WHERE id = 8"})
    found = [one for seed in range(20) for one in mutate(call, donor, seed=seed)]
    targets = {one.call.arguments["sql"] for one in found if one.operator == "wrong_target"}
    assert targets == {"UPDATE orders SET n = 5, s = 'new' WHERE id = 8"}
    others = [one.call.arguments["sql"] for one in found if one.operator in OPERATORS[:2]]
    assert all(other.startswith("UPDATE orders SET n = ") for other in others)
    assert all(other.endswith("WHERE id = 7") for other in others)


def test_a_look_alike_takes_the_same_arguments_the_most_alike_first() -> None:
    call = TaskCall("query", {"sql": "SELECT 1"})
    found = [one.call for one in mutate(call) if one.operator == "lookalike_tool"]
    assert found == [TaskCall("run_query", {"sql": "SELECT 1"})]


def test_a_number_in_another_unit_is_another_number() -> None:
    rng = Random(3)
    assert all(scale_number(7, rng) != 7 for _ in range(200))
    assert {type(scale_number(3600, rng)) for _ in range(50)} == {int}
    assert all(scale_number(2.5, rng) != 2.5 for _ in range(200))


def test_what_names_something_is_a_target() -> None:
    assert is_target(("edits", 0, "file_path"))
    assert is_target(("entityName",))
    assert not is_target(("content",))
    assert not is_target(())


def test_a_choice_is_even_over_operators() -> None:
    many = [Mutant(name, send(str(n))) for name in OPERATORS for n in range(20)]
    few = [one for one in many if one.operator != "wrong_unit"] + [Mutant("wrong_unit", send("x"))]
    found = choose_mutants(few, 10, Random(1))
    assert {name: sum(one.operator == name for one in found) for name in OPERATORS} == {
        "wrong_value": 3, "wrong_unit": 1, "wrong_target": 3, "lookalike_tool": 3,
    }  # fmt: skip
    assert len(choose_mutants(many, 1000, Random(1))) == 80
