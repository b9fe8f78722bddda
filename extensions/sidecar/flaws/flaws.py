"""Every kind of flaw, seeded: a good call becomes the drafts that a model or client would send."""

from collections.abc import Iterator
from random import Random

from extensions.sidecar.flaws.drafts import FlawedDraft, GoodCall, Make
from extensions.sidecar.flaws.meaning_flaws import MEANING_FLAWS
from extensions.sidecar.flaws.name_flaws import NAME_FLAWS
from extensions.sidecar.flaws.text_flaws import TEXT_FLAWS
from extensions.sidecar.flaws.value_flaws import VALUE_FLAWS
from extensions.sidecar.rows import UNTOUCHED

FLAWS: dict[str, Make] = {**TEXT_FLAWS, **VALUE_FLAWS, **NAME_FLAWS}  # of form: a contract shows it
_ALL: dict[str, Make] = {**FLAWS, **MEANING_FLAWS}
# Nothing at hand says what was meant: the question is the right answer.
HOPELESS = ("tool that is not there",)


def make_drafts(call: GoodCall, draw: Random) -> Iterator[FlawedDraft]:
    """The call untouched, and with every flaw of form that can be made of it and changes it."""
    yield FlawedDraft(UNTOUCHED, call.name, call.text, (call.arguments,))
    for kind in FLAWS:
        one = make_flawed(call, kind, draw)
        if one is not None and (one.name, one.arguments) != (call.name, call.arguments):
            yield one


def make_flawed(call: GoodCall, kind: str, draw: Random) -> FlawedDraft | None:
    """The call with one flaw; None where this flaw cannot be made of it."""
    made = _ALL[kind](call, draw)
    if made is None or isinstance(made, FlawedDraft):
        return made
    return FlawedDraft(kind, call.name, made, (call.arguments,))
