"""Runners: which package, image or remote server the words of each package runner name."""

import re
from itertools import pairwise

from assets.marketplaces.launch.facts import Launch, change_launch, find_word_flags, make_unnamed
from assets.marketplaces.launch.package_spec import (
    is_pinned,
    parse_image,
    parse_npm_spec,
    parse_pypi_spec,
)
from assets.marketplaces.listing import Package

_NPX_VALUED = {"--registry", "--cache", "--prefix", "--loglevel", "-w", "--workspace", "-c",
               "--call", "--node-options", "--userconfig"}  # fmt: skip
UV_VALUED = {"--python", "-p", "--with", "--with-editable", "--with-requirements", "--index-url",
              "--extra-index-url", "--default-index", "--index", "-i", "--index-strategy",
              "--python-preference", "--directory", "--project", "--env-file", "-w", "--pip-args",
              "--refresh-package", "--cache-dir", "--group", "--extra"}  # fmt: skip
CONTAINER_VALUED = {
    "-e", "--env", "-v", "--volume", "--mount", "--name", "--network", "--net", "-p", "--publish",
    "-w", "--workdir", "--entrypoint", "-u", "--user", "--env-file", "--platform", "--add-host",
    "--memory", "-m", "--pull", "-l", "--label", "--cpus", "--gpus", "--dns", "-h", "--hostname",
    "--tmpfs", "--ulimit", "--device", "--cap-add", "--cap-drop", "--security-opt", "--shm-size",
    "--log-driver", "--log-opt", "--restart", "--cidfile", "--pid", "--ipc", "--userns", "--link",
    "--expose", "--group-add", "--memory-swap", "--stop-signal", "--runtime", "--volumes-from",
    "--pids-limit", "--cpuset-cpus", "-c", "--cpu-shares", "-a", "--attach", "--stop-timeout",
}  # fmt: skip
BRIDGES = {"mcp-remote", "supergateway", "mcp-proxy", "mcp-remote-client"}  # to a remote server
_GATEWAY_PACKAGES = {"@smithery/cli"}


def read_npx(launch: Launch, rest: list[str]) -> Launch:
    spec, entry, own = _read_runner_words(rest, {"-p", "--package"}, _NPX_VALUED)
    if spec is None:
        return change_launch(launch, reason=f"{launch.command} names no package")
    named = parse_npm_spec(spec)
    if named is None:
        return make_unnamed(launch, f"npx runs {spec[:80]!r}, which is not an npm package name")
    if named[0] in BRIDGES and "--stdio" not in own:
        return read_bridge(launch, own, named[0])
    package = Package(type="npm", identifier=named[0], version=named[1])
    gateway = {"hosted_gateway", "needs_account"} if named[0] in _GATEWAY_PACKAGES else set()
    return _make_packaged(launch, package, spec, entry, own, gateway)


def read_uvx(launch: Launch, rest: list[str], naming: set[str]) -> Launch:
    spec, entry, own = _read_runner_words(rest, naming, UV_VALUED - naming)
    if spec is None:
        return change_launch(launch, reason="uvx names no package")
    named = parse_pypi_spec(spec)
    if named is None:
        return make_unnamed(launch, f"uvx runs {spec[:80]!r}, which is not a PyPI package name")
    if named[0] in BRIDGES and any("://" in word for word in own):
        return read_bridge(launch, own, named[0])
    package = Package(type="pypi", identifier=named[0], version=named[1])
    return _make_packaged(launch, package, spec, entry, own, set())


def read_dnx(launch: Launch, rest: list[str]) -> Launch:
    spec, _, own = _read_runner_words(rest, set(), {"--version", "--source"})
    if spec is None:
        return change_launch(launch, reason="dnx names no package")
    name, _, version = spec.partition("@")
    version = version or dict(pairwise(rest)).get("--version", "")
    package = Package(type="nuget", identifier=name, version=version or None)
    made = _make_packaged(launch, package, spec, None, own, set())
    return change_launch(made, reason="no way to run a package of type 'nuget'")


def read_bridge(launch: Launch, own: tuple[str, ...], name: str) -> Launch:
    """A program that only forwards to a remote server: the remote server is what is listed."""
    url = next((word for word in own if re.match(r"(?i)https?://", word)), None)
    if url is None:
        return change_launch(launch, reason=f"{name} names no URL to forward to")
    pairs = list(pairwise(own))
    mode = next((value for option, value in pairs if option == "--transport"), "")
    sse = mode.startswith("sse") or ("--sse", url) in pairs or (name == "mcp-proxy" and not mode)
    wanted = [value for option, value in pairs if option.lower() in ("--header", "-h")]
    headers = [(key.strip(), value.strip()) for key, _, value in (h.partition(":") for h in wanted)]
    if name == "mcp-proxy":  # its `--headers NAME VALUE` are two words
        spots = [at for at, word in enumerate(own) if word in ("-H", "--headers")]
        headers = [(own[at + 1], own[at + 2]) for at in spots if at + 2 < len(own)]
    return change_launch(
        launch, url=url, transport="sse" if sse else "", headers=tuple(h for h in headers if h[0])
    )


def read_container(launch: Launch, rest: list[str]) -> Launch:
    options, words = split_options(rest, CONTAINER_VALUED)
    given = [value for option, value in options if option in ("-e", "--env") and value]
    env = [(name, text) for name, _, text in (one.partition("=") for one in given)]
    if not words:
        return change_launch(launch, reason="the container command names no image")
    package = parse_image(words[0])
    if package is None:
        return make_unnamed(launch, f"{words[0][:80]!r} is not an image name")
    made = _make_packaged(launch, package, words[0], None, tuple(words[1:]), set())
    return change_launch(made, env=(*launch.env, *env))


def _read_runner_words(
    rest: list[str], naming: set[str], valued: set[str]
) -> tuple[str | None, str | None, tuple[str, ...]]:
    """(package spec, entry, own arguments) of the words after a runner.

    `naming` options name the package, after which the first word is the program to start; `valued`
    options take a value that is not looked at.
    """
    options, tail = split_options(rest, naming | valued)
    tail = tail[1:] if tail[:1] == ["--"] else tail
    specs = [value for option, value in options if option in naming and value]
    if specs:
        return specs[-1], tail[0] if tail else None, tuple(tail[1:])
    return (tail[0], None, tuple(tail[1:])) if tail else (None, None, ())


def split_options(rest: list[str], valued: set[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """((option, its value or "") of a runner, the words after them). valued: options that take
    their value as a word of its own."""
    found: list[tuple[str, str]] = []
    at = 0
    while at < len(rest) and rest[at].startswith("-") and rest[at] != "--":
        option, equals, value = rest[at].partition("=")
        if option in valued and not equals:
            at += 1
            value = next(iter(rest[at : at + 1]), "")
        found.append((option, value))
        at += 1
    return found, rest[at:]


def _make_packaged(
    launch: Launch,
    package: Package,
    spec: str,
    entry: str | None,
    own: tuple[str, ...],
    flags: set[str],
) -> Launch:
    words = tuple(word for word in launch.args if word != spec)  # it may be called `my-server`
    flags = flags | find_word_flags(words) | (set() if is_pinned(package) else {"unpinned"})
    return change_launch(launch, package=package, entry=entry, own_args=own, flags=flags)
