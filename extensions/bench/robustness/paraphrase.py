"""The rule-based paraphraser: a description in other words, with every fact kept.

It is rules, not a model, and reports name it by NAME. Code spans, quoted text, URLs, numbers and
identifiers stand for something exact and are never touched; every rule holds in the sentence that
it is found in, whatever the tool.
"""

import hashlib
import re

NAME = "paraphraser:rules-1"

# Kept as they are: `code`, "quoted", 'quoted', URLs, {braces}, <tags>, identifiers_with-marks and
# camelCase, paths, numbers.
_EXACT = re.compile(
    r"```.*?```|`[^`\n]*`|\"[^\"\n]*\"|“[^”\n]*”|(?<!\w)'[^'\n]*'(?!\w)|https?://\S+"
    r"|\{[^{}\n]*\}|<[^<>\n]*>|\$\w+|[\w.]*[\w]*[_/\\@#:=][\w./\\@#:=-]*|\b\w*[a-z][A-Z]\w*\b"
    r"|\b[A-Z]{2,}\b|\S*\d\S*|\w+(?:-\w+)+",
    re.DOTALL,
)
# What a tool does, said at the start of a sentence.
_VERBS = {
    "get": ("fetch", "obtain"),
    "fetch": ("get", "obtain"),
    "retrieve": ("fetch", "get"),
    "list": ("enumerate", "give a list of"),
    "return": ("give back", "hand back"),
    "create": ("make", "set up"),
    "delete": ("remove", "erase"),
    "remove": ("take away", "drop"),
    "update": ("change", "modify"),
    "modify": ("change", "alter"),
    "find": ("look up", "locate"),
    "show": ("display", "present"),
    "display": ("show", "present"),
    "convert": ("transform",),
    "compute": ("calculate", "work out"),
    "calculate": ("compute", "work out"),
    "check": ("verify", "test"),
    "provide": ("supply", "give"),
    "perform": ("carry out", "do"),
    "execute": ("carry out", "run"),
}


def _make_third_person(phrase: str) -> str:
    """`carry out` -> `carries out`."""
    verb, *rest = phrase.split()
    if re.search("[^aeiou]y$", verb):
        verb = f"{verb[:-1]}ie"
    elif verb.endswith(("ch", "sh", "o")):
        verb += "e"
    return " ".join([f"{verb}s", *rest])


_VERBS |= {
    _make_third_person(verb): tuple(map(_make_third_person, others))
    for verb, others in _VERBS.items()
}
# Anywhere in a sentence.
_PHRASES = {
    "such as": ("for example", "like"),
    "e.g.": ("for example", "for instance"),
    "i.e.": ("that is",),
    "in order to": ("to",),
    "must be": ("has to be", "needs to be"),
    "optional": ("not mandatory", "not required"),
    "required": ("mandatory", "needed"),
    "if not provided": ("when it is left out", "if it is omitted"),
    "if not specified": ("when it is left out", "if it is omitted"),
    "whether to": ("decides whether to",),
    "the number of": ("how many", "the count of"),
    "number of": ("count of", "quantity of"),
    "maximum": ("largest", "highest"),
    "minimum": ("smallest", "lowest"),
    "specified": ("given", "named"),
    "given": ("specified", "stated"),
    "used to": ("meant to",),
    "allows you to": ("lets you", "makes it possible to"),
    "this tool": ("the tool", "this function"),
    "use this": ("call this",),
    "already existing": ("existing",),
    "existing": ("already existing",),
    "a specific": ("one particular", "a particular"),
    "multiple": ("several",),
    "information about": ("details of", "facts about"),
    "details": ("particulars", "specifics"),
    "default": ("preset",),
}
_START = re.compile(r"(^|[.!?]\s+|\n\s*(?:[-*]\s+)?)([A-Za-z]+)\b")
_ANYWHERE = re.compile(
    r"(?<![\w-])(" + "|".join(map(re.escape, sorted(_PHRASES, key=len, reverse=True))) + r")(?!\w)",
    re.IGNORECASE,
)


def paraphrase_text(text: str, seed: int = 0) -> str:
    """The text in other words; unchanged where no rule applies. A function of its arguments."""
    kept: list[str] = []

    def hide(match: re.Match[str]) -> str:
        kept.append(match.group())
        return f"\x00{len(kept) - 1}\x00"

    if "\x00" in text:
        return text
    # Abbreviations that are rules themselves must not be hidden with what follows them.
    hidden = _EXACT.sub(lambda m: m.group() if m.group().lower() in _PHRASES else hide(m), text)
    hidden = _START.sub(lambda m: m[1] + _choose_synonym(m[2], _VERBS, text, seed), hidden)
    hidden = _ANYWHERE.sub(lambda m: _choose_synonym(m[1], _PHRASES, text, seed), hidden)
    return re.sub(r"\x00(\d+)\x00", lambda m: kept[int(m[1])], hidden)


def _choose_synonym(word: str, known: dict[str, tuple[str, ...]], text: str, seed: int) -> str:
    """One of the words that mean the same, in the same case."""
    choices = known.get(word.lower())
    if not choices:
        return word
    drawn = hashlib.sha256(f"{seed}|{word.lower()}|{text}".encode("utf-8", "replace")).digest()[0]
    chosen = choices[drawn % len(choices)]
    return chosen[0].upper() + chosen[1:] if word[0].isupper() else chosen
