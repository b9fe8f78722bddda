"""Calls to hold two checkers against: golden ones made of BFCL's truth, and many that go wrong."""

import copy
import json
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

from extensions.bench.bfcl_command import BfclItem

Call = dict[str, Any]
PEER = Path(__file__).with_name("bfcl_peer.py")
ODD = (
    *(None, True, False, 0, 1, -1, 1.0, 1.5, 10**400, float("nan")),
    *("", "x", "1", "true", "5L", "new int[]{1}", "[1, 2]", "{'a': 1}"),
    *([], [1], ["a"], [[]], {}, {"a": 1}, [{"a": 1}], [None]),
)


def golden(item: BfclItem, random: Random) -> list[Call]:
    """One allowed value for each parameter of each expected call."""
    calls = []
    for expected in item.truth:
        name, allowed = next(iter(expected.items()))
        arguments = {}
        for parameter, values in allowed.items():
            if "" in values and (len(values) == 1 or random.random() < 0.5):
                continue
            value = random.choice([value for value in values if value != ""] or [""])
            arguments[parameter] = plain(value)
        calls.append({"name": name, "arguments": arguments})
    return calls


def plain(allowed: Any) -> Any:
    """A value out of an allowed one: the truth of an object lists the values of each key."""
    if isinstance(allowed, dict):
        stored = {k: v for k, v in allowed.items() if not (isinstance(v, list) and "" in v)}
        return {k: plain(v[0]) if isinstance(v, list) and v else v for k, v in stored.items()}
    if isinstance(allowed, list):
        return [plain(item) if isinstance(item, dict) else item for item in allowed]
    return allowed


def mutants(calls: Sequence[Call], item: BfclItem, random: Random, size: int) -> Iterator[list]:
    """`size` lists of calls, each one or two steps away from the golden ones."""
    for _ in range(size):
        changed = copy.deepcopy(list(calls))
        for _ in range(random.choice((1, 1, 1, 2))):
            changed = random.choice(_STEPS)(changed, item, random)
        yield changed


def _on_call(change: Any) -> Any:
    def step(calls: list[Call], item: BfclItem, random: Random) -> list[Call]:
        objects = [call for call in calls if isinstance(call.get("arguments"), dict)]
        if objects:
            change(random.choice(objects), item, random)
        return calls

    return step


def _on_value(change: Any) -> Any:
    def on_call(call: Call, item: BfclItem, random: Random) -> None:
        inputs = call["arguments"]
        if inputs:
            name = random.choice(list(inputs))
            inputs[name] = change(inputs[name], random)

    return _on_call(on_call)


def _drop(call: Call, _: Any, random: Random) -> None:
    if call["arguments"]:
        call["arguments"].pop(random.choice(list(call["arguments"])))


def _add(call: Call, item: BfclItem, random: Random) -> None:
    """A parameter of the doc, or one nobody knows."""
    by_name = [
        name
        for doc in item.functions
        for name in (doc.get("parameters", {}).get("properties") or {"x": 0})
    ]
    name = random.choice([*by_name, "no_such_parameter"])
    call["arguments"].setdefault(name, random.choice(ODD))


def _rename(call: Call, item: BfclItem, random: Random) -> None:
    names = [str(doc.get("name")) for doc in item.functions]
    other = (call["name"].replace(".", "_"), call["name"].upper(), "nothing", *names)
    call["name"] = random.choice(other)


def _swap_values(call: Call, _: Any, random: Random) -> None:
    names = list(call["arguments"])
    random.shuffle(names)
    values = list(call["arguments"].values())
    call["arguments"] = dict(zip(names, values, strict=True))


def _reorder(call: Call, _: Any, random: Random) -> None:
    names = list(call["arguments"])
    random.shuffle(names)
    call["arguments"] = {name: call["arguments"][name] for name in names}


def _bad_arguments(call: Call, _: Any, random: Random) -> None:
    call["arguments"] = random.choice(([], "x", 3, [call["arguments"]]))


def _odd(value: Any, random: Random) -> Any:
    return copy.deepcopy(random.choice(ODD))


def _other_type(value: Any, random: Random) -> Any:
    choices: list[Any] = [str(value), [value], {"value": value}, json.dumps(value, default=str)]
    if isinstance(value, bool):
        choices += [int(value), not value]
    elif isinstance(value, int | float):
        choices += [-value, value + 1, value * 10]
        if abs(value) < 1e15:
            choices += [float(value), int(value) if value == value else 0, value / 10]
    return random.choice(choices)


def _text(value: Any, random: Random) -> Any:
    """Another case, other spaces, other signs: what BFCL lets pass, and what it does not."""
    if not isinstance(value, str):
        return _other_type(value, random)
    at = random.randrange(len(value) + 1)
    sign = random.choice(" ,./-_*^'\"!?:;()[]{}\n\x1cé")
    same = (f" {value} ", value.replace(" ", "_"), value.replace("'", '"'), value.replace('"', "'"))
    cased = (value.upper(), value.lower(), value.swapcase())
    other = (value[:-1], value[1:], value[::-1], value + value, value[:at] + value[at + 1 :])
    marked = (*(f"{value}{mark}" for mark in ("L", "f", "n", ".0", "e3")), f"-{value}")
    quoted = (f'"{value}"', f"'{value}'", value.strip('"'))
    signed = value[:at] + sign + value[at:]
    return random.choice((signed, signed, *same, *cased, *other, *marked, *quoted))


def _nested(value: Any, random: Random) -> Any:
    if isinstance(value, list) and value:
        changed = list(value)
        at = random.randrange(len(changed))
        how = random.randrange(6)
        if how == 0:
            changed.pop(at)
        elif how == 1:
            changed.append(copy.deepcopy(changed[at]))
        elif how == 2:
            random.shuffle(changed)
        elif how == 3:
            changed[at] = _odd(None, random)
        else:
            changed[at] = _nested(changed[at], random)
        return changed
    if isinstance(value, dict) and value:
        changed = dict(value)
        key = random.choice(list(changed))
        how = random.randrange(5)
        if how == 0:
            changed.pop(key)
        elif how == 1:
            changed["no_such_key"] = _odd(None, random)
        elif how == 2:
            changed[key.upper()] = changed.pop(key)
        else:
            changed[key] = _nested(changed[key], random)
        return changed
    return _text(value, random)


def _drop_call(calls: list[Call], _: Any, random: Random) -> list[Call]:
    return calls[:-1] if len(calls) > 1 or random.random() < 0.2 else calls


def _again(calls: list[Call], _: Any, random: Random) -> list[Call]:
    return [*calls, copy.deepcopy(random.choice(calls))] if calls else calls


def _instead(calls: list[Call], _: Any, random: Random) -> list[Call]:
    """One call twice, in the place of another."""
    if len(calls) > 1:
        calls[random.randrange(len(calls))] = copy.deepcopy(random.choice(calls))
    return calls


def _shuffled(calls: list[Call], _: Any, random: Random) -> list[Call]:
    random.shuffle(calls)
    return calls


_STEPS = (
    *(_drop_call, _again, _instead, _shuffled),
    *map(_on_call, (_drop, _add, _add, _rename, _swap_values, _reorder, _bad_arguments)),
    *map(_on_value, (_odd, _odd, _other_type, _text, _text, _nested, _nested)),
)


def peer_answers(
    python: str, items: Sequence[BfclItem], request: Sequence[tuple[str, list[Call]]]
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """What BFCL's checker says of each (item id, calls), and {"seconds", "n"}: what it took for
    those it came back from."""
    lines = [
        {"item": item.id, "category": item.category, "language": "python",
         "function": item.functions, "truth": item.truth}
        for item in items
    ]  # fmt: skip
    lines += [
        {"of": item, "calls": [{call["name"]: call["arguments"]} for call in calls]}
        for item, calls in request
    ]
    text = "\n".join(json.dumps(line) for line in lines)
    done = subprocess.run([python, str(PEER)], input=text, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{python} {PEER.name}: {done.stderr[-800:]}")
    *answers, last = map(json.loads, done.stdout.splitlines())
    return answers, last
