"""What a tool is for, read from its description or its name without a model."""

import re
from dataclasses import dataclass

from assets.vectors.lexicon import find_base_form, find_family, split_identifier
from warehouse.json_types import Contract

LONGEST = 6000  # characters of a description that are read; nobody's purpose comes later

_PREFIX = re.compile(
    r"^(?:\[[^\]]{1,40}\]\s*|[\w ]{2,20} \|\s+|\*\*[^*]{1,60}\*\*:?\s*|[^\w\s\"'`]+\s*"
    r"|(?:this|the)\s+(?:tool|function|endpoint|api|method|command|action)\s+"
    r"(?:will|can|is\s+used\s+to|allows\s+(?:you\s+)?to|lets\s+you|helps\s+(?:you\s+)?(?:to\s+)?"
    r"|enables\s+(?:you\s+)?to)?\s*"
    r"|use\s+(?:this|it)\s+(?:tool\s+)?(?:to|when\s+you\s+(?:need|want)\s+to)\s+"
    r"|(?:a\s+|an\s+)?(?:\w+\s+)?(?:tool|utility|function|endpoint|api)\s+(?:to|for|that)\s+"
    r"|uses?\s+[\w\s.-]{3,40}?\s+to\s+"
    r"|(?:quickly|easily|permanently|programmatically|optionally|safely|asynchronously|directly)\s+"
    r"|(?:gives?|provides?)\s+(?:you\s+)?access\s+to\s+|allows?\s+(?:you\s+|users?\s+)?to\s+"
    r"|(?:use|used)\s+to\s+|perform(?:s)?\s+(?:an?\s+)?(?=\w+\s+(?:of|on)))",
    re.IGNORECASE,
)
# What only matters to whoever implements or calls the tool; a user never says it.
_ASIDE = re.compile(
    r"\s*(?:\([^)]*\)|\b(?:using|via|through|with|by calling|from)\s+(?:the\s+)?[\w\s.\-/]*?"
    r"\b(?:API|SDK|endpoint|server|service|method|protocol)\b[^,;]*"
    r"|\b(?:with|and)\s+(?:optional|advanced|various|additional|enhanced|configurable)\b.*"
    r"|\bfor\s+(?:AI|LLM|debugging MCP)\b.*|\bas (?:a )?JSON\b.*|\bin JSON format\b.*"
    r"|\bin the (?:system|account|server)\b)",
    re.IGNORECASE,
)
_CUT = re.compile(
    r"\s*(?:[;:]|\s[-–—]\s|,\s*(?:which|including|supporting|allowing|helpful|useful|optionally|use)\b"
    r"|\b(?:This|Use|Returns|Only|Note|NOTE|Args|Parameters|Works|Handles)\b|\\n).*$",
    re.DOTALL,
)
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'(])|\n\s*(?=[A-Z\n*#-])")


@dataclass(frozen=True)
class Purpose:
    """What a tool does: base-form verb, its family, and the words that follow the verb."""

    verb: str
    family: str
    rest: str


def read_purpose(contract: Contract) -> Purpose:
    """Reads the first sentence of the description, else the tool's name."""
    text = str(contract.get("description") or "").strip()[:LONGEST]
    sentence = " ".join(_SENTENCE.split(text, maxsplit=1)[0].split())[:400].rstrip(".!: ")
    named = _read_purpose_from_name(contract)
    if not _is_latin(sentence) or len(sentence.split()) < 2:
        return named
    for _ in range(3):
        sentence = _PREFIX.sub("", sentence, count=1)
    head, _, rest = sentence.partition(" ")
    if head.lower().endswith("ly") and find_base_form(rest.partition(" ")[0]):
        # "Intelligently recommends …": how well it does it is the tool's own praise.
        head, _, rest = rest.partition(" ")
    verb = find_base_form(head.strip(",.;:"))
    rest = _tidy_phrase(rest)
    if verb is None and rest and _is_its_verb(head, contract):
        # "Demote participants …" of demote_group_participants: a verb, only a rare one.
        return Purpose(head.lower(), "update", rest)
    if verb is None or not rest:
        # "Weather forecast API with …": a noun phrase; the verb comes from the name.
        noun = _tidy_phrase(sentence)
        if not noun or len(noun.split()) > 14 or not _ENGLISH & set(noun.lower().split()):
            return named
        lowered = noun if noun[1:2].isupper() else noun[0].lower() + noun[1:]
        return Purpose(named.verb, named.family, lowered)
    if rest.startswith("/"):
        return named
    if rest.startswith("and ") and find_base_form([*rest.split(), "", ""][1]):
        rest = " ".join(rest.split()[2:]) or named.rest
    return Purpose(verb, find_family(verb) or named.family, rest)


_ENGLISH = {"a", "an", "the", "of", "for", "to", "in", "and", "by", "with", "on", "from"}


def _is_its_verb(head: str, contract: Contract) -> bool:
    """Whether an unknown word opens the sentence and stands in the tool's name too: its verb."""
    name = {word.rstrip("s") for word in split_identifier(str(contract.get("name") or ""))}
    return head.istitle() and head.lower().rstrip("s") in name


def _read_purpose_from_name(contract: Contract) -> Purpose:
    words = list(split_identifier(str(contract.get("name") or "tool")))
    position = next((i for i, word in enumerate(words) if find_base_form(word)), None)
    if position is None:
        return Purpose("get", "read", " ".join(words))
    verb = find_base_form(words[position]) or "get"
    # `git_status`, `jira_get_issue`: what precedes the verb is the product.
    rest = words[position + 1 :] + (words[:position] if words[position + 1 :] else [])
    if position and rest[-position:] == words[:position]:
        rest = [*rest[:-position], *(["in"] if rest[:-position] else []), *words[:position]]
    return Purpose(verb, find_family(verb) or "read", " ".join(rest or words[:position] or ["it"]))


def _tidy_phrase(phrase: str) -> str:
    phrase = _CUT.sub("", phrase)
    phrase = re.sub(r"\([^)]*$", "", _ASIDE.sub("", phrase))
    phrase = re.sub(r",?\s+and (?:then )?(?:returns?|gets?)\b.*", "", phrase)
    phrase = re.sub(r"[`*\"]|'(?=\w+'[\s,.])|https?://\S+", "", phrase)
    words = re.sub(r"\s+", " ", phrase).strip(" .,;:-").split(" ")
    if len(words) > 16:
        # A long tail is the tool's own advertisement; cut it at the last joint that fits.
        joints = [i for i, word in enumerate(words[:16]) if word in _JOINTS and i > 3]
        words = words[: joints[-1]] if joints else words[:12]
    while words and words[-1].lower() in _DANGLING:
        words.pop()
    return " ".join(words).strip(" ,")


_JOINTS = {"and", "or", "with", "using", "for", "based", "by", "that", "in", "from", "including"}
_DANGLING = {
    *_JOINTS, "of", "a", "an", "the", "to", "on", "at", "its", "their", "into", "as", "if", "when",
}  # fmt: skip


def _is_latin(text: str) -> bool:
    letters = [char for char in text if char.isalpha()]
    return bool(letters) and sum(char.isascii() for char in letters) > 0.8 * len(letters)
