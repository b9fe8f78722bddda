"""Rules about addresses, keys, names of tools, shell commands and parameters.

A tool may speak of the others of its own server ("call resolve_id first"), so the names of its own
list do not count as foreign.
"""

import ipaddress
import re
from base64 import b64encode
from collections.abc import Iterator, Sequence, Set
from dataclasses import replace
from urllib.parse import urlsplit

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
    keep_gravest,
    parse_patterns,
)
from assets.contracts.scan.tool_texts import (
    ToolText,
    collect_words,
    fold_latin,
    fold_skeleton,
    split_words,
)
from warehouse.patterns import compile_pattern
from warehouse.sanitize.credential_patterns import Span, find_issued_keys
from warehouse.sanitize.untrusted_text import normalise_breaks

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
_COMMAND = compile_pattern(
    r"\b(?:curl|wget|iwr|Invoke-WebRequest)\b[^|\n]{1,200}\|\s{0,3}(?:sudo )?(?:ba|z|da)?sh\b"
    r"|\b(?:curl|wget)\b[^\n;&]{1,200}(?:&&|;) {0,3}(?:(?:ba|z)?sh|chmod|python3?) "
    r"|\$\( {0,3}(?:curl|wget)\b"
    r"|\bbash -i >& ?/dev/tcp/|\bnc(?:at)? (?:-\w{1,4} ){1,3}\S{1,80} \d{2,5}\b|/dev/tcp/\d"
    r"|\brm -rf (?:/|~|\$HOME)(?:[\s'\"`;&|]|$)|\bIEX ?\(New-Object|:\(\)\{ ?:\|:& ?\};:"
    r"|\bcat (?:~|/)[\w./~-]{0,80}(?:id_rsa|passwd|shadow|credentials)\b[^|\n]{0,80}"
    r"\| {0,3}(?:curl|nc|base64)\b"
    r"|\beval\( {0,3}(?:await )?(?:fetch|atob|requests?\.get|require|urlopen|base64)\b"
    r"|\bchmod 777 /(?:\s|$)|\bmkfs\.|\bdd if=/dev/(?:zero|random) of=/dev/"
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
        spelled, end = " ".join(split_words(text.text, name=True).words), len(text.text)
        talk = RULES["conversation_parameter"]
        if spelled in talk.names and talk.subject.isdisjoint(about):
            yield build_hit(talk.id, 0, end)
        for rule in ("private_key_parameter", "credential_parameter"):
            if any(f" {name} " in f" {spelled} " for name in RULES[rule].names):
                yield build_hit(rule, 0, end)
                break
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


_URL = compile_pattern(r"(?i)\b(?:https?|ftp|wss?)://[^\s<>\"'`|\\^]+")
_IMAGE = compile_pattern(r"(?i)!\[[^\]\n]{0,200}\]\(\s{0,4}(https?://[^\s)]+)")
_HTML_IMAGE = compile_pattern(
    r"(?i)<(?:img|iframe|script)\s[^>]{0,200}?src\s?=\s?[\"']?(https?://[^\s\"'>]+)"
)
_CODE = re.compile(
    r"\b(?:javascript|vbscript):\s{0,3}[a-z(\[!~]|\bdata:text/html[,;]", re.IGNORECASE
)
_SLOT = re.compile(r"[=/?&]\$?(?:\{\{?|<|\[|%7B|\$)([\w .'-]{1,60})")
_BARE_SLOT = re.compile(r"[?&][\w-]{1,40}=([A-Z][A-Z_]{3,40})(?![\w-])")
_PERSONAL = collect_words(
    "secret secrets password passwords conversation history chat prompt env environ"
    " environment context credentials cookie cookies ssh transcript messages memory contents"
    " exfil stolen instructions reasoning keys base64 encoded dump summary result output data"
)
_FIRM = _PERSONAL - collect_words(
    "summary result output data context contents history memory messages env environment encoded"
    " keys chat base64 prompt"
)
_CATCHERS = (
    "webhook.site", "requestbin", "pipedream.net", "ngrok", "interact.sh", "oast.", "oastify.com",
    "burpcollaborator", "beeceptor.com", "hookbin.com", "dnslog.", "canarytokens", "requestcatcher",
    "serveo.net", "trycloudflare.com", "transfer.sh", "ceye.io", "loca.lt", "localhost.run",
    "webhook.cool", "postb.in", "mockbin", "pastebin.com", "0x0.st", "file.io", "paste.ee",
)  # fmt: skip
_METADATA = ("169.254.169.254", "metadata.google.internal", "100.100.100.200", "fd00:ec2::254")
_NEAR = 200  # characters before code in which the sign of a link may stand


def find_links(text: str) -> Iterator[RuleHit]:
    """All hits of the addresses in a text."""
    yield from keep_gravest(_judge_code(text, match) for match in _CODE.finditer(text))
    for name in _METADATA:
        at = text.find(name)
        if at >= 0:
            yield build_hit("internal_address", at, at + len(name))
            break
    if "://" not in text:
        return
    for pattern in (_IMAGE, _HTML_IMAGE):
        for image in pattern.finditer(text):
            if _find_slots(image[1]):
                yield build_hit("image_with_data", *image.span())
    for url in _URL.finditer(text):
        yield from _judge_link(url[0].rstrip(".,;:!?)]}'\""), url[0], url.start())


def find_hosts(text: str) -> set[str]:
    """The hosts of all addresses in a text."""
    return {host for url in _URL.findall(text) if (host := _read_host(url))}


def _judge_code(text: str, match: re.Match[str]) -> RuleHit:
    before = text[max(0, match.start() - _NEAR) : match.start()].rstrip(" \"'")
    in_link = before.endswith(("](", "href=", "src="))
    return build_hit("code_link", *match.span(), "" if in_link else MEDIUM)


def _judge_link(url: str, full: str, start: int) -> Iterator[RuleHit]:
    end = start + len(url)
    slot = _find_slots(full)
    host = _read_host(url)
    caught = any(name in host for name in _CATCHERS)
    if slot and (caught or not _FIRM.isdisjoint(slot)):
        yield build_hit("link_with_data", start, start + len(full))
    elif caught:
        yield build_hit("request_catcher", start, end)
    authority = url.split("://", 1)[1].split("/", 1)[0]
    name, at, _ = authority.partition("@")
    if at and "." in name:
        yield build_hit("disguised_link", start, end)
    elif host.startswith("xn--") or ".xn--" in host or not host.isascii():
        yield build_hit("disguised_link", start, end, LOW)
    elif host.isdigit() or host.startswith("0x") or _is_public_number(host):
        yield build_hit("disguised_link", start, end, LOW if "." in host else MEDIUM)


def _find_slots(url: str) -> set[str]:
    """Words of the places in an address that wait for personal data."""
    slots = [match[1] for match in _SLOT.finditer(url)]
    slots += [match[1] for match in _BARE_SLOT.finditer(url)]
    return {
        word for name in slots for word in split_words(name, name=True).words if word in _PERSONAL
    } | {word for name in slots for word in split_words(name.lower()).words if word in _PERSONAL}


def _read_host(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").casefold()
    except ValueError:
        return ""


def _is_public_number(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_global
    except ValueError:
        return False


# In two pieces each, so that no one who looks for keys takes them for some.
_SAMPLES = frozenset(
    (
        "sk_test_" + "4eC39HqLyjWDarjtT1zdp7dc",  # docs.stripe.com
        "sk_test_" + "BQokikJOvBiI2HlWgH4olfQ2",  # docs.stripe.com, the older one
    )
)
_JOHN = b64encode(b'{"sub":"1234567890","name":"John Doe"').decode()  # whom jwt.io's tokens name
_JOHN_DOE = "." + _JOHN[:49]  # what follows him decides the last letter
_ID = re.compile(
    r"pk_(?!\d{1,20}_[A-Z0-9]{16})"  # a publishable key; ClickUp's secret ones have a number there
    r"|AC[0-9a-f]{32}\Z"  # the id of an account at Twilio
    r"|re_[A-Za-z0-9]{24}\Z"  # the id of a refund at Stripe; Resend's keys have a second _
)


def find_secret_keys(text: str) -> Iterator[Span]:
    """Where keys stand that are one for certain and somebody's own."""
    for start, end in find_issued_keys(text):
        key = text[start:end]
        if not _is_sample(key) and not _ID.match(key):
            yield start, end


def _is_sample(key: str) -> bool:
    """AWS ends all its samples in EXAMPLE (docs.aws.amazon.com)."""
    john = key.startswith("eyJ") and _JOHN_DOE in key
    return john or key in _SAMPLES or key.endswith("EXAMPLE")


def find_neighbours(names: Sequence[str]) -> Iterator[tuple[int, RuleHit]]:
    """(index of the tool, hit) for every name but the first of those that look the same."""
    first_by_name: dict[str, int] = {}
    shapes: dict[str, int] = {}
    for index, name in enumerate(names):
        if not name:
            continue
        if name in first_by_name:
            yield index, build_hit("name_collision", 0, len(name))
            continue
        first_by_name[name] = index
        shape = fold_skeleton(name)
        first = shapes.setdefault(shape, index) if shape else index
        if first != index:
            severity = _choose_severity(names[first], name)
            why = "" if severity == HIGH else "differs from another tool's name in little"
            yield index, build_hit("name_lookalike", 0, len(name), severity, why)


def _choose_severity(first: str, other: str) -> str:
    """Letters of another script deceive; case, separators or digits are mostly poor taste."""
    if (
        fold_latin(first.casefold()) == fold_latin(other.casefold())
        and first.casefold() != other.casefold()
    ):
        return HIGH
    plain = ["".join(char for char in name.casefold() if char.isalnum()) for name in (first, other)]
    return LOW if plain[0] == plain[1] else MEDIUM


_ALLOWED = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_SENTENCE_END = compile_pattern(r"[.!?:;]\s+\S|[。！？]")
_LONGEST = 128
_MOST_WORDS = 7  # of 12,608 tools of real servers none has more than 5


def judge_tool_name(name: str) -> Iterator[RuleHit]:
    """One hit for a name outside [A-Za-z0-9_.-]{1,128} (MCP 2025-11-25): low for other characters,
    medium for a sentence or a long one, high for several lines. No name is no hit."""
    if not name or _ALLOWED.fullmatch(name):
        return
    whole = 0, len(name)
    if "\n" in normalise_breaks(name.strip()):
        why = "the name has several lines, as if we had written the later ones"
        yield build_hit("name_outside_spec", *whole, HIGH, why)
    elif len(name) > _LONGEST or len(name.split()) > _MOST_WORDS or _SENTENCE_END.search(name):
        why = "the name is long or reads as a sentence"
        yield build_hit("name_outside_spec", *whole, MEDIUM, why)
    else:
        yield build_hit("name_outside_spec", *whole)
