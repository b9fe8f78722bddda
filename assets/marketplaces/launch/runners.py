"""Command lines of listings: which package, image or remote server the words name, never run."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

from assets.marketplaces.launch.shell_words import ShellLine, find_program, split
from assets.marketplaces.listing import LaunchFacts, Listing, PackageRef
from warehouse.patterns import compile_pattern
from warehouse.sanitize.redact import redact
from warehouse.sanitize.scrubber import is_local, is_unfilled

_FILE = re.compile(r"(?i)(?!https?://)\S.*\.(?:[cm]?[jt]s|pyw?|jar|sh|rb|php|exe|dll|go|tsx)")
FOLDER_OPTIONS = {"--directory", "--project", "--cwd", "--prefix", "-C"}


@dataclass(frozen=True)
class ParsedCommand:
    """What a command line says. `own_args` are the server's own arguments, after the package."""

    command: str | None
    args: tuple[str, ...]
    package: PackageRef | None = None
    entry: str | None = None  # the program, where it is not the package's only one
    own_args: tuple[str, ...] = ()
    requirements: tuple[str, ...] = ()  # installed besides; one of the package names its extras
    python: str | None = None  # the minor version that the line asks for
    url: str | None = None  # of a bridge to a remote server
    transport: str = ""  # of that remote server, where the line says so
    headers: tuple[tuple[str, str], ...] = ()  # that the bridge sends
    env: tuple[tuple[str, str], ...] = ()  # variables the line sets or, where empty, passes on
    flags: frozenset[str] = field(default_factory=frozenset)
    reason: str | None = None  # why there is no way to launch it, else None
    local: bool = False  # it starts a program of its own host, by no package runner

    @property
    def facts(self) -> LaunchFacts:
        """What a listing keeps of it."""
        own_args = tuple(redact(word) for word in self.own_args)
        about = {"requirements": self.requirements, "python": self.python}
        return LaunchFacts(own_args=own_args, entry=self.entry and redact(self.entry), **about)


def change_launch(
    launch: ParsedCommand, flags: Iterable[str] = (), **changes: Any
) -> ParsedCommand:
    """The launch with other facts, and with more flags."""
    return replace(launch, flags=launch.flags | set(flags), **changes)


def make_unnamed(launch: ParsedCommand, reason: str) -> ParsedCommand:
    return change_launch(launch, flags=find_word_flags(launch.args), reason=reason)


def find_word_flags(words: tuple[str, ...]) -> set[str]:
    flags = {"local_path"} if find_authors_path(words) is not None else set()
    return flags | ({"placeholder"} if any(is_unfilled(word) for word in words) else set())


def find_authors_path(words: tuple[str, ...]) -> str | None:
    """The first path of the author's machine among some words, or else the first program file."""
    for before, word in pairwise(("", *words)):
        if is_local(word) or (before in FOLDER_OPTIONS and not word.startswith("-")):
            return word
    return next((word for word in words if _FILE.fullmatch(word)), None)


_NPM_NAME = re.compile(r"(@[a-z0-9~\-][\w.~\-]*/)?[a-z0-9~\-][\w.~\-]*", re.IGNORECASE)
_PYPI_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._\-]*[A-Za-z0-9])?")
_IMAGE = compile_pattern(r"(?i)[a-z0-9][a-z0-9._\-]*(?::\d+)?(?:/[a-z0-9][a-z0-9._\-]*)*")
_PYPI_SPEC = compile_pattern(
    r"\s*([^\s\[\]@=<>!~;]+)(?:\[[^\]]*\])?\s*(?:@\s*(\S+)|([=<>!~][^;]*))?\s*(?:;.*)?"
)
_EXACT = compile_pattern(r"v?\d+(?:\.\d+)*(?:[.\-+]?[A-Za-z0-9.\-+]+)?")


def parse_npm_spec(spec: str) -> tuple[str, str | None] | None:
    """(name, version or tag) of an npm package spec, or None where it is a URL, path or git."""
    name, at, version = spec.rpartition("@")
    if not at or not name:  # "pkg" and "@scope/pkg"
        name, version = spec, ""
    return (name, version or None) if _NPM_NAME.fullmatch(name) else None


def parse_pypi_spec(spec: str) -> tuple[str, str | None] | None:
    """(name, version or bounds) of a PyPI requirement, extras dropped; None where it is a URL or
    path."""
    match = _PYPI_SPEC.fullmatch(spec)
    if not match or "/" in spec or not _PYPI_NAME.fullmatch(match[1]):
        return None
    bounds = "".join((match[3] or "").split())
    exact = re.fullmatch(r"={2,3}([^,*]{1,100})", bounds)
    return match[1], match[2] or (exact[1] if exact else bounds) or None


# Up to a comma that a name follows; one within brackets or bounds separates no requirements.
_REQUIREMENT = compile_pattern(r"[A-Za-z0-9](?:[^\[,]|\[[^\]]*\]|,\s*[=<>!~])*|[^\s,][^,]*")


def parse_image(image: str) -> PackageRef | None:
    """The package of a container image `name[:tag][@sha256:…]`; None where it is no image name."""
    base, tag, digest = split_image(image)
    if not _IMAGE.fullmatch(base):
        return None
    exact = re.fullmatch(r"sha256:[0-9a-f]{64}", digest)
    return PackageRef(
        type="oci", identifier=base, version=tag or None, digest=digest if exact else None
    )


def split_image(image: str) -> tuple[str, str, str]:
    """(name, tag, digest) of `name[:tag][@digest]`, "" where there is none; a colon before a slash
    is one of a port."""
    name, _, digest = image.partition("@")
    base, colon, tag = name.rpartition(":")
    return (base, tag, digest) if colon and "/" not in tag else (name, "", digest)


def is_pinned(package: PackageRef) -> bool:
    """Whether a package is one release for good: by its digest, or by its version. npm reads `1`
    and `1.2` as ranges."""
    if package.digest:
        return True
    numbers = (package.version or "").lstrip("v=").split(".")
    return is_exact(package.version) and (package.type != "npm" or len(numbers) > 2)


def is_exact(version: str | None) -> bool:
    """Whether a version names one release: no range, no tag, no wildcard."""
    return bool(version and _EXACT.fullmatch(version) and not re.search(r"[*xX](?:$|\.)", version))


# Options that change what runs and that no recipe holds: the listing has a flag.
_NPX_LEFT_OUT = {"--registry", "--node-options", "--userconfig", "--legacy-peer-deps", "--force"}
_NPX_VALUED = {"--registry", "--cache", "--prefix", "--loglevel", "-w", "--workspace", "-c",
               "--call", "--node-options", "--userconfig"}  # fmt: skip
_UV_LEFT_OUT = {
    "--with-editable", "--with-requirements", "--index-url", "-i", "--extra-index-url", "--index",
    "--default-index", "--find-links", "-f", "--constraints", "--constraint", "-c", "--overrides",
    "--override", "--build-constraints", "-b", "--prerelease", "--resolution", "--exclude-newer",
    "--env-file", "--pip-args", "--no-deps", "--config-setting", "-C", "--group", "--extra",
    "--excludes", "--upgrade-package", "-P", "--torch-backend", "--fork-strategy", "--no-index",
}  # fmt: skip
UV_VALUED = {
    "--python", "-p", "--with", "-w", "--directory", "--project", "--refresh-package",
    "--cache-dir", "--index-strategy", "--keyring-provider", "--allow-insecure-host",
    "--python-preference", "--python-platform", "--link-mode", "--config-file", "--color",
    "--no-build-package", "--no-binary-package", "--reinstall-package", "--exclude-newer-package",
} | (_UV_LEFT_OUT - {"--no-deps", "--no-index"})  # fmt: skip
CONTAINER_VALUED = {
    "-e", "--env", "-v", "--volume", "--mount", "--name", "--network", "--net", "-p", "--publish",
    "-w", "--workdir", "--entrypoint", "-u", "--user", "--env-file", "--platform", "--add-host",
    "--memory", "-m", "--pull", "-l", "--label", "--cpus", "--gpus", "--dns", "-h", "--hostname",
    "--tmpfs", "--ulimit", "--device", "--cap-add", "--cap-drop", "--security-opt", "--shm-size",
    "--log-driver", "--log-opt", "--restart", "--cidfile", "--pid", "--ipc", "--userns", "--link",
    "--expose", "--group-add", "--memory-swap", "--stop-signal", "--runtime", "--volumes-from",
    "--pids-limit", "--cpuset-cpus", "-c", "--cpu-shares", "-a", "--attach", "--stop-timeout",
}  # fmt: skip
LEFT_OUT = "options_left_out"
BRIDGES = {"mcp-remote", "supergateway", "mcp-proxy", "mcp-remote-client"}  # to a remote server
_GATEWAY_PACKAGES = {"@smithery/cli"}


def read_npx(launch: ParsedCommand, words: list[str]) -> ParsedCommand:
    naming = {"-p", "--package"}
    options, tail = split_options(words, naming | _NPX_VALUED)
    called = [value for option, value in options if option in ("-c", "--call") and value]
    tail = called[0].split() if called and not tail else tail
    spec, entry, own_args, more = _read_runner_words(options, tail, naming)
    if spec is None:
        return change_launch(launch, reason=f"{launch.command} names no package")
    if launch.command == "npm" and not entry and own_args[:1] == ("--",):
        own_args = own_args[1:]  # npm's own end of options
    npm_spec = parse_npm_spec(spec)
    # Node.js itself, as a package, is another runtime than the one that is here.
    kept = tuple(text for text in more if (parse_npm_spec(text) or ("node",))[0] != "node")
    left_out = len(kept) < len(more) or any(option in _NPX_LEFT_OUT for option, _ in options)
    launch = change_launch(launch, {LEFT_OUT} if left_out else (), requirements=kept)
    if npm_spec is None:
        return make_unnamed(launch, f"npx runs {spec[:80]!r}, which is not an npm package name")
    if npm_spec[0] in BRIDGES and "--stdio" not in own_args:
        return read_bridge(launch, own_args, npm_spec[0])
    package = PackageRef(type="npm", identifier=npm_spec[0], version=npm_spec[1])
    gateway = {"hosted_gateway", "needs_account"} if npm_spec[0] in _GATEWAY_PACKAGES else set()
    return _make_packaged(launch, package, spec, entry, own_args, gateway)


def read_uvx(launch: ParsedCommand, words: list[str], naming: set[str]) -> ParsedCommand:
    options, tail = split_options(words, naming | UV_VALUED)
    spec, entry, own_args, more = _read_runner_words(options, tail, naming)
    if spec is None:
        return change_launch(launch, reason="uvx names no package")
    pypi_spec = parse_pypi_spec(spec)
    besides = [value for option, value in options if option in {"--with", "-w"} - naming]
    besides = [*more, *besides]
    if extras := re.search(r"\[[^\]]{1,200}\]", spec):
        besides.insert(0, f"{spec[: extras.start()].strip()}{extras[0]}")
    requirements: list[str] = []
    complete = True
    for text in _REQUIREMENT.findall(",".join(besides)):
        try:
            requirement = Requirement(text.strip(" ,"))
            complete &= requirement.url is None
            requirements += [str(requirement)] if requirement.url is None else []
        except InvalidRequirement:
            complete &= not text.strip(" ,")
    asked = next((value for option, value in options if option in ("--python", "-p")), "")
    python = re.fullmatch(r"(?:c?python-?@?)?(3\.\d{1,2})(?:\.\d+)?", asked)
    left_out = bool(asked and not python) or any(option in _UV_LEFT_OUT for option, _ in options)
    launch = change_launch(
        launch,
        {LEFT_OUT} if left_out or not complete else (),
        requirements=tuple(dict.fromkeys(requirements)),
        python=python[1] if python else None,
    )
    if pypi_spec is None:
        return make_unnamed(launch, f"uvx runs {spec[:80]!r}, which is not a PyPI package name")
    if pypi_spec[0] in BRIDGES and any("://" in word for word in own_args):
        return read_bridge(launch, own_args, pypi_spec[0])
    package = PackageRef(type="pypi", identifier=pypi_spec[0], version=pypi_spec[1])
    return _make_packaged(launch, package, spec, entry, own_args, set())


def read_bridge(launch: ParsedCommand, own_args: tuple[str, ...], name: str) -> ParsedCommand:
    """A program that only forwards to a remote server: the remote server is what is listed."""
    url = next((word for word in own_args if re.match(r"(?i)https?://", word)), None)
    if url is None:
        return change_launch(launch, reason=f"{name} names no URL to forward to")
    pairs = list(pairwise(own_args))
    mode = next((value for option, value in pairs if option == "--transport"), "")
    sse = mode.startswith("sse") or ("--sse", url) in pairs or (name == "mcp-proxy" and not mode)
    lines = [value for option, value in pairs if option.lower() in ("--header", "-h")]
    headers = [(key.strip(), value.strip()) for key, _, value in (h.partition(":") for h in lines)]
    if name == "mcp-proxy":  # its `--headers NAME VALUE` are two words
        spots = [at for at, word in enumerate(own_args) if word in ("-H", "--headers")]
        headers = [(own_args[at + 1], own_args[at + 2]) for at in spots if at + 2 < len(own_args)]
    return change_launch(
        launch, url=url, transport="sse" if sse else "", headers=tuple(h for h in headers if h[0])
    )


def read_container(launch: ParsedCommand, line: list[str]) -> ParsedCommand:
    options, words = split_options(line, CONTAINER_VALUED)
    pairs = [value for option, value in options if option in ("-e", "--env") and value]
    env = [(name, text) for name, _, text in (item.partition("=") for item in pairs)]
    if not words:
        return change_launch(launch, reason="the container command names no image")
    package = parse_image(words[0])
    if package is None:
        return make_unnamed(launch, f"{words[0][:80]!r} is not an image name")
    packaged = _make_packaged(launch, package, words[0], None, tuple(words[1:]), set())
    return change_launch(packaged, env=(*launch.env, *env))


def _read_runner_words(
    options: list[tuple[str, str]], tail: list[str], naming: set[str]
) -> tuple[str | None, str | None, tuple[str, ...], list[str]]:
    """(package spec, entry, own arguments, further specs) of a runner's options and the words after
    them. `naming` options name packages, after which the first word is the program to start."""
    tail = tail[1:] if tail[:1] == ["--"] else tail
    specs = [value for option, value in options if option in naming and value]
    if not specs:
        return (tail[0], None, tuple(tail[1:]), []) if tail else (None, None, (), [])
    entry = tail[0] if tail else None
    # Of several packages, the one that is called like the program, else the last.
    names = {spec: (parse_npm_spec(spec) or parse_pypi_spec(spec) or (spec,))[0] for spec in specs}
    named = [spec for spec in specs if entry and names[spec].lower().endswith(entry.lower())]
    spec = (named or specs)[-1]
    return spec, entry, tuple(tail[1:]), [other for other in specs if other != spec]


def split_options(words: list[str], valued: set[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """((option, its value or "") of a runner, the words after them). valued: options that take
    their value as a word of its own."""
    options: list[tuple[str, str]] = []
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != "--":
        option, equals, value = words[at].partition("=")
        if option in valued and not equals:
            at += 1
            value = next(iter(words[at : at + 1]), "")
        options.append((option, value))
        at += 1
    return options, words[at:]


def _make_packaged(
    launch: ParsedCommand,
    package: PackageRef,
    spec: str,
    entry: str | None,
    own_args: tuple[str, ...],
    flags: set[str],
) -> ParsedCommand:
    words = tuple(word for word in launch.args if word != spec)  # it may be called `my-server`
    flags = flags | find_word_flags(words) | (set() if is_pinned(package) else {"unpinned"})
    return change_launch(launch, package=package, entry=entry, own_args=own_args, flags=flags)


# Every name of one runner: (first words) -> what runs.
_RUNNERS: dict[tuple[str, ...], str] = {
    ("npx",): "npx", ("bunx",): "npx", ("pnpx",): "npx", ("pnpm", "dlx"): "npx",
    ("yarn", "dlx"): "npx", ("npm", "exec"): "npx", ("npm", "x"): "npx", ("bun", "x"): "npx",
    ("uvx",): "uvx", ("uv", "tool", "run"): "uvx", ("uv", "x"): "uvx", ("pipx", "run"): "uvx",
    ("uv", "run"): "uv run", ("deno", "run"): "deno", ("dnx",): "dnx",
    ("docker", "run"): "docker", ("podman", "run"): "docker",
    ("docker", "container", "run"): "docker", ("podman", "container", "run"): "docker",
}  # fmt: skip


def parse_command(command: str | None, args: tuple[str, ...] = ()) -> ParsedCommand:
    """Reads a command and its arguments. Nothing is executed and no shell is involved.

    A command given as one string is split as POSIX words; shell syntax anywhere is refused: the
    returned Launch then has a `reason` and no package. A secret among the words is a place to fill
    in.
    """
    line = split(command, args)
    if line.reason:
        return ParsedCommand(command or None, args, reason=line.reason)
    runner, words, launch = _find_runner(line)
    if runner == "npx":
        return read_npx(launch, words)
    if runner == "uvx":
        return read_uvx(launch, words, {"--from", "--spec"})
    if runner == "docker":
        return read_container(launch, words)
    if runner == "deno" and any(word.startswith("npm:") for word in words):
        at = next(at for at, word in enumerate(words) if word.startswith("npm:"))
        return read_npx(launch, [words[at].removeprefix("npm:").lstrip("/"), *words[at + 1 :]])
    if runner == "dnx":
        _, tail = split_options(words, {"--version", "--source"})
        if not tail:
            return change_launch(launch, reason="dnx names no package")
        spec, own_args = tail[0], tuple(tail[1:])
        name, _, version = spec.partition("@")
        version = version or dict(pairwise(words)).get("--version", "")
        package = PackageRef(type="nuget", identifier=name, version=version or None)
        packaged = _make_packaged(launch, package, spec, None, own_args, set())
        return change_launch(packaged, reason="no way to run a package of type 'nuget'")
    if runner == "uv run" and find_authors_path(launch.args) is None and "--with" in words:
        return read_uvx(launch, words, {"--with"})
    name = find_program(line.words[0])
    if name in BRIDGES and any("://" in word for word in words) and "--stdio" not in words:
        return read_bridge(launch, tuple(words), name)
    first = line.words[0]
    words = (first, *launch.args)
    authors = find_authors_path(words)
    module = next((b for a, b in pairwise(words) if a == "-m"), None)
    if authors is not None:
        what = f"{authors[:120]!r} is a path of the author's machine"
    elif module is not None:
        what = f"the module {module[:80]!r} names no package"
    else:
        what = "it names no package"
    reason = f"{find_program(first)[:80]!r} is not a package runner: {what}"
    return change_launch(make_unnamed(launch, reason), local=True)


def read_launch(listing: Listing) -> LaunchFacts:
    """What the command line of a listing says; read from its words where nobody has yet."""
    if listing.launch is not None:
        return listing.launch
    if listing.command is None:
        return LaunchFacts(own_args=listing.args)
    return parse_command(listing.command, listing.args).facts


def _find_runner(line: ShellLine) -> tuple[str, list[str], ParsedCommand]:
    """(runner or "", the words after it, what is known so far)."""
    flags: set[str] = {"needs_account"} if line.secrets else set()
    first, *words = line.words
    name = find_program(first)
    runner_names = next((key for key in _RUNNERS if key[0] == name), None)
    # A runner is called by its name wherever its author has installed it.
    command = name if runner_names else first
    flags |= {"local_path"} if is_local(first) else set()
    launch = ParsedCommand(command, tuple(words), env=line.assigned, flags=frozenset(flags))
    for names, runner in _RUNNERS.items():
        at = 0  # options may stand before a subcommand: `uv --directory X run`
        for subcommand in names[1:]:
            while at < len(words) and words[at].startswith("-") and words[at] != subcommand:
                at += 2 if words[at] in UV_VALUED | FOLDER_OPTIONS else 1
            if words[at : at + 1] != [subcommand]:
                break
            at += 1
        else:
            if names[0] == name:
                return runner, words[at:], launch
    return "", words, launch
