"""Rules about other tools, shell commands and parameters, by names and words.

A tool may speak of the others of its own server ("call resolve_id first"), so the names of its own
list do not count as foreign.
"""

import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import replace

from assets.contracts.scan.rule_table import (
    HIGH,
    LOW,
    MEDIUM,
    RULES,
    IdeaSpans,
    RuleHit,
    build_hit,
    is_in_sentence,
    judge_text,
    parse_patterns,
)
from assets.contracts.scan.tool_texts import ToolText, collect_words, split_words

# Names that only a program gives: parts joined by a sign, or by a capital within.
_COINED = re.compile(
    r"(?<![\w./:@-])(?:[a-z][a-z0-9]{1,30}(?:[_-][a-z0-9]{1,30}){1,6}"
    r"|[a-z][a-z0-9]{1,30}(?:[A-Z][a-z0-9]{1,30}){1,6})(?![\w/:@-]|\.\w)"
)
PLAIN = re.compile(r"[A-Za-z_]\w{0,60}")
_ADDRESS = re.compile(
    r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}\.[\w.-]{1,63}|\bhttps?://[^\s<>\"'`)]{1,200}"
    r"|(?<![\w+])\+\d[\d ()-]{6,20}\d|\b0x[0-9a-fA-F]{40}\b"
)
# Hyphens and underscores join honest words too; one of these makes a tool of them.
_VERBS = collect_words(
    "send read write get list create delete update search fetch execute run post upload"
    " download transfer pay call make open email mail query push merge add set"
)
_COMMAND = re.compile(
    r"\b(?:curl|wget|iwr|Invoke-WebRequest)\b[^|\n]{1,200}\|\s{0,3}(?:sudo )?(?:ba|z|da)?sh\b"
    r"|\b(?:curl|wget)\b[^\n;&]{1,200}(?:&&|;) {0,3}(?:(?:ba|z)?sh|chmod|python3?) "
    r"|\$\( {0,3}(?:curl|wget)\b"
    r"|\bbash -i >& ?/dev/tcp/|\bnc(?:at)? (?:-\w{1,4} ){1,3}\S{1,80} \d{2,5}\b|/dev/tcp/\d"
    r"|\brm -rf (?:/|~|\$HOME)(?=[\s'\"`;&|]|$)|\bIEX ?\(New-Object|:\(\)\{ ?:\|:& ?\};:"
    r"|\bcat (?:~|/)[\w./~-]{0,80}(?:id_rsa|passwd|shadow|credentials)\b[^|\n]{0,80}"
    r"\| {0,3}(?:curl|nc|base64)\b"
    r"|\beval\( {0,3}(?:await )?(?:fetch|atob|requests?\.get|require|urlopen|base64)\b"
    r"|\bchmod 777 /(?=\s|$)|\bmkfs\.|\bdd if=/dev/(?:zero|random) of=/dev/"
)


def mark_foreign(
    text: str, within: IdeaSpans, own_names: Set[str], elsewhere: Set[str] = frozenset()
) -> None:
    """Enters the names of tools that the list does not hold as the idea FOREIGN, and those that are
    known to stand on another server as ELSEWHERE too."""
    spans, elsewhere_spans = [], []
    for match in _COINED.finditer(text):
        name = match[0]
        if name in own_names:
            continue
        span = within.words.at(match.start()), within.words.at(match.end() - 1)
        if span[0] >= 0 and name in elsewhere:
            elsewhere_spans.append(span)
        if span[0] >= 0 and (name in elsewhere or _is_tool(name)):
            spans.append(span)
    for idea, where in (("FOREIGN", spans), ("ELSEWHERE", elsewhere_spans)):
        if where:
            within.found[idea] = where


def find_identifiers(text: str) -> Iterator[str]:
    """Whatever may be the name of a tool or parameter."""
    yield from (match[0] for pattern in (_COINED, PLAIN) for match in pattern.finditer(text))


def _is_tool(name: str) -> bool:
    """Whether a name that no known list holds reads as a tool's."""
    return name.islower() and not _VERBS.isdisjoint(name.replace("-", "_").split("_"))


def mark_addresses(text: str, within: IdeaSpans) -> None:
    """Enters mail addresses, URLs, phone numbers and wallets as the idea ADDRESS."""
    spans = []
    for match in _ADDRESS.finditer(text):
        first, last = within.words.at(match.start()), within.words.at(match.end() - 1)
        if 0 <= first <= last:
            spans.append((first, last))
    if spans:
        within.found["ADDRESS"] = spans


def find_commands(text: str, within: IdeaSpans) -> Iterator[RuleHit]:
    """Shell commands that no honest description tells a model to run."""
    match = _COMMAND.search(text)
    if not match:
        return
    at = max(0, within.words.at(match.start()))
    mentioned = is_in_sentence(("DETECTS", "NEG"), within, at, 14)
    yield build_hit("command_order", match.start(), match.end(), MEDIUM if mentioned else HIGH)


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


def mark_own_parameters(text: ToolText, within: IdeaSpans, own_names: Set[str]) -> None:
    """Enters the names of the tool's own parameters as the idea OWN_PARAMETER, where it matters."""
    if within.found.keys().isdisjoint(_WHERE_IT_MATTERS):
        return
    spans = []
    for match in PLAIN.finditer(text.text):
        if match[0] in own_names and match[0] != text.parameter:
            first, last = within.words.at(match.start()), within.words.at(match.end() - 1)
            if first >= 0:
                spans.append((first, last))
    if spans:
        within.found["OWN_PARAMETER"] = spans


def judge_parameter(text: ToolText, about: Sequence[str], within: IdeaSpans) -> Iterator[RuleHit]:
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
                hit = next(judge_text(rule, text.text, within), None)
                if hit:
                    yield hit
                    break


def _judge_name(text: ToolText, about: Sequence[str]) -> Iterator[RuleHit]:
    spelled, end = " ".join(split_words(text.text, name=True).words), len(text.text)
    talk = RULES["conversation_parameter"]
    if spelled in talk.names and talk.subject.isdisjoint(about):
        yield build_hit(talk.id, 0, end)
    for rule in ("private_key_parameter", "credential_parameter"):
        if any(f" {name} " in f" {spelled} " for name in RULES[rule].names):
            yield build_hit(rule, 0, end)
            break
