"""Command: understands the command line of a listing without ever running it.

What belongs here: which package, image or remote server a runner names.
What does not: splitting and secrets (`words.py`), the JSON around a command line (`config.py`) and
how a package is launched (`assets/servers/recipe.py`).
"""

import re
from dataclasses import dataclass, field
from itertools import pairwise

from assets.marketplaces.listing import Listing, Package
from assets.marketplaces.places import is_local, placeholder, unfilled
from assets.marketplaces.spec import image_package, is_exact, npm_spec, pypi_spec
from assets.marketplaces.words import Line, program, split

__all__ = ["Launch", "is_exact", "launch_args", "launch_entry", "placeholder", "understand"]

_FILE = re.compile(r"(?i)(?!https?://)\S.*\.(?:[cm]?[jt]s|pyw?|jar|sh|rb|php|exe|dll|go|tsx)")
_FOLDER_OPTIONS = {"--directory", "--project", "--cwd", "--prefix", "-C"}

# Every name of one runner: (first words) -> what runs.
_RUNNERS: dict[tuple[str, ...], str] = {
    ("npx",): "npx", ("bunx",): "npx", ("pnpx",): "npx", ("pnpm", "dlx"): "npx",
    ("yarn", "dlx"): "npx", ("npm", "exec"): "npx", ("npm", "x"): "npx", ("bun", "x"): "npx",
    ("uvx",): "uvx", ("uv", "tool", "run"): "uvx", ("uv", "x"): "uvx", ("pipx", "run"): "uvx",
    ("uv", "run"): "uv run", ("deno", "run"): "deno", ("dnx",): "dnx",
    ("docker", "run"): "docker", ("podman", "run"): "docker",
    ("docker", "container", "run"): "docker", ("podman", "container", "run"): "docker",
}  # fmt: skip
_NPX_VALUED = {"--registry", "--cache", "--prefix", "--loglevel", "-w", "--workspace", "-c",
               "--call", "--node-options", "--userconfig"}  # fmt: skip
_UV_VALUED = {"--python", "-p", "--with", "--with-editable", "--with-requirements", "--index-url",
              "--extra-index-url", "--default-index", "--index", "-i", "--index-strategy",
              "--python-preference", "--directory", "--project", "--env-file", "-w", "--pip-args",
              "--refresh-package", "--cache-dir", "--group", "--extra"}  # fmt: skip
_CONTAINER_VALUED = {
    "-e", "--env", "-v", "--volume", "--mount", "--name", "--network", "--net", "-p", "--publish",
    "-w", "--workdir", "--entrypoint", "-u", "--user", "--env-file", "--platform", "--add-host",
    "--memory", "-m", "--pull", "-l", "--label", "--cpus", "--gpus", "--dns", "-h", "--hostname",
    "--tmpfs", "--ulimit", "--device", "--cap-add", "--cap-drop", "--security-opt", "--shm-size",
    "--log-driver", "--log-opt", "--restart", "--cidfile", "--pid", "--ipc", "--userns", "--link",
    "--expose", "--group-add", "--memory-swap", "--stop-signal", "--runtime", "--volumes-from",
    "--pids-limit", "--cpuset-cpus", "-c", "--cpu-shares", "-a", "--attach", "--stop-timeout",
}  # fmt: skip
_BRIDGES = {"mcp-remote", "supergateway", "mcp-proxy", "mcp-remote-client"}  # to a remote server
_GATEWAY_PACKAGES = {"@smithery/cli"}


@dataclass(frozen=True)
class Launch:
    """What a command line says. `own_args` are the server's own arguments, after the package."""

    command: str | None
    args: tuple[str, ...]
    package: Package | None = None
    entry: str | None = None  # the program, where it is not the package's only one
    own_args: tuple[str, ...] = ()
    url: str | None = None  # of a bridge to a remote server
    transport: str = ""  # of that remote server, where the line says so
    headers: tuple[tuple[str, str], ...] = ()  # that the bridge sends
    env: tuple[tuple[str, str], ...] = ()  # variables the line sets or, where empty, passes on
    flags: frozenset[str] = field(default_factory=frozenset)
    reason: str | None = None  # why there is no way to launch it, else None


def understand(command: str | None, args: tuple[str, ...] = ()) -> Launch:
    """Reads a command and its arguments. Nothing is executed and no shell is involved.

    A command given as one string is split as POSIX words; shell syntax anywhere is refused: the
    returned Launch then has a `reason` and no package. A secret among the words is a place to fill
    in.
    """
    line = split(command, args)
    if line.reason:
        return Launch(command or None, args, reason=line.reason)
    runner, rest, launch = _runner(line)
    if runner == "npx":
        return _npx(launch, rest)
    if runner == "uvx":
        return _uvx(launch, rest, {"--from", "--spec"})
    if runner == "docker":
        return _container(launch, rest)
    if runner == "deno" and any(word.startswith("npm:") for word in rest):
        at = next(at for at, word in enumerate(rest) if word.startswith("npm:"))
        return _npx(launch, [rest[at].removeprefix("npm:").lstrip("/"), *rest[at + 1 :]])
    if runner == "dnx":
        return _dnx(launch, rest)
    if runner == "uv run" and _authors(launch.args) is None and "--with" in rest:
        return _uvx(launch, rest, {"--with"})
    return _no_package(launch, line.words[0])


def launch_args(listing: Listing) -> tuple[str, ...]:
    """The server's own arguments of a listing, without runner, options and package."""
    if listing.command is None:
        return listing.args
    return understand(listing.command, listing.args).own_args


def launch_entry(listing: Listing) -> str | None:
    """The program to start where a listing names one apart from its package, else None."""
    return None if listing.command is None else understand(listing.command, listing.args).entry


def _runner(line: Line) -> tuple[str, list[str], Launch]:
    """(runner or "", the words after it, what is known so far)."""
    flags: set[str] = {"needs_account"} if line.secrets else set()
    first, *rest = line.words
    name = program(first)
    known = next((key for key in _RUNNERS if key[0] == name), None)
    # A runner is called by its name wherever its author has installed it.
    command = name if known else first
    flags |= {"local_path"} if is_local(first) else set()
    launch = Launch(command, tuple(rest), env=line.assigned, flags=frozenset(flags))
    for names, runner in _RUNNERS.items():
        at = 0  # options may stand before a subcommand: `uv --directory X run`
        for wanted in names[1:]:
            while at < len(rest) and rest[at].startswith("-") and rest[at] != wanted:
                at += 2 if rest[at] in _UV_VALUED | _FOLDER_OPTIONS else 1
            if rest[at : at + 1] != [wanted]:
                break
            at += 1
        else:
            if names[0] == name:
                return runner, rest[at:], launch
    return "", rest, launch


def _npx(launch: Launch, rest: list[str]) -> Launch:
    spec, entry, own = _runner_words(rest, {"-p", "--package"}, _NPX_VALUED)
    if spec is None:
        return _but(launch, reason=f"{launch.command} names no package")
    named = npm_spec(spec)
    if named is None:
        return _unnamed(launch, f"npx runs {spec[:80]!r}, which is not an npm package name")
    if named[0] in _BRIDGES and "--stdio" not in own:
        return _bridge(launch, own, named[0])
    package = Package(type="npm", identifier=named[0], version=named[1])
    gateway = {"hosted_gateway", "needs_account"} if named[0] in _GATEWAY_PACKAGES else set()
    return _packaged(launch, package, spec, entry, own, gateway)


def _uvx(launch: Launch, rest: list[str], naming: set[str]) -> Launch:
    spec, entry, own = _runner_words(rest, naming, _UV_VALUED - naming)
    if spec is None:
        return _but(launch, reason="uvx names no package")
    named = pypi_spec(spec)
    if named is None:
        return _unnamed(launch, f"uvx runs {spec[:80]!r}, which is not a PyPI package name")
    if named[0] in _BRIDGES and any("://" in word for word in own):
        return _bridge(launch, own, named[0])
    package = Package(type="pypi", identifier=named[0], version=named[1])
    return _packaged(launch, package, spec, entry, own, set())


def _dnx(launch: Launch, rest: list[str]) -> Launch:
    spec, _, own = _runner_words(rest, set(), {"--version", "--source"})
    if spec is None:
        return _but(launch, reason="dnx names no package")
    name, _, version = spec.partition("@")
    package = Package(type="nuget", identifier=name, version=version or None)
    made = _packaged(launch, package, spec, None, own, set())
    return _but(made, reason="no way to run a package of type 'nuget'")


def _bridge(launch: Launch, own: tuple[str, ...], name: str) -> Launch:
    """A program that only forwards to a remote server: the remote server is what is listed."""
    url = next((word for word in own if re.match(r"(?i)https?://", word)), None)
    if url is None:
        return _but(launch, reason=f"{name} names no URL to forward to")
    pairs = list(pairwise(own))
    mode = next((value for option, value in pairs if option == "--transport"), "")
    sse = mode.startswith("sse") or ("--sse", url) in pairs or (name == "mcp-proxy" and not mode)
    wanted = [value for option, value in pairs if option.lower() in ("--header", "-h")]
    headers = [(key.strip(), value.strip()) for key, _, value in (h.partition(":") for h in wanted)]
    return _but(
        launch, url=url, transport="sse" if sse else "", headers=tuple(h for h in headers if h[0])
    )


def _container(launch: Launch, rest: list[str]) -> Launch:
    env: list[tuple[str, str]] = []
    at = 0
    while at < len(rest) and rest[at].startswith("-") and rest[at] != "--":
        option, equals, value = rest[at].partition("=")
        if option in _CONTAINER_VALUED and not equals:
            at += 1
            value = rest[at] if at < len(rest) else ""
        if option in ("-e", "--env") and value:
            name, _, text = value.partition("=")
            env.append((name, text))
        at += 1
    words = rest[at:]
    if not words:
        return _but(launch, reason="the container command names no image")
    package = image_package(words[0])
    if package is None:
        return _unnamed(launch, f"{words[0][:80]!r} is not an image name")
    made = _packaged(launch, package, words[0], None, tuple(words[1:]), set())
    return _but(made, env=(*launch.env, *env))


def _no_package(launch: Launch, first: str) -> Launch:
    words = (first, *launch.args)
    authors = _authors(words)
    module = next((b for a, b in pairwise(words) if a == "-m"), None)
    if authors is not None:
        what = f"{authors[:120]!r} is a path of the author's machine"
    elif module is not None:
        what = f"the module {module[:80]!r} names no package"
    else:
        what = "it names no package"
    return _unnamed(launch, f"{program(first)[:80]!r} is not a package runner: {what}")


def _unnamed(launch: Launch, reason: str) -> Launch:
    return _but(launch, flags=_word_flags(launch.args), reason=reason)


def _word_flags(words: tuple[str, ...]) -> set[str]:
    flags = {"local_path"} if _authors(words) is not None else set()
    return flags | ({"placeholder"} if any(unfilled(word) for word in words) else set())


def _authors(words: tuple[str, ...]) -> str | None:
    """The first path of the author's machine among some words, or else the first program file."""
    for before, word in pairwise(("", *words)):
        if is_local(word) or (before in _FOLDER_OPTIONS and not word.startswith("-")):
            return word
    return next((word for word in words if _FILE.fullmatch(word)), None)


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
    launch: Launch,
    package: Package,
    spec: str,
    entry: str | None,
    own: tuple[str, ...],
    flags: set[str],
) -> Launch:
    pinned = bool(package.digest) or is_exact(package.version)
    said = tuple(word for word in launch.args if word != spec)  # it may be called `my-server`
    flags = flags | _word_flags(said) | (set() if pinned else {"unpinned"})
    return _but(launch, package=package, entry=entry, own_args=own, flags=flags)


def _but(launch: Launch, **changes: object) -> Launch:
    facts = {**launch.__dict__, **changes}
    facts["flags"] = frozenset(launch.flags | facts["flags"])  # type: ignore[operator]
    return Launch(**facts)  # type: ignore[arg-type]
