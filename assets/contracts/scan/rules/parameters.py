"""Parameters: what a tool asks for, by the names and descriptions of its parameters."""

from collections.abc import Iterator, Sequence, Set
from dataclasses import replace

from assets.contracts.scan.finding import LOW, RULES, Hit, build_hit
from assets.contracts.scan.pattern_rules import judge_text
from assets.contracts.scan.rules.cross_tool_orders import PLAIN
from assets.contracts.scan.text.fields import Text
from assets.contracts.scan.text.normalise import split_words
from assets.contracts.scan.text.phrases import Ideas, parse_patterns

_WHERE_IT_MATTERS = frozenset(
    ("HARDPATH", "KEYISH", "LOOT", "CONVERSATION", "CONVERSATION_OWN", "YOURS")
)
_NAMES_FILE = replace(
    RULES["secret_file_parameter"], patterns=parse_patterns("READ|CONTENT|CONTENT_OF 4 HARDPATH")
)
_ASKS = tuple(
    replace(rule, patterns=rule.asks, mentioned=LOW, eased=("PUBLIC",), guarded=())
    for rule in RULES.values()
    if rule.asks
)


def mark_own_parameters(text: Text, within: Ideas, own: Set[str]) -> None:
    """Enters the names of the tool's own parameters as the idea OWN_PARAMETER, where it matters."""
    if within.found.keys().isdisjoint(_WHERE_IT_MATTERS):
        return
    spans = []
    for found in PLAIN.finditer(text.text):
        if found[0] in own and found[0] != text.parameter:
            first, last = within.words.at(found.start()), within.words.at(found.end() - 1)
            if first >= 0:
                spans.append((first, last))
    if spans:
        within.found["OWN_PARAMETER"] = spans


def judge_parameter(text: Text, about: Sequence[str], within: Ideas) -> Iterator[Hit]:
    """What a parameter's name or description asks for. about: words of the tool's own name."""
    if not text.parameter or not text.field.startswith(("/inputSchema", "/parameters")):
        return
    if text.role == "name":
        yield from _judge_name(text, about)
        yield from judge_text(_NAMES_FILE, text.text, within)
    elif text.role == "prose":
        own_words = split_words(text.parameter, name=True).words
        for rule in _ASKS:
            # A parameter that says by its name that it is a secret hides nothing.
            declared = rule.id == "secrets_parameter" and not rule.subject.isdisjoint(own_words)
            if rule.subject.isdisjoint(about) and not declared:
                found = next(judge_text(rule, text.text, within), None)
                if found:
                    yield found
                    break


def _judge_name(text: Text, about: Sequence[str]) -> Iterator[Hit]:
    spelled, end = " ".join(split_words(text.text, name=True).words), len(text.text)
    talk = RULES["conversation_parameter"]
    if spelled in talk.names and talk.subject.isdisjoint(about):
        yield build_hit(talk.id, 0, end)
    for rule in ("private_key_parameter", "credential_parameter"):
        if any(f" {name} " in f" {spelled} " for name in RULES[rule].names):
            yield build_hit(rule, 0, end)
            break
