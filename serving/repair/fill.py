"""The rung `fill`: a required value that the draft lacks and the user states beyond doubt.

A value counts where the user names it for this parameter, or where it is the only one of its kind
and no other argument has it, and nothing that the user rules out has it. Anything less is a
question to the user, never a guess; so is a secret, which a tool could ask for to have it, and a
confirmation, which only the model can give.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from assets.contracts.repair.json_paths import find_choices, find_types
from assets.contracts.repair.names import is_confirming
from assets.contracts.schema.reading import iterate_branches
from assets.synthesis.verify.grounding.folding import fold_text
from assets.vectors.lexicon import split_identifier, stem_plural
from serving.repair.evidence import space_words
from warehouse.json_types import Schema
from warehouse.sanitize.secret_names import is_secret_name

_TEXT = 20_000  # characters of what the user says that are searched
_KINDS = {
    "email": re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,5}(?<![.-])"),
    "uri": re.compile(r"\bhttps?://[^\s<>\"'`]{1,2000}(?<![.,;:!?)\]}])"),
    "uuid": re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"),
    "ipv4": re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.])"),
    "date": re.compile(r"(?<![\w-])(?:19|20)\d\d-[01]\d-[0-3]\d(?![\w-])"),
}
_WORDS = {"email": "email", "mail": "email", "url": "uri", "uri": "uri", "link": "uri",
          "uuid": "uuid", "ip": "ipv4", "date": "date"}  # fmt: skip
_QUOTED = re.compile(r"\"([^\"\n]{1,500})\"|“([^”\n]{1,500})”|`([^`\n]{1,500})`|(?<!\w)'([^'\n]{1,500})'(?!\w)")  # fmt: skip  # noqa: E501
_CODES = {"otp", "totp", "pin", "cvv", "cvc"}  # that are nobody's to hand on
_KEYED = {  # what the key of an account is spoken of with
    *("api", "auth", "authenticate", "authentication", "authorization", "authorize", "access"),
    *("credential", "credentials", "secret", "token", "password", "login", "license"),
}
# What a colon announces and the points of a list belong to the sentence before them.
_SENTENCE = re.compile(r"(?<=[.!?;])\s+|(?<!:)\n+(?!\s*(?:[-*•]|\d+[.)]))")
_DENYING = re.compile(  # of the languages that most is written in
    r"n['’ʼ]t\b|\b(?:do|does|did|wo|ca|is|are|should|must|would|could)nt\b"
    r"|\b(?:not?|never|cannot|without|except|but|instead|rather|other than|unless|neither|nor|none"
    r"|keep|avoid|exclud\w*|skip|ignore|forget|nicht|kein\w*|nie|niemals|ohne|außer|statt|pas|jamais"
    r"|sans|sauf|nunca|sin|excepto|salvo|jamás|não|sem|exceto|non|mai|senza|tranne|niet|geen|nooit"
    r"|не|нет|никогда|кроме|без)\b|不|别|勿|除了",
    re.IGNORECASE,
)
_IS = r"\s*(?:=|:|\bis\b|\bto\b|\bof\b|\bas\b|\bnamed\b|\bcalled\b)?\s*"
_NUMBER = r"([+-]?\d{1,15}(?:\.\d{1,10})?)(?![\w]|[.,:/-]\d)"


def find_stated_value(
    name: str, schema: Any, root: Schema, user: str, used: Sequence[Any], tool: str = ""
) -> tuple[Any, str] | None:
    """(the value of a parameter, why) that contract or user leave no doubt about, else None.
    user: what is said last: a value of an earlier turn may be of an earlier call. used: the values
    of the other arguments. tool: its name and description."""
    if is_confirming(name) or _is_secret(name, schema, root, tool):
        return None
    choices = find_choices(schema, root)
    if len(choices) == 1:
        sure = isinstance(choices[0], str | int | float) and not isinstance(choices[0], bool)
        return (choices[0], "the contract allows no other value") if sure else None
    wanted, ruled_out = _split_ruled_out(user[-_TEXT:])
    stated = _find_stated(name, schema, root, wanted, choices, used)
    return None if stated and str(stated[0]) in ruled_out else stated


def _is_secret(name: str, schema: Any, root: Schema, tool: str) -> bool:
    """Whether only the model may give it; `key` alone also names what a store or a table has."""
    words = split_identifier(name)
    if [*words] in (["key"], ["keys"]):
        about = [str(branch.get("description"))[:2000] for branch in iterate_branches(schema, root)]
        said = {word for text in (tool[:2000], *about) for word in split_identifier(text)}
        return not _KEYED.isdisjoint(said)
    return is_secret_name(name) or not _CODES.isdisjoint(words)


def _find_stated(
    name: str, schema: Any, root: Schema, user: str, choices: Sequence[Any], used: Sequence[Any]
) -> tuple[Any, str] | None:
    if choices:
        named = [
            choice for choice in choices if isinstance(choice, str) and _holds_word(choice, user)
        ]
        return (named[0], "the user names this choice alone") if len(named) == 1 else None
    types = find_types(schema, root)
    if types & {"integer", "number"}:
        return _pick_only(_find_numbers(name, user, "number" in types), "the user gives the number")
    if types and "string" not in types:
        return None
    kind = _find_kind(name, schema, root)
    if kind:
        found = [one for one in _KINDS[kind].findall(user) if one not in used]
        return _pick_only(found, f"the only {kind} that the user gives")
    return _pick_only(_find_assigned(name, user), "the user gives it by its name")


def _split_ruled_out(user: str) -> tuple[str, str]:
    """(what the user says without denying or excepting anything, the sentences that do)."""
    kept: tuple[list[str], list[str]] = [], []
    for sentence in _SENTENCE.split(user):
        kept[bool(_DENYING.search(sentence))].append(sentence)
    return "\n".join(kept[0]), "\n".join(kept[1])


def _pick_only(found: Sequence[Any], why: str) -> tuple[Any, str] | None:
    different = list(dict.fromkeys(found))
    return (different[0], why) if len(different) == 1 else None


def _holds_word(choice: str, user: str) -> bool:
    words = space_words(fold_text(choice))
    return len(words) > 4 and words in space_words(fold_text(user))


def _find_kind(name: str, schema: Any, root: Schema) -> str | None:
    for branch in iterate_branches(schema, root):
        if isinstance(branch, Mapping) and branch.get("format") in (*_KINDS, "url"):
            return "uri" if branch["format"] == "url" else branch["format"]
    words = split_identifier(name)
    return _WORDS.get(words[-1]) if words and _WORDS.get(words[-1]) != "date" else None


def _build_name_pattern(name: str) -> str:
    """A parameter's name as it is said: words with blanks, singular or plural."""
    words = [re.escape(stem_plural(word)) + "s?" for word in split_identifier(name)]
    return r"[\s_-]*".join(words)


def _find_numbers(name: str, user: str, fractions: bool) -> list[float | int]:
    pattern = _build_name_pattern(name)
    if not pattern:
        return []
    found = re.findall(rf"(?<!\w){pattern}(?!\w){_IS}{_NUMBER}", user, re.IGNORECASE)
    found += re.findall(rf"(?<![\w.,:/-]){_NUMBER}\s+{pattern}(?!\w)", user, re.IGNORECASE)
    numbers = [float(one) for one in found]
    whole = [int(number) if number.is_integer() else number for number in numbers]
    return [one for one in whole if fractions or isinstance(one, int)]


def _find_assigned(name: str, user: str) -> list[str]:
    """What stands in quotes after the name, or right after `name:` and `name=`."""
    pattern = _build_name_pattern(name)
    if not pattern:
        return []
    quoted = rf"(?<!\w){pattern}(?!\w){_IS}(?:{_QUOTED.pattern})"
    found = ["".join(one) for one in re.findall(quoted, user, re.IGNORECASE)]
    if found:
        return found
    plain = rf"(?<!\w){pattern}\s*[:=]\s*([^\s,;\"'`]{{1,200}})"
    return [one.rstrip(".!?)") for one in re.findall(plain, user, re.IGNORECASE)]
