"""Is a request the contract's own words handed back, too loosely for the rules to reject it?"""

from collections.abc import Mapping

from assets.synthesis.common.contract_reading import get_properties
from assets.synthesis.verify.checks.description_echo import extract_content, find_longest_run
from assets.synthesis.verify.grounding.grounding import walk_leaves
from assets.vectors.lexicon import split_identifier
from warehouse.json_types import Contract, Json

# On one half of a development corpus's servers these caught 21 of 22 and refused 6 of 702 good
# requests; on the other half 17 of 18, and 5 of 522.
_SHARE, _RUN, _FEWEST = 0.6, 3, 3


def find_parroting(contract: Contract, instruction: str, arguments: Json) -> str | None:
    """What the request takes over from the contract, or None."""
    held = {word for _, leaf in walk_leaves(arguments, {}) for word in extract_content(str(leaf))}
    said = [word for word in extract_content(instruction) if word not in held][:300]
    if len(said) < _FEWEST:
        return None
    known = _collect_vocabulary(contract)
    own = sum(word in known for word in said) / len(said)
    if own <= _SHARE:
        return None
    run = find_longest_run(said, extract_content(str(contract.get("description") or "")[:3000]))
    if run < _RUN:
        return None
    return f"{own:.0%} of its words are the contract's, {run} of them in a row"


def _collect_vocabulary(contract: Contract) -> set[str]:
    texts = [" ".join(split_identifier(str(contract.get("name") or "")))]
    texts.append(str(contract.get("description") or "")[:3000])
    for name, of in get_properties(contract).items():
        texts.append(" ".join(split_identifier(str(name))))
        texts.append(str(of.get("description") or "")[:500] if isinstance(of, Mapping) else "")
    return set(extract_content(" ".join(texts)))
