"""Command: understands the command line of a listing without ever running it."""

from itertools import pairwise

from assets.marketplaces.launch.runners import (
    BRIDGES,
    FOLDER_OPTIONS,
    UV_VALUED,
    ParsedCommand,
    change_launch,
    find_authors_path,
    make_unnamed,
    read_bridge,
    read_container,
    read_dnx,
    read_npx,
    read_uvx,
)
from assets.marketplaces.launch.shell_words import ShellLine, find_program, split
from assets.marketplaces.listing import LaunchFacts, Listing
from warehouse.sanitize.scrubber import is_local

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
    runner, rest, launch = _find_runner(line)
    if runner == "npx":
        return read_npx(launch, rest)
    if runner == "uvx":
        return read_uvx(launch, rest, {"--from", "--spec"})
    if runner == "docker":
        return read_container(launch, rest)
    if runner == "deno" and any(word.startswith("npm:") for word in rest):
        at = next(at for at, word in enumerate(rest) if word.startswith("npm:"))
        return read_npx(launch, [rest[at].removeprefix("npm:").lstrip("/"), *rest[at + 1 :]])
    if runner == "dnx":
        return read_dnx(launch, rest)
    if runner == "uv run" and find_authors_path(launch.args) is None and "--with" in rest:
        return read_uvx(launch, rest, {"--with"})
    name = find_program(line.words[0])
    if name in BRIDGES and any("://" in word for word in rest) and "--stdio" not in rest:
        return read_bridge(launch, tuple(rest), name)
    return _make_unpackaged(launch, line.words[0])


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
    first, *rest = line.words
    name = find_program(first)
    known = next((key for key in _RUNNERS if key[0] == name), None)
    # A runner is called by its name wherever its author has installed it.
    command = name if known else first
    flags |= {"local_path"} if is_local(first) else set()
    launch = ParsedCommand(command, tuple(rest), env=line.assigned, flags=frozenset(flags))
    for names, runner in _RUNNERS.items():
        at = 0  # options may stand before a subcommand: `uv --directory X run`
        for wanted in names[1:]:
            while at < len(rest) and rest[at].startswith("-") and rest[at] != wanted:
                at += 2 if rest[at] in UV_VALUED | FOLDER_OPTIONS else 1
            if rest[at : at + 1] != [wanted]:
                break
            at += 1
        else:
            if names[0] == name:
                return runner, rest[at:], launch
    return "", rest, launch


def _make_unpackaged(launch: ParsedCommand, first: str) -> ParsedCommand:
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
