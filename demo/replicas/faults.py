"""Faults: which misbehaviours can be switched on, for which site, and how they are written."""

from collections.abc import Iterable, Mapping

from demo.world.catalogue import MARKETPLACES

SITES = (*MARKETPLACES, "files")

# kind -> (what it does, the value it has without one; "" for none)
KINDS: Mapping[str, tuple[str, str]] = {
    "down": ("connections are refused", ""),
    "truncated": ("the last page of a list breaks off in the middle, with status 200", ""),
    "empty": ("lists hold nothing, with status 200; `body`: not even a body", ""),
    "html": ("a page of a protective proxy in place of the data, with status 200", ""),
    "missing_key": ("the member that holds the list has another name", ""),
    "error500": ("status 500; with a value: that many times", "always"),
    "cursor_loop": ("the next page is the same page for ever", ""),
    "duplicates": ("the first tenth of a list comes again at its end", ""),
    "gzip_bomb": ("a small body that unpacks to so many MiB", "256"),
    "broken_gzip": ("a compressed body with a wrong byte in it", ""),
    "huge_description": ("the first record's description has so many MB", "10"),
    "bad_utf8": ("titles hold bytes that are not UTF-8", ""),
    "hidden_text": ("titles hold bidirectional and zero-width characters", ""),
    "storm429": ("so many answers are 429 with Retry-After", "5"),
    "rate_limit": ("429 with Retry-After above so many requests a second", "10"),
    "redirect_private": ("302 to a link-local address", ""),
    "redirect_away": ("302 to another host", ""),
    "robots_disallow": ("robots.txt forbids this path", "/"),
    "crawl_delay": ("robots.txt asks for so many seconds between requests", "1"),
    "layout": ("records tell no way to launch them any more", ""),
    "skew": ("records were last edited so many years ahead", "30"),
    "latency": ("every answer takes so many milliseconds", "50"),
    "no_validators": ("answers carry neither ETag nor Last-Modified", ""),
    "no_sitemap": ("there is no sitemap", ""),
    "wrong_key": ("the right key is refused, and so is none", ""),
}
_NUMBERS = frozenset(
    ["gzip_bomb", "huge_description", "storm429", "rate_limit", "crawl_delay", "skew", "latency"]
)


def parse_faults(text: str | Iterable[str]) -> dict[str, str]:
    """`registry=truncated,mcpso=latency:50` as a mapping site -> `kind[:value]`; several kinds of
    a site are joined by `+`. Raises ValueError naming what is unknown."""
    texts = [text] if isinstance(text, str) else text
    found: dict[str, str] = {}
    for part in (part for one in texts for part in one.split(",") if part.strip()):
        site, _, kind = (piece.strip() for piece in part.partition("="))
        found[site] = f"{found[site]}+{kind}" if site in found else kind
    return check_faults(found)


def check_faults(faults: Mapping[str, str]) -> dict[str, str]:
    """The faults, if every site, kind and value exists. Raises ValueError."""
    for site, text in faults.items():
        if site not in SITES:
            raise _make_unknown(site, text)
        parse_switches(site, text)
    return dict(faults)


def parse_switches(site: str, text: str | None) -> dict[str, str]:
    """kind -> value of one site's faults. Raises ValueError."""
    found: dict[str, str] = {}
    for part in (text or "").split("+") if text is not None else ():
        kind, _, value = (piece.strip() for piece in part.partition(":"))
        if kind not in KINDS:
            raise _make_unknown(site, part)
        found[kind] = value or KINDS[kind][1]
        if kind in _NUMBERS and not _is_positive(found[kind]):
            raise ValueError(f"fault {site}={kind}:{value}: expected a number above 0")
        if kind == "error500" and value and not value.isdecimal():
            raise ValueError(f"fault {site}={kind}:{value}: expected a whole number")
    return found


def _make_unknown(site: str, text: str) -> ValueError:
    return ValueError(
        f"fault {site}={text} does not exist; sites: {', '.join(SITES)}; kinds: {', '.join(KINDS)}"
    )


def _is_positive(text: str) -> bool:
    try:
        return 0 < float(text) < 1e9
    except ValueError:
        return False
