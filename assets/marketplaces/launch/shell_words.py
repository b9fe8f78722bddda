"""Words: a command line as words, with no secret in any of them."""

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from assets.marketplaces.listing import EnvVar
from warehouse.patterns import Match, compile_pattern
from warehouse.sanitize.redact import MARK, is_secret_name, redact, redact_json
from warehouse.sanitize.scrubber import has_password, is_unfilled, make_slug, make_template

_LONGEST = 20_000  # characters of a command line
_SHELLS = {"sh", "bash", "zsh", "dash", "fish", "powershell", "pwsh", "cmd"}
_SHELL_SYNTAX = compile_pattern(r"[;|&<>`\n\r]|\$\(|\$\{?\w*[`(]")
_SHELL_WORDS = {"&&", "||", ";", "|", "&", ">", ">>", "<", "<<", "2>&1"}
_ANGLED = re.compile(r"<([A-Za-z](?:[\w .\-]{0,100}\w)?)>(?=[\s\"'/,]|$)")
_WINDOWS = re.compile(
    r"((?:[A-Za-z]:[\\/]|\\\\|%\w+%\\)[^\"]*?(?:\.(?:exe|cmd|bat|ps1)(?=\s|$)|$))"
)
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)

# An option whose value is a secret: its last word names one.
_SECRET_OPTION = re.compile(
    r"(?i)--?(?:[\w\-]*[\-_])?(?:api-?key|key|token|secret|password|passwd|pwd|pat|credentials?"
    r"|connection[\-_]string|dsn)"
)
_HEADER = re.compile(r"\s*([\w\-]{1,100})\s*:\s*(.*)", re.DOTALL)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@dataclass(frozen=True)
class ShellLine:
    """A command line, split: `assigned` are the variables set before it; `secrets` says that the
    words ask for a secret (where one stood, a place to fill in stands now)."""

    words: tuple[str, ...] = ()
    assigned: tuple[tuple[str, str], ...] = ()
    secrets: bool = False
    reason: str | None = None  # why it cannot be read safely


def split(command: str | None, args: tuple[str, ...]) -> ShellLine:
    """A command and its arguments as words without secrets, or why they are refused."""
    if not command or not command.strip():
        return ShellLine(reason="no command")
    if len(command) + sum(map(len, args)) > _LONGEST:
        return ShellLine(reason=f"a command line of more than {_LONGEST:,} characters")
    excerpt = redact(command)[:80]
    try:
        words = [*_split(command.strip()), *args]
    except _ShellParser:
        return ShellLine(reason=f"shell syntax in the command {excerpt!r}; a shell is never used")
    except ValueError as error:
        return ShellLine(reason=f"the command {excerpt!r} cannot be split: {error}")
    words, assigned = _unwrap_shell(words)
    if not words or not words[0].strip():
        return ShellLine(reason="no command")
    if find_program(words[0]) in _SHELLS:
        return ShellLine(
            reason=f"the command is a shell ({words[0][:80]!r}); a shell is never used"
        )
    for word in words[1:]:
        if word in _SHELL_WORDS or "$(" in word or "`" in word or "\n" in word:
            excerpt = redact(word)[:80]
            return ShellLine(
                reason=f"shell syntax in the argument {excerpt!r}; a shell is never used"
            )
    clean_words, secrets = strip_secrets(words)
    return ShellLine(tuple(clean_words), tuple(assigned), secrets)


def find_program(word: str) -> str:
    """`/usr/bin/npx`, `C:\\node\\npx.cmd` -> "npx"."""
    name = re.split(r"[/\\]", word)[-1].lower()
    return re.sub(r"\.(?:exe|cmd|bat|ps1)$", "", name)


def strip_secrets(words: list[str]) -> tuple[list[str], bool]:
    """(words, whether they ask for one): a secret value becomes the place `{name}` to fill in; of
    a container's `-e NAME=secret` the name is left."""
    results: list[str] = []
    hosted = any("@smithery/cli" in word for word in words)
    container = find_program(words[0]) in ("docker", "podman") if words else False
    asks_secret = False
    before = ""
    for word in words:
        results.append(_strip_secret(word, before, hosted=hosted, container=container))
        asks_secret |= results[-1] != word or (
            not word.startswith("-") and "=" not in before and _is_secret_option(before, hosted)
        )
        asks_secret |= "=" in word and _is_secret_option(word.partition("=")[0], hosted)
        asks_secret |= has_password(word)
        before = word
    return results, asks_secret


def _strip_secret(word: str, before: str, *, hosted: bool, container: bool) -> str:
    option, equals, value = word.partition("=")
    if container and (before in ("-e", "--env") or option in ("-e", "--env")):
        return _find_passed_on(word, "" if before in ("-e", "--env") else option)
    if _is_secret_option(option, hosted) and option.startswith("-"):
        return f"{option}={{{make_slug(option)}}}" if equals and _is_literal(value) else word
    if _is_secret_option(before, hosted) and "=" not in before and not word.startswith("-"):
        return f"{{{make_slug(before)}}}" if _is_literal(word) else word
    header = _HEADER.fullmatch(word) if before.lower() in ("--header", "-h", "--headers") else None
    if header and _is_literal(header[2]) and (_is_secret(header[1], header[2])):
        return f"{header[1]}: {{{make_slug(header[1])}}}"
    if word.lstrip().startswith("{") and '"' in word:
        word = _strip_json_secrets(word)
    return make_template(word)


def _find_passed_on(word: str, option: str) -> str:
    """`NAME=value` of a container's `-e`; only the name where the value is the user's to give."""
    name, equals, value = (word.partition("=")[2] if option else word).partition("=")
    if equals and (is_unfilled(value) or not value or _is_secret(name, value)):
        return f"{option}={name}" if option else name
    return word


def _strip_json_secrets(word: str) -> str:
    try:
        value = json.loads(word)
        clean = redact_json(value)
        return word if clean == value else json.dumps(clean, ensure_ascii=False)
    except (ValueError, RecursionError):
        return word


def _is_secret(name: str, value: str) -> bool:
    return bool(_SECRET_OPTION.fullmatch("-" + _CAMEL.sub("-", name))) or (
        name.lower() in ("authorization", "cookie") or redact(value) != value or MARK in value
    )


def _is_secret_option(word: str, hosted: bool) -> bool:
    if hosted and word == "--profile":
        return True
    return bool(_SECRET_OPTION.fullmatch(_CAMEL.sub("-", word)))


def _is_literal(value: str) -> bool:
    return bool(value) and not is_unfilled(value)


class _ShellParser(Exception):
    """Shell syntax in a command."""


def _split(command: str) -> list[str]:
    """The words of a command string; a path of Windows, whose backslashes are not escapes, stays
    whole."""
    windows = _WINDOWS.match(command)
    head = [windows[1]] if windows else []
    tail = command[windows.end() :] if windows else command
    if _SHELL_SYNTAX.search(_ANGLED.sub("", tail)):
        raise _ShellParser
    return [*head, *shlex.split(_ANGLED.sub(r"'<\1>'", tail) if "'" not in tail else tail)]


def _unwrap_shell(words: list[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """The words without `cmd /c`, `env` and assignments in front; and these assignments."""
    assigned: list[tuple[str, str]] = []
    while words:
        name = find_program(words[0])
        if name == "cmd" and [word.lower() for word in words[1:2]] in (["/c"], ["/k"]):
            words = words[2:]
        elif name == "env" and len(words) > 1 and not words[1].startswith("-"):
            words = words[1:]
        elif len(words) > 1 and (match := _ASSIGNED.fullmatch(words[0])):
            assigned.append((match[1], match[2]))
            words = words[1:]
        else:
            break
    return words, assigned


_SENT = re.compile(r"(?i)\s*(?:bearer|basic)\s+\S")  # how a header carries a secret


def read_variables(declared: Any, kind: type[EnvVar]) -> list[Any]:
    """The variables of an `env` or `headers` object. A secret or an unfilled value becomes a
    required variable without a value; any other value is the default."""
    variables = {}
    pairs = list(_list_pairs(declared))
    stated = {spell_name(name): text for name, text in pairs if not _is_withheld(name, text)}
    for name, text in pairs:
        text = text if is_secret_name(name) else insert_values(text, stated)
        open_ = _is_open(name, text) or MARK in text
        secret = _is_secret_value(name, text)
        keep = not secret and not open_ and text
        variables[name] = kind(
            name=name, required=secret or open_, secret=secret, default=text if keep else None
        )
    return [variables[name] for name in sorted(variables)]


def _is_withheld(name: str, text: str) -> bool:
    return not text or _is_open(name, text) or _is_secret_value(name, text)


# `${NAME}`, `{name}`, `${env:NAME}`, `$NAME`
_REFERENCE = compile_pattern(
    r"\$?\{(?:env:)?(?P<braced>[A-Za-z_][\w\-]*)\}|\$(?P<shell>[A-Za-z_]\w*)"
)


def insert_values(text: str, values: Mapping[str, str]) -> str:
    """A text with the values of what it refers to, by `spell_name`; other places stay."""

    def put(match: Match) -> str:
        return values.get(spell_name(match["braced"] or match["shell"]), match[0])

    return _REFERENCE.sub(put, text) if values else text


def spell_name(name: str) -> str:
    """`--data-dir`, `DATA_DIR` -> "data_dir"."""
    return name.strip("-").replace("-", "_").lower()


def find_account_flags(inputs: tuple[EnvVar, ...]) -> set[str]:
    """{"needs_account"} where a secret is required."""
    return {"needs_account"} if any(item.secret and item.required for item in inputs) else set()


def make_text(value: Any) -> str:
    """A JSON value as a command line or a variable holds it: `true`, `8080`, "" for null."""
    if isinstance(value, str):
        return value
    try:
        return "" if value is None else json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return str(type(value).__name__)


def _list_pairs(declared: Any) -> Iterator[tuple[str, str]]:
    """(name, value) of an object, of a list of {name, value}, or of a list of "NAME=value"."""
    if isinstance(declared, Mapping):
        for name, value in declared.items():
            yield redact(str(name)), make_text(value)
    for item in declared if isinstance(declared, list) else ():
        if isinstance(item, str):
            name, _, value = item.partition("=")
            yield redact(name), value
        elif isinstance(item, Mapping) and isinstance(item.get("name") or item.get("key"), str):
            yield redact(str(item.get("name") or item.get("key"))), make_text(item.get("value"))


def _is_secret_value(name: str, text: str) -> bool:
    if text.lower() in ("true", "false"):
        return False  # AUTH_ENABLED
    if is_secret_name(name) or redact(text) != text or MARK in text:
        return True
    return bool(_SENT.match(text) or has_password(text)) or _is_of_secrets(text)


def _is_open(name: str, text: str) -> bool:
    """A value left to the user; many write the variable's own name for it."""
    return is_unfilled(text) or (text == name and name.upper() == name)


def _is_of_secrets(text: str) -> bool:
    """Whether a value is JSON with a secret in it, such as a set of headers."""
    if not text.lstrip().startswith(("{", "[")):
        return False
    try:
        values = [json.loads(text)]
    except (ValueError, RecursionError):
        return False
    while values:
        one = values.pop()
        if isinstance(one, dict):
            keys = [key for key, value in one.items() if isinstance(value, str) and value]
            if any(is_secret_name(key) for key in keys):
                return True
        values += one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
    return False


def find_value_flags(declared: Any) -> set[str]:
    """{"placeholder"} where a value is left to the user."""
    pairs = list(_list_pairs(declared))
    stated = {spell_name(name): text for name, text in pairs if not _is_withheld(name, text)}
    is_open = any(_is_open(name, insert_values(text, stated)) for name, text in pairs)
    return {"placeholder"} if is_open else set()
