"""Flaws of the names: of parameters, and of the tool."""

from collections.abc import Callable
from random import Random
from typing import Any

from assets.contracts.rename_history import ContractMove
from assets.contracts.repair.names import split_identifier
from extensions.sidecar.flaws.drafts import (
    FlawedDraft,
    GoodCall,
    Make,
    choose_name,
    drop_letter,
    make_word,
)


def _rename(call: GoodCall, draw: Random, make: Callable[[str], str]) -> Any:
    name = choose_name(call, draw, lambda one, _: one in call.declared)
    if name is None or make(name) in call.declared:
        return None
    return {make(name) if key == name else key: one for key, one in call.arguments.items()}


def _change_case(name: str) -> str:
    words = split_identifier(name)
    snake = "_".join(words)
    return snake if snake != name else words[0] + "".join(word.capitalize() for word in words[1:])


def _rename_typo(call: GoodCall, draw: Random) -> Any:
    at = draw.random()
    return _rename(call, draw, lambda one: drop_letter(one, at) if len(one) > 4 else one)


def _rename_past(call: GoodCall, draw: Random) -> FlawedDraft | None:
    """A parameter under a name that only history knows."""
    old, name = make_word(draw, 3), choose_name(call, draw, lambda one, _: one in call.declared)
    if name is None:
        return None
    made = {old if key == name else key: one for key, one in call.arguments.items()}
    move = ContractMove(call.server, call.name, call.name, {old: name})
    return FlawedDraft("parameter renamed since", call.name, made, (call.arguments,), move)


def _call_past(call: GoodCall, draw: Random) -> FlawedDraft:
    old = make_word(draw, 3)
    move, made = ContractMove(call.server, call.name, old), dict(call.arguments)
    return FlawedDraft("tool renamed since", old, made, (call.arguments,), move)


def _call_as(kind: str, make: Callable[[str, Random], str]) -> Make:
    def make_draft(call: GoodCall, draw: Random) -> FlawedDraft | None:
        name = make(call.name, draw)
        if name == call.name:
            return None
        return FlawedDraft(kind, name, dict(call.arguments), (call.arguments,))

    return make_draft


_TOOLS: dict[str, Callable[[str, Random], str]] = {
    "tool with a prefix": lambda name, _: f"mcp__server__{name}",
    "tool in another case": lambda name, _: _change_case(name) if len(name) > 1 else name,
    "tool misspelt": lambda name, _: drop_letter(name, 0.4) if len(name) > 6 else name,
    "tool that is not there": lambda _, draw: make_word(draw, 3),
}
NAME_FLAWS: dict[str, Make] = {
    "name in another case": lambda call, draw: _rename(call, draw, _change_case),
    "name misspelt": _rename_typo,
    "parameter renamed since": _rename_past,
    "tool renamed since": _call_past,
    **{kind: _call_as(kind, make) for kind, make in _TOOLS.items()},
}
