"""Arguments: what a server.json puts on a command line, as words."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from packaging.utils import canonicalize_name

from assets.marketplaces.launch.runners import CONTAINER_VALUED, UV_VALUED, parse_image
from assets.marketplaces.server_json.inputs import (
    InputValue,
    fill,
    is_needed,
    is_secret,
    read_stated,
    read_string,
    require_objects,
)
from warehouse.sanitize.redact import redact

A_COPY = "the arguments start a copy of the source, not the package"
_OPTION = re.compile(r"\s+(?=--?[A-Za-z])")
_SWITCHES = {"-i", "-t", "-it", "-ti", "-d", "--rm", "--init", "--interactive", "--tty",
             "--privileged", "--read-only"}  # fmt: skip
_OF_A_CLONE = ("--directory", "--project")


@dataclass(frozen=True)
class ArgumentWords:
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


def split_arguments(kind: str, identifier: str, words: tuple[str, ...]) -> ArgumentWords:
    """The arguments of a package of such a record."""
    if kind == "oci":
        return _split_container(identifier, words)
    if kind == "pypi":
        return _split_python(identifier, words)
    return ArgumentWords((), words)


def _split_container(identifier: str, words: tuple[str, ...]) -> ArgumentWords:
    """`-i --rm -e NAME owner/image --own`: the image stands where `docker run` wants it."""
    at = _find_end_of_options(words, CONTAINER_VALUED, _SWITCHES)
    options, rest = words[:at], words[at:]
    found = parse_image(rest[0]) if rest and not rest[0].startswith("-") else None
    same = found is not None and found.identifier.endswith(identifier)
    kept = tuple(word for word in options if word not in ("-i", "--rm"))
    options = ("run", "-i", "--rm", *kept) if options else ()
    if found is None or not (options or same or parse_image(identifier) is None):
        return ArgumentWords(options, rest)
    return ArgumentWords(options, rest[1:], rest[0])


def _split_python(identifier: str, words: tuple[str, ...]) -> ArgumentWords:
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
        return ArgumentWords((), words, reason=reason)
    if canonicalize_name(first) == canonicalize_name(identifier):
        own = own[1:]
    pairs = list(zip(options[::2], options[1::2], strict=False))
    kept = [
        pair
        for pair in pairs
        if pair[0] != "--with" or canonicalize_name(pair[1]) != canonicalize_name(identifier)
    ]
    return ArgumentWords(tuple(word for pair in kept for word in pair), own)


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


_WHOLE_OPTION = re.compile(r"--?[A-Za-z][\w\-]* +[^\s\-]")  # `-m module` as one text
_FORMATS = ("string", "number", "boolean", "filepath")


@dataclass(frozen=True)
class PackageArguments:
    """Words of a command line; one the user must supply stands as `{name:format}`."""

    words: tuple[str, ...] = ()
    needs_account: bool = False


def read_arguments(found: Any, what: str) -> PackageArguments:
    """Arguments of server.json as words. An optional one without a value is left out. Raises
    ValueError where they are not a list of objects."""
    words: list[str] = []
    account = False
    for item in require_objects(found, what):
        argument = _read_argument(item)
        words += argument.words
        account = account or argument.needs_account
    return PackageArguments(_strip_secrets(words), account)


def _read_argument(one: Mapping[str, Any]) -> PackageArguments:
    name, value = read_string(one.get("name")), read_stated(one)
    named = one.get("type") == "named" or (one.get("type") != "positional" and bool(name))
    label = read_string(one.get("valueHint")) or name
    asked = is_needed(one)
    kind = read_string(one.get("format"))
    looks = redact(value) != value  # `NAME=secret`: the word is cleaned, not replaced
    secret = is_secret(label, one.get("isSecret"), "" if looks else value, kind)
    filled = fill(value, one.get("variables"))
    account = (secret and (asked or bool(filled.open))) or (filled.secret and filled.required)
    if filled.open and one.get("isRequired") is False and not filled.required:
        return PackageArguments()
    if secret and value and not filled.open and value != label:  # `-e API_KEY` says a name
        word: str | None = make_place(label, kind)
    elif value:
        word = _read_typed(filled, one.get("variables"))
    else:
        word = make_place(label, kind) if asked else None
    if not named:
        whole = word is not None and word == value and _WHOLE_OPTION.match(word)
        return PackageArguments(
            tuple(make_option_words(word or "")) if whole else (word,) if word is not None else (),
            account,
        )
    if word is None:
        return PackageArguments((name,) if _is_switch(one) else (), account)
    if value == name and value:  # the oldest records repeat the whole option as its value
        return PackageArguments(tuple(make_option_words(value)), account)
    return PackageArguments((name + word,) if name.endswith("=") else (name, word), account)


def make_place(label: str, kind: str = "string") -> str:
    """`{name:format}`, the place of a value that the user must supply."""
    name = re.sub(r"\W+", "_", label.lstrip("-")).strip("_")
    name = name if name[:1].isalpha() else f"value_{name}".rstrip("_")
    return f"{{{name}:{kind if kind in _FORMATS else 'string'}}}"


def _read_typed(filled: InputValue, variables: Any) -> str:
    """The filled template with the format of each open variable: `dir={path:filepath}`."""
    word = filled.text
    for name in filled.open:
        kind = read_string(variables[name].get("format"))
        if kind in _FORMATS:
            word = word.replace(f"{{{name}}}", f"{{{name}:{kind}}}")
    return word


def _is_switch(one: Mapping[str, Any]) -> bool:
    """An option without a value, such as `--verbose`: nothing about it speaks of a value."""
    about = ("isRequired", "valueHint", "placeholder", "choices", "variables", "isSecret", "format")
    return bool(one.get("name")) and all(one.get(key) is None for key in about)


def _strip_secrets(words: list[str]) -> tuple[str, ...]:
    """The words redacted, and a value that follows `--api-key` or stands in `API_KEY=…` replaced
    by a place: no pattern can tell a short key by its looks."""
    made: list[str] = []
    for word in words:
        before = made[-1] if made else ""
        name, equals, value = word.partition("=")
        if before.startswith("--") and "=" not in before and _is_holding_secret(before, word):
            made.append(make_place(before))
        elif (
            equals and re.fullmatch(r"-{0,2}[\w\-]{1,80}", name) and _is_holding_secret(name, value)
        ):
            made.append(f"{name}={make_place(name)}")
        else:
            made.append(redact(word))
    return tuple(made)


def _is_holding_secret(name: str, value: str) -> bool:
    plain = value and not value.startswith("-") and not re.search(r"[{<$]|\[redacted\]", value)
    return bool(plain) and is_secret(name, None, value)
