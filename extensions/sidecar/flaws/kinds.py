"""How often each kind of flaw is learned, and which kinds never are. Where the shares come from:
`docs/training.md`, "The sidecar's data"."""

from extensions.sidecar.flaws.flaws import HOPELESS
from extensions.sidecar.flaws.meaning_flaws import MEANING_FLAWS
from extensions.sidecar.flaws.name_flaws import NAME_FLAWS
from extensions.sidecar.flaws.text_flaws import TEXT_FLAWS
from extensions.sidecar.flaws.value_flaws import VALUE_FLAWS

SHARES = {"tool": 0.4, "missing": 0.25, "value": 0.2, "parameter": 0.1, "text": 0.05}
GROUPS: dict[str, tuple[str, ...]] = {
    "tool": (
        *HOPELESS,
        "tool by another verb",
        "tool beside it",
        "tool misspelt",
        "tool with a prefix",
        "tool in another case",
    ),
    "missing": (
        "required value missing",
        "placeholder for a value",
        "several required values missing",
        "optional value missing",
    ),
    "parameter": (
        "parameter renamed since",
        "name misspelt",
        "name in another case",
        "undeclared argument",
    ),
    # Two calls in one are two drafts before a model sees them.
    "text": tuple(kind for kind in TEXT_FLAWS if kind != "two calls in one"),
}
_KNOWN = {kind for group in GROUPS.values() for kind in group}
# A tool renamed since, without a history at hand, is one that is not there.
GROUPS["value"] = tuple(
    kind
    for kind in {**VALUE_FLAWS, **MEANING_FLAWS, **NAME_FLAWS}
    if kind not in _KNOWN and kind != "tool renamed since"
)
# Of each group one, so that the evaluation has kinds that nobody learned from.
HELD_OUT = frozenset(
    {
        "tool by another verb",
        "several required values missing",
        "value of another call",
        "choice misspelt",
        "number with its unit",
        "name misspelt",
        "NaN",
    }
)
WEIGHTS = {kind: SHARES[group] / len(kinds) for group, kinds in GROUPS.items() for kind in kinds}
