"""Filling: the arguments, variables, headers and address of a listing with typed placeholders."""

import os
import re
from collections.abc import Iterable
from pathlib import Path

from assets.marketplaces.listing import EnvVar, Header, Listing
from assets.servers.recipes.placeholders import DATA, holds_secret, make_value
from warehouse.sanitize.placeholders import find_placeholder, is_unfilled

Pairs = tuple[tuple[str, str], ...]

AUTHORS_PATH = re.compile(
    r"(?:/(?:Users|home|root|opt|absolute|path|mnt|var|srv)\b|~/|\./|[A-Za-z]:[\\/])"
)
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~\-]{1,100}")
# `{name}`, `{name:filepath}`, `${name}`, `${input:name}`, `<name>`
_BRACED = re.compile(
    r"\$?\{+(?:input:|env:|user_config\.)?(?P<name>[A-Za-z][\w.\-]*)(?::\w+)?\}+"
    r"|<(?P<angled>[A-Za-z][^<>]{0,80})>"
)
_OPEN_PART = re.compile(r"(?i)\$?\{[^{}]*\}|<[^<>]*>|\byour[_\-]?\w+(?:-\w+)*|\bx{3,}\b")
_SENT = re.compile(r"\(sent as '([^']{1,200})'\)")


def fill_arguments(
    args: tuple[str, ...],
    *,
    context: str = "",
    placeholders: bool = True,
    folder: str | None = None,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(arguments with their places filled in, which of them are made up: `arg:0`). folder: of this
    host, whose paths are real ones."""
    filled: list[str] = []
    made_up: list[str] = []
    for text in args:
        value = _fill_argument(text, filled[-1] if filled else "", context, folder)
        if value == text:
            filled.append(text)
        elif placeholders:
            made_up.append(f"arg:{len(filled)}")
            filled.append(value)
        elif filled and filled[-1].startswith("-") and not text.startswith("-"):
            filled.pop()  # the option whose value is left out
    return tuple(filled), tuple(made_up)


def _fill_argument(text: str, before: str, context: str, folder: str | None) -> str:
    option, equals, value = text.partition("=")
    named = option if equals and option.startswith("-") else ""
    place = find_placeholder(text) or (find_placeholder(value) if named else None)
    if place or (is_unfilled(text) and not AUTHORS_PATH.match(value if named else text)):
        name = named or (before if before.startswith("--") else "")
        whole = value if named else text
        filled = _fill_template(whole, name, place, context)
        return f"{option}={filled}" if named else filled
    if _is_authors(value if named else text, folder) and text != DATA:
        return f"{option}={DATA}" if named else DATA
    return text


def _is_authors(text: str, folder: str | None) -> bool:
    """Whether it is a path of another machine, or one outside of the folder that is real."""
    if folder is None or not AUTHORS_PATH.match(text):
        return bool(AUTHORS_PATH.match(text))
    path = os.path.normpath(os.path.join(folder, os.path.expanduser(text)))
    return not Path(path).is_relative_to(folder)


def _fill_template(text: str, option: str, place: tuple[str, str] | None, context: str) -> str:
    """A text with its braces filled in, or one value for all of it where it has none."""

    def one(name: str) -> str:
        known = option if option and not holds_secret(name) and holds_secret(option) else name
        kind = place[1] if place and place[1] in ("number", "boolean", "filepath") else None
        return make_value(known, option.strip("-"), kind, context=context)

    if "://" in text and re.match(r"[a-z][a-z0-9+.\-]*://", text) and _OPEN_PART.search(text):
        return _OPEN_PART.sub("placeholder", text)  # the rest of the address is the author's
    if _BRACED.search(text):
        return _BRACED.sub(lambda found: one(found["name"] or found["angled"]), text)
    return one(option.strip("-") or (place[0] if place else text))


def fill_environment(
    variables: Iterable[EnvVar],
    *,
    context: str = "",
    placeholders: bool = True,
    folder: str | None = None,
) -> tuple[Pairs, Pairs, tuple[str, ...]]:
    """(variables, optional ones that a second try may use, which of either are made up). folder:
    as of `fill_arguments`."""
    env: dict[str, str] = {}
    spare: dict[str, str] = {}
    made_up: list[str] = []
    for variable in variables:
        name, default = variable.name, variable.default
        if not _ENV_NAME.fullmatch(name):
            continue
        given = default is not None and default != "" and not is_unfilled(default)
        if given and default and not _is_authors(default, folder):
            env[name] = default
        elif placeholders:
            needed = variable.required or variable.secret
            target = env if needed or given else spare
            value = make_value(name, variable.description, context=context)
            target[name] = DATA if given else value
            made_up.append(f"env:{name}")
    return tuple(sorted(env.items())), tuple(sorted(spare.items())), tuple(sorted(made_up))


def fill_headers(
    headers: Iterable[Header], *, context: str = "", placeholders: bool = True
) -> tuple[Pairs, tuple[str, ...]]:
    """(headers to send, which are made up: `header:NAME`). An optional one without a value is not
    sent."""
    sent: dict[str, str] = {}
    made_up: list[str] = []
    for header in headers:
        if not _HEADER_NAME.fullmatch(header.name):
            continue
        if header.default and not is_unfilled(header.default) and header.default.isprintable():
            sent[header.name] = header.default
        elif placeholders and (header.required or header.secret):
            sent[header.name] = _fill_header(header, context)
            made_up.append(f"header:{header.name}")
    return tuple(sorted(sent.items())), tuple(sorted(made_up))


def fill_address(
    url: str, *, context: str = "", placeholders: bool = True
) -> tuple[str | None, tuple[str, ...]]:
    """(the URL with its `{variables}` filled in, which are made up: `url:NAME`); no URL where one
    is left and nothing may be made up."""
    made_up: list[str] = []

    def put(found: re.Match[str]) -> str:
        name = found["name"] or found["angled"]
        made_up.append(f"url:{name}")
        value = make_value(name, None, context=context)
        # A place in a host or path takes no other address.
        return re.sub(r"[^A-Za-z0-9._~\-]+", "-", value.partition("://")[2] or value)

    filled = _BRACED.sub(put, url)
    if made_up and not placeholders:
        return None, ()
    return filled, tuple(sorted(set(made_up)))


def _fill_header(header: Header, context: str) -> str:
    """`Bearer …` where the listing says how the secret is sent, or the name does."""
    sent = _SENT.search(header.description or "")
    about = _SENT.sub("", header.description or "")
    if sent and _BRACED.search(sent[1]):
        form = sent[1]
        return _BRACED.sub(
            lambda place: make_value(
                place["name"] or place["angled"], about, context=f"{context} {header.name}"
            ),
            form,
        )
    value = make_value(header.name, header.description, context=context).replace("\n", "")
    return f"Bearer {value}" if header.name.lower() == "authorization" else value


def describe_provider(listing: Listing) -> str:
    """What names the provider besides a variable: the package or the host, never the
    marketplace's words (two listings of one server give one recipe)."""
    if listing.package:
        return listing.package.identifier
    return (listing.url or "").partition("://")[2].partition("/")[0]
