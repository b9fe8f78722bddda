"""Is every value in the request, by the rules' own reading; plain text for those that are not."""

import re
from collections.abc import Iterable, Sequence

from assets.synthesis.common.contract_reading import read_slots
from assets.synthesis.offline.language.clauses import spell_out
from assets.synthesis.offline.language.phrasing import Filled
from assets.synthesis.verify.verify import verify
from warehouse.json_types import Contract, JsonObject

_UNGROUNDED = {"missing_required_value", "ungrounded_value"}


def find_absent(contract: Contract, text: str, values: JsonObject) -> list[str]:
    """The arguments whose value the rules do not find in the text, in order."""
    found = verify(contract, text, dict(values)).findings
    paths = {f.path for f in found if f.kind in _UNGROUNDED}
    return [
        name for name in values
        if any(path == name or path.startswith((f"{name}.", f"{name}[")) for path in paths)
    ]  # fmt: skip


def append_lost_values(text: str, filled: Iterable[Filled], lost: Sequence[str]) -> str:
    """The text with the lost values said after it, each by its label."""
    said = [say_plainly(item) for item in filled if item.slot.name in lost]
    if not said:
        return text
    listed = "; ".join(said)
    return f"{end_sentence(text)} {listed[0].upper()}{listed[1:]}."


def say_plainly(item: Filled) -> str:
    """A value by its label, nothing left out: `the title is 'Spring sale'`."""
    value = item.value
    if isinstance(value, bool):
        return f"{item.label}: {'yes' if value else 'no'}"
    if isinstance(value, (dict, list)):
        return f"{item.label}: {spell_out(value)}"
    text = str(value) if re.fullmatch(r"[\w./:@+-]+", str(value)) else f"'{value}'"
    return f"the {item.label} is {text}"


def end_sentence(text: str) -> str:
    """The text with a full stop, where it has no other end."""
    text = text.rstrip()
    return text if text.endswith((".", "?", "!")) else f"{text}."


def fill_slots(contract: Contract, values: JsonObject) -> list[Filled]:
    """The values with their slots, in the contract's order; names it does not declare are left."""
    return [Filled(slot, values[slot.name]) for slot in read_slots(contract) if slot.name in values]
