"""Links: addresses that carry data away, pretend to be others, or run code."""

import ipaddress
import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from assets.contracts.scan.finding import LOW, MEDIUM, Hit, build_hit, keep_gravest
from assets.contracts.scan.text.normalise import collect_words, split_words

_URL = re.compile(r"\b(?:https?|ftp|wss?)://[^\s<>\"'`|\\^]{1,2000}", re.IGNORECASE)
_IMAGE = re.compile(r"!\[[^\]\n]{0,200}\]\(\s{0,4}(https?://[^\s)]{1,2000})", re.IGNORECASE)
_HTML_IMAGE = re.compile(
    r"<(?:img|iframe|script)\s[^>]{0,200}?src\s?=\s?[\"']?(https?://[^\s\"'>]{1,2000})",
    re.IGNORECASE,
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


def find_links(text: str) -> Iterator[Hit]:
    """All hits of the addresses in a text."""
    yield from keep_gravest(_judge_code(text, found) for found in _CODE.finditer(text))
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


def _judge_code(text: str, found: re.Match[str]) -> Hit:
    before = text[max(0, found.start() - _NEAR) : found.start()].rstrip(" \"'")
    in_link = before.endswith(("](", "href=", "src="))
    return build_hit("code_link", *found.span(), "" if in_link else MEDIUM)


def _judge_link(url: str, full: str, start: int) -> Iterator[Hit]:
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
    named = [found[1] for found in _SLOT.finditer(url)]
    named += [found[1] for found in _BARE_SLOT.finditer(url)]
    return {
        word for name in named for word in split_words(name, name=True).words if word in _PERSONAL
    } | {word for name in named for word in split_words(name.lower()).words if word in _PERSONAL}


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
