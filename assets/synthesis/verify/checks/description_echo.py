"""The tool's description handed back as a request: plainly, or too loosely for a rule to reject."""

import re
from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher

from assets.synthesis.common.contract_reading import get_properties
from assets.synthesis.verify.finding import Finding
from assets.synthesis.verify.grounding.folding import fold_text, stem_word
from assets.synthesis.verify.grounding.grounding import walk_leaves
from assets.vectors.lexicon import collect_words, split_identifier
from warehouse.json_types import Contract, Json, JsonObject


def find_echo(contract: Contract, instruction: str, arguments: JsonObject) -> Iterable[Finding]:
    """The description handed back: nearly all words of the request are the description's own, in
    its order."""
    held = {
        word for _, leaf in walk_leaves(arguments) for word in extract_content(show_scalar(leaf))
    }
    words = [word for word in extract_content(instruction[:6000]) if word not in held][:300]
    described = extract_content(str(contract.get("description") or "")[:6000])
    if len(words) < 4 or not described:
        return
    known = set(described)
    own = sum(word in known for word in words) / len(words)
    if len(words) > 4 and own >= 0.85 and find_longest_run(words, described) >= 5:
        yield Finding("copies_description", "", f"{own:.0%} of its words are the description's")
    elif sentence := _find_repeated_sentence(words, str(contract.get("description") or "")):
        yield Finding("copies_description", "", f"repeats {sentence[:80]!r} word for word")


def show_scalar(leaf: Json) -> str:
    """A scalar as text, its first characters; Python writes no number of thousands of digits."""
    huge = isinstance(leaf, int) and abs(leaf) > 10**400
    return "a huge number" if huge else str(leaf)[:2000]


def _find_repeated_sentence(asked: list[str], description: str) -> str | None:
    """The sentence of a description that a request goes through in order, its verb first, with
    little besides. Of 1,224 good requests none does, of 40 handed-back ones 22."""
    if not asked or stem_word(asked[0]) not in extract_content(description[:200]):
        return None
    for sentence in re.split(r"(?<=[.!?。])\s|\n", description[:2000])[:4]:
        words = extract_content(sentence)[:40]
        if len(words) < 4 or len(set(words) & set(asked)) < 0.8 * len(set(words)):
            continue
        blocks = SequenceMatcher(None, asked[:120], words, autojunk=False).get_matching_blocks()
        shared = sum(block.size for block in blocks)
        if shared >= max(4, 0.8 * len(words)) and shared >= 0.38 * len(asked):
            return sentence
    return None


def extract_content(text: str) -> list[str]:
    return [stem_word(word) for word in re.findall(r"\w+", fold_text(text)) if word not in _FILLER]


_FILLER = collect_words(
    "a an the of to in for and or on at by with is it i me my please can you could"
)


def find_longest_run(words: list[str], described: list[str]) -> int:
    """The longest stretch of words that both hold in the same order without a gap."""
    return SequenceMatcher(None, words, described, autojunk=False).find_longest_match().size


# On one half of a development corpus's servers these caught 21 of 22 and refused 6 of 702 good
# requests; on the other half 17 of 18, and 5 of 522.
_SHARE, _RUN, _FEWEST = 0.6, 3, 3


def find_parroting(contract: Contract, instruction: str, arguments: Json) -> str | None:
    """What the request takes over from the contract, or None."""
    held = {word for _, leaf in walk_leaves(arguments) for word in extract_content(str(leaf))}
    words = [word for word in extract_content(instruction) if word not in held][:300]
    if len(words) < _FEWEST:
        return None
    known = _collect_vocabulary(contract)
    own = sum(word in known for word in words) / len(words)
    if own <= _SHARE:
        return None
    run = find_longest_run(words, extract_content(str(contract.get("description") or "")[:3000]))
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
