"""Credentials that show by their form. Every pattern is linear (possessive or bounded runs);
prefixes are looked for in runs of 16 characters and more, some 5% of a page."""

import hashlib
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from warehouse.sanitize.secret_names import is_credible, is_place

Span = tuple[int, int]

_JUDGED = 400  # characters of a run by which a form is judged
_RUN = re.compile(r"[A-Za-z0-9_\-.:~=]{16,}+")
_DRAWN = re.compile(r"[A-Za-z0-9]{10,}+")
# What may stand before a short prefix: no letter or digit, or the end of an escape.
_EDGE = (
    r"(?:(?<![A-Za-z0-9])|(?<=%[0-9A-Fa-f]{2})|(?<=\\[nrtbf])|(?<=%5[Cc][nrt])"
    r"|(?<=\\u[0-9A-Fa-f]{4}))"
)
_BODY = r"[A-Za-z0-9_\-]"
_LONG = rf"(?=[\w\-]{{0,24}}[A-Za-z0-9_]{{16}}|[\w\-]{{40}}){_BODY}{{16,}}+"

_FAMILIES = {  # the rest of the secret -> the prefixes that announce it
    rf"{_BODY}{{10,}}+(?:\.{_BODY}{{6,}}+)*+=*+": (
        "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_ glpat- gldt- glrt- glptt- glcbt- glft- glsoat-"
        " glimt- glagent- xoxa- xoxb- xoxc- xoxd- xoxe- xoxo- xoxp- xoxr- xoxs- xoxe. xapp- AIzaSy"
        " GOCSPX- ya29. lin_api_ lin_oauth_ sbp_ sb_secret_ tvly- pcsk_ gsk_ pplx- dop_v1_ doo_v1_"
        " dor_v1_ ATATT3 ATCTT3 ATBB pypi-AgEI pypi-AgEN dckr_pat_ dckr_oat_ PMAK- figd_ figu_"
        " HRKU- sntrys_ sntryu_ glsa_ glc_ shpat_ shpss_ shpca_ shppa_ sq0atp- sq0csp- dp.pt."
        " hvs. hvb. apify_api_ NRAK- CFPAT- nfp_ rnd_ pscale_tkn_ pscale_pw_ pscale_oauth_"
        " phx_ lsv2_pt_ lsv2_sk_ nvapi- jina_ e2b_ AGE-SECRET-KEY- CCIPAT_ bkua_ pul- tfp_ whsec_"
        " sk_live_ sk_test_ rk_live_ rk_test_ sk-ant- sk-proj- sk-or- sk-svcacct- sk-admin- sk-lf-"
        " sk-ak- pat-na1- pat-eu1- fo1_ fm2_ xau_ atlasv1. api_org_ AKCp re_live_ bb_live_ bb_test_"
        " vck_ vcp_ vca_ vercel_blob_rw_ rubygems_ tskey- ops_eyJ"
    ),
    rf"{_EDGE}{_LONG}(?:\.{_BODY}{{6,}}+)*+": (
        "sk- sk_ rk_ hf_ npm_ ntn_ secret_ r8_ fc- xai- BSA key- AIza re_ pk_ napi_ ak_ fw_ pa-"
        " LTAI AKID dapi"
    ),
    rf"[0-9A-Z]{{16}}{_BODY}*+": "AKIA ASIA ABIA ACCA",
    rf"{_BODY}{{16,}}+\.{_BODY}{{16,}}+": "SG.",
    rf"(?:{_BODY}{{2,35}}\.)?+{_BODY}{{24,}}+": "dp.st.",
    rf"[0-9a-f]{{32}}{_BODY}*+": "SK AC",
    rf"[A-Za-z0-9]{{14}}\.[0-9a-f]{{40,}}+{_BODY}*+": "pat",
    rf"{_BODY}{{8,}}+\.{_BODY}{{8,}}+(?:\.{_BODY}*+)*+": "eyJ",  # JWT
}
_FORMS = {
    prefix: re.compile(
        # Behind a letter the prefix may be the end of a word: then only a long mixed run will do.
        rf"(?:{_EDGE}|(?={re.escape(prefix)}[\w\-]{{0,24}}[A-Za-z0-9]{{24}})){re.escape(prefix)}"
        + rest.removeprefix(_EDGE)
        if rest.startswith(_EDGE)
        else re.escape(prefix) + rest
    )
    for rest, prefixes in _FAMILIES.items()
    for prefix in prefixes.split()
}
# A prefix that contains another (sk-ant-, sk-) announces both forms.
_TRIED = {
    prefix: [
        (other, form)
        for other, form in sorted(_FORMS.items(), key=lambda one: -len(one[0]))
        if prefix.startswith(other)
    ]
    for prefix in _FORMS
}
_LOOSE = frozenset(next(iter(_FAMILIES.values())).split())  # announced by the prefix alone
_PREFIX = re.compile("|".join(re.escape(one) for one in sorted(_FORMS, key=len, reverse=True)))
_SHAPES = (  # (a text without which the shape cannot be, the shape)
    (":AA", re.compile(r"\d{8,10}:AA[\w\-]{30,}+")),  # Telegram
    ("3AAA", re.compile(r"(?<=%3A)AA[\w\-]{30,}+")),
    (".", re.compile(r"[MNO][\w\-]{22,27}\.[\w\-]{6}\.[\w\-]{27,}+")),  # Discord
    ("-us", re.compile(r"(?<![0-9a-f])[0-9a-f]{32}-us\d{1,2}(?!\w)")),  # Mailchimp
    ("Q~", re.compile(r"[\w.~\-]{3}\dQ~[\w.~\-]{31,}+")),  # Entra
    (":", re.compile(r"(?<=[012]/)\d{16}:[0-9a-f]{32}")),  # Asana
)
_HOOKS = re.compile(
    r"(hooks\.slack\.com\\*+/(?:services|workflows|triggers)\\*+/|/api\\*+/webhooks\\*+/\d{1,30}\\*+/"
    r"|api\.telegram\.org\\*+/bot)([\w\-:/\\]{16,}+)"
)
_PEM = re.compile(
    r"-----BEGIN(?:[A-Z0-9 +]|%20){0,60}-----"
    r"(?:[A-Za-z0-9+/=\s:,.]|-(?!----)|\\++[nrt/]|%[0-9A-Fa-f]{2}|&#x?[0-9a-fA-F]{1,4};)*+"
    r"(?:-----END[A-Z0-9 %+]{0,60}-----)?"
)
_LINE = r"(?:\s|\\{1,15}[nrt])"
_PUTTY = re.compile(
    rf"Private-Lines: ?\d{{1,4}}{_LINE}{{1,9}}+"
    r"([A-Za-z0-9+/=]{20,64}(?:[A-Za-z0-9+/=\s]|\\{1,15}[nrt])*+(?:-MAC: ?[0-9a-f]{40,64})?+)"
)
_REFRESH = re.compile(r"(?<![\w/])1(?://|\\/\\/|%2[Ff]%2[Ff])0[\w\-]{30,}+")  # of Google
_WRITTEN = r"[^\s\\\"'<>\x00]{1,255}+"
_NETRC = re.compile(
    rf"\b(?:machine{_LINE}{{1,9}}+{_WRITTEN}|default){_LINE}{{1,9}}+"
    rf"(?:(?:login|account){_LINE}{{1,9}}+{_WRITTEN}{_LINE}{{1,9}}+){{0,2}}"
    rf"password{_LINE}{{1,9}}+({_WRITTEN})"
)
_BCRYPT = re.compile(r"\$2[abxy]?\$\d\d\$[./A-Za-z0-9]{53}")
# The values of cookies that hold a session, by the names that frameworks give them.
_ASSIGNED = re.compile(r"(?:=|%3D)([^\s;,&\"'`<>\\=\x00]{16,512}+={0,2}+)")
_SESSION = re.compile(r"(?i)(?:sess(?:ion)?(?:[_\-]?id)?|\bsid|csrftoken|xsrf-token)$")
_PHRASE = re.compile(r"(?<![a-z])(?:[a-z]{3,8}+(?:[ \t\r\n,]{1,3}+|(?![a-z \t\r\n,]))){12,}+")
_PHRASE_LENGTHS = (24, 21, 18, 15, 12)
_USERINFO = re.compile(
    r"(?::(?:\\*+/){2}|%3A%2F%2F)"
    r"(?:([^\s/?\"'<>\\\x00]{1,600})@|([^\s/?\"'<>\\\x00]{1,300}?)%40)"
)
# Gateways that carry a user's credential as a segment of the path.
_HOSTS = (
    *("zapier.com", "composio.dev", "pipedream.net", "klavis.ai", "gumloop.com", "make.com"),
    *("viasocket.com", "n8n.cloud", "activepieces.com"),
)
_GATEWAYS = re.compile(rf"(?:{'|'.join(map(re.escape, _HOSTS))})(?::\d{{1,5}})?(?=\\*+/)")
_SEGMENT = re.compile(r"[\w.~=%+:\-]{16,}+")
_UUID = re.compile(r"(?<![0-9A-Za-z])[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?!\w)")
_URL_END = re.compile(r"[\s\"'`<>\x00?#]|&quot;|&#3[49];|\\{1,15}u0022")
_ASSET = re.compile(
    r"\.(?:mcpb|dxt|zip|t?gz|whl|png|jpe?g|gif|svg|webp|avif|ico|mp4|webm|pdf)\b", re.IGNORECASE
)


def find_credentials(text: str) -> Iterator[Span]:
    """Where secrets stand in a text that are known by their form; the spans may overlap."""
    for run in _RUN.finditer(text):
        yield from _find_in_run(text, *run.span())
    yield from _find_private_keys(text)
    if "@" in text or "%40" in text:
        # The password of `scheme://user:password@host`, or a token that stands alone before the @.
        for match in _USERINFO.finditer(text):
            group = 1 if match[1] is not None else 2
            start, end = match.span(group)
            who, colon, password = match[group].partition(":")
            if not colon:
                who, colon, password = match[group].partition("%3A")
            if text.startswith("sha256:", match.end()):
                continue  # image:tag@sha256:…
            # `user:password@host` as the pattern of a connection string.
            if (
                colon
                and password
                and not is_place(password)
                and not (who.lower().startswith("user") and password.lower().startswith("pass"))
            ):
                yield start + len(who) + len(colon), end
            elif not colon and not is_place(who) and is_credible(who, 12):
                yield start, end
    if "hooks.slack.com" in text or "/webhooks" in text or "api.telegram.org" in text:
        yield from (match.span(2) for match in _HOOKS.finditer(text) if is_credible(match[2]))
    yield from _find_marked(text)
    done = 0
    hosted = any(host in text for host in _HOSTS)
    for gateway in _GATEWAYS.finditer(text) if hosted else ():
        if gateway.end() >= done:
            yield from _find_segments(text, gateway.end())
            done = gateway.end() + _JUDGED


def find_issued_keys(text: str) -> Iterator[Span]:
    """Where keys stand that are one for certain: an issuer's prefix and digits behind it, or a
    private key. For texts that are handed on to who asked for them, as what a tool answered."""
    for run in _RUN.finditer(text):
        for start, end in _find_prefixed(text, *run.span()):
            if _is_drawn(text[start : min(end, start + _JUDGED)]):
                yield start, end
    yield from _find_private_keys(text)


def _find_private_keys(text: str) -> Iterator[Span]:
    """Private keys in PEM or of PuTTY, and refresh tokens of Google."""
    if "BEGIN" in text:
        yield from (match.span() for match in _PEM.finditer(text) if _is_private(match[0]))
    if "Private-Lines" in text:
        yield from (match.span(1) for match in _PUTTY.finditer(text))
    if any(sign in text for sign in ("1//0", "1\\/\\/0", "1%2F%2F0", "1%2f%2f0")):
        yield from (match.span() for match in _REFRESH.finditer(text))


def _find_marked(text: str) -> Iterator[Span]:
    """Secrets that the words or signs around them mark: of .netrc, bcrypt, sessions, BIP 39."""
    if "password" in text and ("machine" in text or "default" in text):
        spans = (match.span(1) for match in _NETRC.finditer(text) if not is_place(match[1]))
        yield from spans
    if "$2" in text:
        yield from (match.span() for match in _BCRYPT.finditer(text))
    for match in _ASSIGNED.finditer(text):
        named = _SESSION.search(text[max(0, match.start() - 20) : match.start()])
        if named and is_credible(match[1], 16) and not is_place(match[1]):
            yield match.span(1)
    for run in _PHRASE.finditer(text):
        yield from _find_phrases(text, *run.span())


def _find_phrases(text: str, start: int, end: int) -> Iterator[Span]:
    """Recovery phrases of BIP 39: 12 to 24 words of its list, with a checksum in the last one."""
    places = _read_phrase_words()
    words = [match.span() for match in _PHRASE_WORD.finditer(text, start, end)]
    numbers = [places.get(text[begin:stop], -1) for begin, stop in words]
    at = 0
    while at <= len(numbers) - _PHRASE_LENGTHS[-1]:
        length = next((n for n in _PHRASE_LENGTHS if _is_phrase(numbers[at : at + n], n)), 0)
        if length:
            yield words[at][0], words[at + length - 1][1]
        at += length or 1


_PHRASE_WORD = re.compile("[a-z]++")


def _is_phrase(numbers: list[int], length: int) -> bool:
    if len(numbers) < length or min(numbers) < 0 or len(set(numbers)) < 6:
        return False  # a word said twelve times fits the checksum of one in sixteen
    bits = "".join(f"{number:011b}" for number in numbers)
    size = length * 11 * 32 // 33
    entropy = int(bits[:size], 2).to_bytes(size // 8, "big")
    checksum = f"{hashlib.sha256(entropy).digest()[0]:08b}"
    return bits[size:] == checksum[: length // 3]


@cache
def _read_phrase_words() -> dict[str, int]:
    lines = json.loads(Path(__file__).with_name("bip39.json").read_text(encoding="utf-8"))["words"]
    return {word: number for number, word in enumerate(" ".join(lines).split())}


def _is_drawn(key: str) -> bool:
    """Whether letters and digits stand mixed in it: 97 of 100 random texts of 20 hold a digit,
    words behind a prefix (`phx_glr_auto_examples`) do not."""
    return any(not (run.isalpha() or run.isdigit()) for run in _DRAWN.findall(key))


def _find_prefixed(text: str, start: int, end: int) -> Iterator[Span]:
    at = start
    while hint := _PREFIX.search(text, at, end):
        at = hint.end()
        for prefix, form in _TRIED[hint[0]]:
            # A form is judged by its first characters: a run of prefixes must not cost its square.
            match = form.match(text, hint.start(), min(end, hint.start() + _JUDGED))
            if match and not _is_made_up(match[0], prefix):
                at = match.end() if match.end() < hint.start() + _JUDGED else end
                yield hint.start(), at
                break


def _find_in_run(text: str, start: int, end: int) -> Iterator[Span]:
    yield from _find_prefixed(text, start, end)
    run = text[start:end]
    for sign, shape in _SHAPES:
        if sign in run:
            yield from (match.span() for match in shape.finditer(text, start, end))
    if run.count("-") >= 4:
        for match in _UUID.finditer(text, start, end):
            if _is_in_a_path(text, match.start()) and not _is_asset(text, match.end()):
                yield match.span()


def _is_in_a_path(text: str, at: int) -> bool:
    """Whether what begins at `at` is a segment of a URL's path."""
    head = text[max(0, at - 400) : at]
    if not head.endswith(("/", "%2F", "%2f")):
        return False
    origin = max(head.rfind(sign) for sign in ("://", ":\\/\\/", "%3A%2F%2F", ":\\\\/\\\\/"))
    return origin >= 0 and _URL_END.search(head, origin) is None


def _is_private(block: str) -> bool:
    """Whether a PEM block is a private key and not only the line that announces one."""
    _, head, body = block.split("-----", 2)
    return "PRIVATE" in head and re.search(r"[A-Za-z0-9+/]{4}", body.partition("-")[0]) is not None


def _is_made_up(secret: str, prefix: str) -> bool:
    """`sk-your-key-here`, `ghp_xxxx`, and a prefix that is only part of a word."""
    body = secret.removeprefix(prefix)
    if is_place(secret) or not set(body.lower()) - set("x-_*."):
        return True
    return prefix in _LOOSE and len(body) < 40 and not is_credible(body)


def _find_segments(text: str, start: int) -> Iterator[Span]:
    ends = _URL_END.search(text, start, start + _JUDGED)
    stop = ends.start() if ends else min(len(text), start + _JUDGED)
    for segment in () if _is_asset(text, start) else _SEGMENT.finditer(text, start, stop):
        if is_credible(segment[0], 16) and not is_place(segment[0]):
            yield segment.span()


def _is_asset(text: str, start: int) -> bool:
    """Whether the URL whose path goes on at `start` names a file: its id is no one's credential."""
    ends = _URL_END.search(text, start, start + 300)
    return _ASSET.search(text, start, ends.start() if ends else start + 300) is not None
