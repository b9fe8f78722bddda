"""Command: understands the command line of a listing without ever running it.

What belongs here: splitting, refusing shell syntax, and finding the package a runner names.
What does not: the JSON around a command line (`config.py`) and how a package is launched
(`assets/servers/recipe.py`).
"""

import re
import shlex
from dataclasses import dataclass, field

from assets.marketplaces.listing import Listing, Package

_SHELLS = {"sh", "bash", "zsh", "dash", "fish", "powershell", "pwsh", "cmd", "cmd.exe"}
_SHELL_SYNTAX = re.compile(r"[;|&<>`\n\r]|\$\(|\$\{?\w*[`(]")
_SHELL_WORDS = {"&&", "||", ";", "|", "&", ">", ">>", "<", "<<", "2>&1"}
_NPM_NAME = re.compile(r"(@[a-z0-9~\-][\w.~\-]*/)?[a-z0-9~\-][\w.~\-]*", re.IGNORECASE)
_PYPI_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._\-]*[A-Za-z0-9])?")
_EXACT = re.compile(r"v?\d+(?:\.\d+)*(?:[.\-+]?[A-Za-z0-9.\-+]+)?")
_LOCAL = re.compile(
    r"(?:/(?:Users|home|root|opt|absolute|path|mnt|var|srv)\b|~/|\.{1,2}/|[A-Za-z]:[\\/]|file://)"
)
_PLACE = re.compile(
    r"\{(?P<braced>[A-Za-z][\w.\-]*)(?::(?P<format>string|number|boolean|filepath))?\}"
    r"|\$\{?(?P<shell>[A-Za-z_]\w*)\}?"
    r"|<(?P<angled>[A-Za-z][^<>]*)>"
    r"|\[(?P<squared>[A-Za-z][\w \-]*)\]"
    r"|(?P<your>(?:your|my|insert|enter|replace)[_\- ][\w\- ]+)"
    r"|(?P<path>/?(?:absolute/)?path/to/.*|/Users/(?:username|you|yourname)/.*)"
    r"|(?P<crossed>x{3,}|\*{3,}|\.{3,}|…)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Launch:
    """What a command line says. `own_args` are the server's own arguments, after the package."""

    command: str | None
    args: tuple[str, ...]
    package: Package | None = None
    entry: str | None = None  # the program, where it is not the package's only one
    own_args: tuple[str, ...] = ()
    url: str | None = None  # of a bridge to a remote server
    flags: frozenset[str] = field(default_factory=frozenset)
    reason: str | None = None  # why there is no way to launch it, else None


def understand(command: str | None, args: tuple[str, ...] = ()) -> Launch:
    """Reads a command and its arguments. Nothing is executed and no shell is involved.

    A command given as one string is split as POSIX words; shell syntax anywhere is refused: the
    returned Launch then has a `reason` and no package.
    """
    words, reason = _words(command, args)
    if reason:
        return Launch(command or None, args, reason=reason)
    runner, rest = words[0].rsplit("/", 1)[-1].removesuffix(".cmd").lower(), list(words[1:])
    flags = frozenset({"placeholder"} if any(placeholder(word) for word in rest) else ())
    launch = Launch(words[0], tuple(rest), flags=flags)
    if runner in ("npx", "bunx") or words[:2] in (["pnpm", "dlx"], ["yarn", "dlx"]):
        return _npx(launch, rest if runner in ("npx", "bunx") else rest[1:])
    if runner == "uvx" or words[:3] == ["uv", "tool", "run"] or words[:2] == ["pipx", "run"]:
        return _uvx(launch, rest if runner == "uvx" else words[words.index("run") + 1 :])
    if runner in ("docker", "podman") and "run" in rest:
        return _container(launch, rest[rest.index("run") + 1 :])
    local = next((word for word in words if _LOCAL.match(word)), None)
    flags |= {"local_path"} if local else set()
    what = f"{local!r} is a path of the author's machine" if local else "it names no package"
    return _but(launch, flags=flags, reason=f"{runner!r} is not a package runner: {what}")


def launch_args(listing: Listing) -> tuple[str, ...]:
    """The server's own arguments of a listing, without runner, options and package."""
    if listing.command is None:
        return listing.args
    return understand(listing.command, listing.args).own_args


def launch_entry(listing: Listing) -> str | None:
    """The program to start where a listing names one apart from its package, else None."""
    return None if listing.command is None else understand(listing.command, listing.args).entry


def placeholder(text: str) -> tuple[str, str] | None:
    """(name, format) where a text is, or holds, a place the user must fill in, else None.

    Formats: string, number, boolean, filepath.
    """
    found = _PLACE.fullmatch(text) or re.search(
        r"\{(?P<braced>[A-Za-z][\w.\-]*)(?::(?P<format>string|number|boolean|filepath))?\}", text
    )
    if not found:
        return None
    groups = {name: value for name, value in found.groupdict().items() if value}
    kind = groups.pop("format", None)
    name = next(iter(groups.values()))
    looks_like_path = "path" in groups or re.search(r"(?i)path|dir|folder|file|root", name)
    return name.strip(), kind or ("filepath" if looks_like_path else "string")


def npm_spec(spec: str) -> tuple[str, str | None] | None:
    """(name, version or tag) of an npm package spec, or None where it is a URL, path or git."""
    name, at, version = spec.rpartition("@")
    if not at or not name:  # "pkg" and "@scope/pkg"
        name, version = spec, ""
    return (name, version or None) if _NPM_NAME.fullmatch(name) else None


def pypi_spec(spec: str) -> tuple[str, str | None] | None:
    """(name, version) of a PyPI requirement, extras dropped; None where it is a URL or path."""
    found = re.fullmatch(r"\s*([^\s\[\]@=<>!~;]+)(?:\[[^\]]*\])?\s*(?:(==|@)\s*(\S+)|\S*)\s*", spec)
    if not found or "/" in spec or not _PYPI_NAME.fullmatch(found[1]):
        return None
    return found[1], found[3]


def is_exact(version: str | None) -> bool:
    """Whether a version names one release: no range, no tag, no wildcard."""
    return bool(version and _EXACT.fullmatch(version) and not re.search(r"[*xX](?:$|\.)", version))


def _words(command: str | None, args: tuple[str, ...]) -> tuple[list[str], str | None]:
    """The command line as words, or why it cannot be read safely."""
    if not command or not command.strip():
        return [], "no command"
    if _SHELL_SYNTAX.search(command):
        return [], f"shell syntax in the command {command[:80]!r}; a shell is never used"
    try:
        words = [*shlex.split(command), *args]
    except ValueError as error:
        return [], f"the command {command[:80]!r} cannot be split: {error}"
    if words[0].lower() in ("cmd", "cmd.exe") and [w.lower() for w in words[1:2]] == ["/c"]:
        words = words[2:] or [""]
    if not words or not words[0]:
        return [], "no command"
    if words[0].rsplit("/", 1)[-1].lower() in _SHELLS:
        return [], f"the command is a shell ({words[0]!r}); a shell is never used"
    for word in words[1:]:
        if word in _SHELL_WORDS or "$(" in word or "`" in word or "\n" in word:
            return [], f"shell syntax in the argument {word[:80]!r}; a shell is never used"
    return words, None


def _npx(launch: Launch, rest: list[str]) -> Launch:
    spec, entry, own = _runner_words(rest, {"-p", "--package"}, {"-c", "--call"})
    if spec is None:
        return _but(launch, reason="npx names no package")
    if spec.split("@")[0] == "mcp-remote" and own:
        return _but(launch, url=own[0])
    named = npm_spec(spec)
    if named is None:
        return _but(launch, reason=f"npx runs {spec[:80]!r}, which is not an npm package name")
    gateway = {"hosted_gateway", "needs_account"} if named[0] == "@smithery/cli" else set()
    package = Package(type="npm", identifier=named[0], version=named[1])
    return _packaged(launch, package, entry, own, gateway)


def _uvx(launch: Launch, rest: list[str]) -> Launch:
    spec, entry, own = _runner_words(
        rest, {"--from", "--spec"}, {"--python", "-p", "--with", "--index-url", "--index", "-w"}
    )
    if spec is None:
        return _but(launch, reason="uvx names no package")
    named = pypi_spec(spec)
    if named is None:
        return _but(launch, reason=f"uvx runs {spec[:80]!r}, which is not a PyPI package name")
    package = Package(type="pypi", identifier=named[0], version=named[1])
    return _packaged(launch, package, entry, own, set())


def _container(launch: Launch, rest: list[str]) -> Launch:
    valued = {
        "-e", "--env", "-v", "--volume", "--mount", "--name", "--network", "-p", "--publish", "-w",
        "--workdir", "--entrypoint", "-u", "--user", "--env-file", "--platform", "--add-host",
        "--memory", "-m", "--pull",
    }  # fmt: skip
    image, _, own = _runner_words(rest, set(), valued)
    if image is None:
        return _but(launch, reason="the container command names no image")
    name, at, digest = image.partition("@")
    base, colon, tag = name.rpartition(":")
    package = Package(
        type="oci",
        identifier=base if colon and "/" not in tag else name,
        version=tag if colon and "/" not in tag else None,
        digest=digest if at else None,
    )
    return _packaged(launch, package, None, own, set())


def _runner_words(
    rest: list[str], naming: set[str], valued: set[str]
) -> tuple[str | None, str | None, tuple[str, ...]]:
    """(package spec, entry, own arguments) of the words after a runner.

    `naming` options name the package, after which the first word is the program to start; `valued`
    options take a value that is not looked at.
    """
    spec: str | None = None
    position = 0
    while position < len(rest) and rest[position].startswith("-") and rest[position] != "--":
        option, equals, value = rest[position].partition("=")
        if option in naming:
            spec = value if equals else next(iter(rest[position + 1 : position + 2]), None)
        position += 1 if equals or option not in naming | valued else 2
    words = [word for word in rest[position : position + 1] if word == "--"]
    tail = rest[position + len(words) :]
    if spec is not None:
        return spec, tail[0] if tail else None, tuple(tail[1:])
    return (tail[0], None, tuple(tail[1:])) if tail else (None, None, ())


def _packaged(
    launch: Launch, package: Package, entry: str | None, own: tuple[str, ...], flags: set[str]
) -> Launch:
    pinned = bool(package.digest) or is_exact(package.version)
    flags = flags | (set() if pinned else {"unpinned"})
    flags |= {"local_path"} if any(_LOCAL.match(word) for word in own) else set()
    return _but(launch, package=package, entry=entry, own_args=own, flags=flags)


def _but(launch: Launch, **changes: object) -> Launch:
    facts = {**launch.__dict__, **changes}
    facts["flags"] = frozenset(launch.flags | facts["flags"])  # type: ignore[operator]
    return Launch(**facts)  # type: ignore[arg-type]
