"""Flaws of the text that the arguments are written in."""

import json
import re
from collections.abc import Mapping
from random import Random

from assets.contracts.repair.problems import find_types, is_required
from extensions.sidecar.flaws.drafts import FlawedDraft, GoodCall, Make


def _rewrite(make: Make) -> Make:
    return lambda call, draw: make(call, draw) if call.arguments else None


def _write_bare(call: GoodCall, _: Random) -> str:
    """Names without quotes, those within texts as they are."""
    return _write_value(call.arguments)


def _write_value(value: object) -> str:
    if isinstance(value, Mapping):
        return (
            "{" + ", ".join(f"{_write_key(k)}: {_write_value(v)}" for k, v in value.items()) + "}"
        )
    if isinstance(value, list):
        return "[" + ", ".join(map(_write_value, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _write_key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) else json.dumps(name)


def _add_nan(call: GoodCall, draw: Random) -> str | None:
    free = [
        name
        for name, of in call.declared.items()
        if name not in call.arguments
        and find_types(of, call.root) & {"integer", "number"}
        and not is_required(call.root, (name,))
    ]
    return json.dumps({**call.arguments, draw.choice(free): float("nan")}) if free else None


def _drop_brace(call: GoodCall, _: Random) -> str | None:
    last = next(reversed(list(call.arguments.values())))
    return call.text[:-1] if isinstance(last, str) else None


def _cut_text(call: GoodCall, draw: Random) -> str:
    return call.text[: draw.randrange(len(call.text) // 2, len(call.text) - 1)]


def _repeat_call(call: GoodCall, _: Random) -> FlawedDraft | None:
    """Two real calls of one tool, one after the other."""
    if call.sibling is None:
        return None
    both = (call.arguments, call.sibling)
    text = "".join(json.dumps(one, ensure_ascii=False) for one in both)
    return FlawedDraft("two calls in one", call.name, text, both)


TEXT_FLAWS: dict[str, Make] = {
    "JSON within JSON text": _rewrite(lambda call, _: json.dumps(call.text)),
    "code fence": _rewrite(lambda call, _: f"```json\n{call.text}\n```"),
    "Python literal": _rewrite(lambda call, _: repr(dict(call.arguments))),
    "trailing comma": _rewrite(lambda call, _: call.text[:-1] + ",}"),
    "comment": _rewrite(lambda call, _: call.text[:1] + " // as asked\n" + call.text[1:]),
    "names without quotes": _rewrite(_write_bare),
    "NaN": _rewrite(_add_nan),
    "last brace missing": _rewrite(_drop_brace),
    "cut off anywhere": _rewrite(_cut_text),
    "two calls in one": _rewrite(_repeat_call),
}
