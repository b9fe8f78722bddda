"""Oldwords: arguments of records older than the registry's first dated schema."""

import re
from dataclasses import dataclass

from packaging.utils import canonicalize_name

from assets.marketplaces.launch.package_spec import parse_image
from assets.marketplaces.launch.runners import CONTAINER_VALUED, UV_VALUED

A_COPY = "the arguments start a copy of the source, not the package"
_OPTION = re.compile(r"\s+(?=--?[A-Za-z])")
_SWITCHES = {"-i", "-t", "-it", "-ti", "-d", "--rm", "--init", "--interactive", "--tty",
             "--privileged", "--read-only"}  # fmt: skip
_OF_A_CLONE = ("--directory", "--project")


@dataclass(frozen=True)
class Parted:
    """Arguments of the runner, the image among them, the server's own, and why they start no
    package."""

    runtime: tuple[str, ...]
    own: tuple[str, ...]
    image: str | None = None
    reason: str | None = None


def make_option_words(text: str) -> list[str]:
    """`--dir <my folder> --level 3` as options and their values; a value goes on to the next
    option, whatever blanks it holds."""
    words: list[str] = []
    for part in _OPTION.split(text.strip()):
        option, _, value = part.partition(" ")
        value = value.strip()
        if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1]
        words += [option, value] if value else [option]
    return words


def split_arguments(kind: str, identifier: str, words: tuple[str, ...]) -> Parted:
    """The arguments of a package of such a record."""
    if kind == "oci":
        return _split_container(identifier, words)
    if kind == "pypi":
        return _split_python(identifier, words)
    return Parted((), words)


def _split_container(identifier: str, words: tuple[str, ...]) -> Parted:
    """`-i --rm -e NAME owner/image --own`: the image stands where `docker run` wants it."""
    at = _find_end_of_options(words, CONTAINER_VALUED, _SWITCHES)
    options, rest = words[:at], words[at:]
    found = parse_image(rest[0]) if rest and not rest[0].startswith("-") else None
    same = found is not None and found.identifier.endswith(identifier)
    kept = tuple(word for word in options if word not in ("-i", "--rm"))
    options = ("run", "-i", "--rm", *kept) if options else ()
    if found is None or not (options or same or parse_image(identifier) is None):
        return Parted(options, rest)
    return Parted(options, rest[1:], rest[0])


def _split_python(identifier: str, words: tuple[str, ...]) -> Parted:
    """`--with x --python 3.13 entry`: options of `uv run`, and the entry that is the package's."""
    words = tuple(part for word in words for part in _split_apart(word))
    at = _find_end_of_options(words, UV_VALUED, set())
    options, own = words[:at], words[at:]
    clone = next((word for word in options if word in _OF_A_CLONE), None)
    first = own[0] if own else ""
    program = any(word.endswith(".py") for word in own[:2])
    if clone or program or re.match(r"(?:uv )?(?:run|python3?)\b", first):
        shown = " ".join(words)[:80]
        reason = f"{A_COPY}: {shown!r}"
        return Parted((), words, reason=reason)
    if canonicalize_name(first) == canonicalize_name(identifier):
        own = own[1:]
    pairs = list(zip(options[::2], options[1::2], strict=False))
    kept = [
        pair
        for pair in pairs
        if pair[0] != "--with" or canonicalize_name(pair[1]) != canonicalize_name(identifier)
    ]
    return Parted(tuple(word for pair in kept for word in pair), own)


def _split_apart(word: str) -> tuple[str, ...]:
    """`--with=x` as two words, so that options and values alternate."""
    option, equals, value = word.partition("=")
    return (option, value) if equals and option in UV_VALUED else (word,)


def _find_end_of_options(words: tuple[str, ...], valued: set[str], switches: set[str]) -> int:
    """Where the runner's own options end."""
    at = 0
    while at < len(words):
        option, equals, _ = words[at].partition("=")
        if option in valued:
            at += 1 if equals else 2
        elif option in switches:
            at += 1
        else:
            break
    return min(at, len(words))
