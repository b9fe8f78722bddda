"""Is a request the contract's own words handed back, too loosely for the rules to reject it?"""

from collections.abc import Mapping
from typing import Any

from assets.synthesis.common.contract_reading import properties_of
from assets.synthesis.verify.checks.description_echo import content, longest_run
from assets.synthesis.verify.grounding.grounding import leaves
from assets.vectors.lexicon import words_of

Json = Any
# On one half of a development corpus's servers these caught 21 of 22 and refused 6 of 702 good
# requests; on the other half 17 of 18, and 5 of 522.
_SHARE, _RUN, _FEWEST = 0.6, 3, 3


def parrots(contract: Mapping[str, Json], instruction: str, arguments: Json) -> str | None:
    """What the request takes over from the contract, or None."""
    held = {word for _, leaf in leaves(arguments, {}) for word in content(str(leaf))}
    said = [word for word in content(instruction) if word not in held][:300]
    if len(said) < _FEWEST:
        return None
    known = _vocabulary(contract)
    own = sum(word in known for word in said) / len(said)
    if own <= _SHARE:
        return None
    run = longest_run(said, content(str(contract.get("description") or "")[:3000]))
    if run < _RUN:
        return None
    return f"{own:.0%} of its words are the contract's, {run} of them in a row"


def _vocabulary(contract: Mapping[str, Json]) -> set[str]:
    texts = [" ".join(words_of(str(contract.get("name") or "")))]
    texts.append(str(contract.get("description") or "")[:3000])
    for name, of in properties_of(contract).items():
        texts.append(" ".join(words_of(str(name))))
        texts.append(str(of.get("description") or "")[:500] if isinstance(of, Mapping) else "")
    return set(content(" ".join(texts)))
