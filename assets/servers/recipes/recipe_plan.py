"""Planning: the recipe of a listing, filled in and pinned, or why there is none."""

import errno
import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from packaging.utils import canonicalize_name

from assets.marketplaces.launch.runners import read_launch
from assets.marketplaces.launch.shell_words import insert_values, spell_name
from assets.marketplaces.listing import EnvVar, HeaderVar, Listing, PackageRef
from assets.servers.probe.failure_kinds import PackageError
from assets.servers.recipes.placeholders import DATA, holds_secret, make_value
from assets.servers.recipes.recipe import (
    LaunchRecipe,
    ResolvedVersion,
    Transport,
    UnlaunchableServer,
    find_name_problem,
    identify_server,
    normalise_address,
    parse_image,
)
from assets.servers.sandbox.spec import is_private_folder, is_system_folder
from warehouse.patterns import Match, compile_pattern
from warehouse.sanitize.scrubber import find_placeholder, is_unfilled
from warehouse.storage.untrusted_files import UnreadableFile, list_files, open_file

Pairs = tuple[tuple[str, str], ...]

AUTHORS_PATH = re.compile(
    r"(?:/(?:Users|home|root|opt|absolute|path|mnt|var|srv)\b|~/|\./|[A-Za-z]:[\\/])"
)
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~\-]{1,100}")
# `{name}`, `{name:filepath}`, `${name}`, `${input:name}`, `<name>`
_BRACED = compile_pattern(
    r"\$?\{+(?:input:|env:|user_config\.)?(?P<name>[A-Za-z][\w.\-]*)(?::\w+)?\}+"
    r"|<(?P<angled>[A-Za-z][^<>]{0,80})>"
)
_OPEN_PART = compile_pattern(r"(?i)\$?\{[^{}]*\}|<[^<>]*>|\byour[_\-]?\w+(?:-\w+)*|\bx{3,}\b")
_SENT = re.compile(r"\(sent as '([^']{1,200})'\)")


def fill_arguments(
    args: tuple[str, ...],
    *,
    context: str = "",
    placeholders: bool = True,
    folder: str | None = None,
    values: Mapping[str, str] | None = None,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(arguments with their places filled in, which of them are made up: `arg:0`). folder: of this
    host, whose paths are real ones. values: of variables, which arguments may refer to, as they may
    to each other's options."""
    filled: list[str] = []
    made_up: list[str] = []
    stated = {**_read_options(args), **{spell_name(n): v for n, v in (values or {}).items()}}
    for text in (insert_values(arg, stated) for arg in args):
        value = _fill_argument(text, filled[-1] if filled else "", context, folder)
        if value == text:
            filled.append(text)
        elif placeholders:
            made_up.append(f"arg:{len(filled)}")
            filled.append(value)
        elif filled and filled[-1].startswith("-") and not text.startswith("-"):
            filled.pop()  # the option whose value is left out
    return tuple(filled), tuple(made_up)


def _read_options(args: Sequence[str]) -> dict[str, str]:
    """Name -> value of options with a plain value: `--port 80`, `--port=80`."""
    words = [*args, "-"]
    pairs = [(option, value) for option, value in pairwise(words) if "=" not in option]
    pairs += [
        (option, value) for option, equals, value in (a.partition("=") for a in args) if equals
    ]
    return {
        spell_name(option): value
        for option, value in pairs
        if option.startswith("--") and value[:1] not in ("", "-") and not is_unfilled(value)
    }


def _fill_argument(text: str, before: str, context: str, folder: str | None) -> str:
    option, equals, value = text.partition("=")
    option_name = option if equals and option.startswith("-") else ""
    place = find_placeholder(text) or (find_placeholder(value) if option_name else None)
    if place or (is_unfilled(text) and not AUTHORS_PATH.match(value if option_name else text)):
        name = option_name or (before if before.startswith("--") else "")
        whole = value if option_name else text
        filled = _fill_template(whole, name, place, context)
        return f"{option}={filled}" if option_name else filled
    if _is_authors(value if option_name else text, folder) and text != DATA:
        return f"{option}={DATA}" if option_name else DATA
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
        secret_name = option if option and not holds_secret(name) and holds_secret(option) else name
        kind = place[1] if place and place[1] in ("number", "boolean", "filepath") else None
        return make_value(secret_name, option.strip("-"), kind, context=context)

    if "://" in text and re.match(r"[a-z][a-z0-9+.\-]*://", text) and _OPEN_PART.search(text):
        return _OPEN_PART.sub("placeholder", text)  # the rest of the address is the author's
    if _BRACED.search(text):
        return _BRACED.sub(lambda match: one(match["name"] or match["angled"]), text)
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
        has_default = default is not None and default != "" and not is_unfilled(default)
        if has_default and default and not _is_authors(default, folder):
            env[name] = default
        elif placeholders:
            needed = variable.required or variable.secret
            target = env if needed or has_default else spare
            value = make_value(name, variable.description, context=context)
            target[name] = DATA if has_default else value
            made_up.append(f"env:{name}")
    return tuple(sorted(env.items())), tuple(sorted(spare.items())), tuple(sorted(made_up))


def fill_headers(
    headers: Iterable[HeaderVar], *, context: str = "", placeholders: bool = True
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

    def put(match: Match) -> str:
        name = match["name"] or match["angled"]
        made_up.append(f"url:{name}")
        value = make_value(name, None, context=context)
        # A place in a host or path takes no other address.
        return re.sub(r"[^A-Za-z0-9._~\-]+", "-", value.partition("://")[2] or value)

    filled = _BRACED.sub(put, url)
    if made_up and not placeholders:
        return None, ()
    return filled, tuple(sorted(set(made_up)))


def _fill_header(header: HeaderVar, context: str) -> str:
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


SCRIPTS = (".py", ".js", ".mjs", ".cjs", ".ts")
_RUNTIMES = ("python", "python3", "node", "uv", "deno", "bun")
_SKIPPED = (".git", "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache")
_MOST_READ = 256 << 20  # bytes of files that are hashed; beyond, size and time of change count
_CHUNK = 1 << 20


def plan_local(
    listing: Listing, server_id: str, *, placeholders: bool
) -> LaunchRecipe | UnlaunchableServer:
    """The recipe of a listing that `is_local`, or why there is none."""
    about = {"context": "", "placeholders": placeholders}
    folder, words = str(read_launch(listing).directory), (listing.command or "", *listing.args)
    try:
        check_command(folder, words)
        integrity = digest_folder(folder)
    except PackageError as error:
        reason = f"{error} (the entry's `cwd` names its folder)"
        return UnlaunchableServer(server_id, error.kind, reason)
    env, spare, env_made_up = fill_environment(listing.env, **about, folder=folder)
    values = {name: value for name, value in env if f"env:{name}" not in env_made_up}
    args, args_made_up = fill_arguments(listing.args, **about, folder=folder, values=values)
    return LaunchRecipe(
        server_id=server_id,
        ecosystem="private",
        name=listing.name,
        integrity=integrity,
        args=args,
        env=env,
        spare_env=spare,
        placeholders=(*args_made_up, *env_made_up),
        command=(str(listing.command),),
        directory=folder,
    )


def check_command(folder: str, words: Sequence[str]) -> None:
    """Raises PackageError where the folder is none that a server is shown, or the script that the
    words name is not in it."""
    path, folder_name = Path(folder), f"its folder {folder}"
    real = os.path.realpath(path)
    if is_private_folder(path):
        why = "is a home folder or lies above one: name the server's own folder"
        raise PackageError("policy_denied", f"{folder_name} {why}")
    if is_system_folder(Path(real)):
        why = "is the system's: name a folder that holds the server alone"
        raise PackageError("policy_denied", f"{folder_name} {why}")
    if not os.path.lexists(path):
        raise PackageError("needs_software", f"{folder_name} is not there")
    if real != str(path):
        why = f"is a link, or behind one, to {real}: name that if it is the one you mean"
        raise PackageError("policy_denied", f"{folder_name} {why}")
    if not os.path.isdir(path):
        raise PackageError("needs_software", f"{folder_name} is no folder")
    script = find_script(words)
    if script and not os.path.isfile(path / script):
        raise PackageError("needs_software", f"{folder_name} holds no file {script!r:.120} to run")
    if script and not Path(os.path.realpath(path / script)).is_relative_to(path):
        why = "is not in it: name the folder that holds both"
        raise PackageError("policy_denied", f"{folder_name}: its script {script!r:.120} {why}")


def find_script(words: Sequence[str]) -> str | None:
    """The file that a runtime is told to run."""
    name = os.path.basename(words[0]) if words else ""
    if name not in _RUNTIMES or "-m" in words or "-c" in words or "-e" in words:
        return None
    return next((word for word in words[1:] if word.endswith(SCRIPTS) and word[0] != "-"), None)


def digest_folder(folder: str) -> str:
    """`sha256:<hex>` over names, modes and contents of what a folder holds, without caches and
    `.git`; of what is beyond 256 MB, over size and time of change. Raises PackageError."""
    root, left, hashed = Path(folder), _MOST_READ, hashlib.sha256()
    try:
        for path in list_files(root, skip=_SKIPPED):
            about = os.lstat(root / path)
            facts = [os.fsencode(path), b"%o" % (about.st_mode & 0o170111)]
            if stat.S_ISLNK(about.st_mode):
                facts.append(os.fsencode(os.readlink(root / path)))
            elif stat.S_ISREG(about.st_mode) and about.st_size <= left:
                left -= about.st_size
                facts.append(_hash_file(root, path, about.st_size))
            elif stat.S_ISREG(about.st_mode):
                facts.append(b"%d %d" % (about.st_size, about.st_mtime_ns))
            hashed.update(b"".join(b"%d:%s" % (len(fact), fact) for fact in facts))
    except OSError as error:  # UnreadableFile, or a name that went away in between
        kind = "oversize" if error.errno == errno.EFBIG else "needs_software"
        raise PackageError(kind, f"its folder {folder} cannot be read: {error}") from None
    return f"sha256:{hashed.hexdigest()}"


def _hash_file(root: Path, path: Path, size: int) -> bytes:
    """At most `size` bytes: a file may grow while it is read. One that is closed to us is so to the
    server too."""
    hashed = hashlib.sha256()
    try:
        with open_file(root, path) as file:
            while size > 0 and (chunk := file.read(min(size, _CHUNK))):
                size -= len(chunk)
                hashed.update(chunk)
    except UnreadableFile as error:
        return b"unreadable: %d" % (error.errno or 0)
    return hashed.digest()


Resolve = Callable[[PackageRef], ResolvedVersion]


def plan_recipe(
    listing: Listing, resolve: Resolve, *, placeholders: bool = True
) -> LaunchRecipe | UnlaunchableServer:
    """The pinned recipe of a listing, or why there is none. `resolve` asks the registry for the
    exact version and integrity; a PackageError of it becomes an UnlaunchableServer. Without
    `placeholders` nothing is made up: arguments, variables and headers that need a value are left
    out."""
    identity = identify_server(listing)
    if not listing.runnable:
        return UnlaunchableServer(identity, "no_recipe", listing.reason or "no way to launch it")
    if listing.is_local:
        return plan_local(listing, str(identity), placeholders=placeholders)
    package = listing.package
    if package is None and listing.url:
        return _plan_remote(listing, str(identity), placeholders)
    if package is None or identity is None:
        kind = package.type if package else "nothing"
        what = f"{kind} to launch, expected npm, pypi, mcpb or oci"
        return UnlaunchableServer(None, "policy_denied", what)
    problem = find_name_problem(package)
    if problem:
        return UnlaunchableServer(identity, "no_recipe", problem)
    try:
        resolved = resolve(package)
    except PackageError as error:
        return UnlaunchableServer(identity, error.kind, str(error))
    about = {"context": describe_provider(listing), "placeholders": placeholders}
    launch = read_launch(listing)
    words = launch.own_args
    if package.type == "pypi" and words[:1] == ("-m",):
        words = words[2:]  # a Python package is started by its program, which runs that module
    env, spare, env_made_up = fill_environment(listing.env, **about)
    values = {name: value for name, value in env if f"env:{name}" not in env_made_up}
    args, made_up = fill_arguments(words, **about, values=values)
    return LaunchRecipe(
        server_id=identity,
        ecosystem=package.type,  # type: ignore[arg-type]
        name=_name_package(package),
        version=resolved.version,
        integrity=resolved.integrity,
        entry=None if package.type == "oci" else launch.entry,
        args=args,
        env=env,
        spare_env=spare,
        placeholders=(*made_up, *env_made_up),
        url=package.identifier if package.type == "mcpb" else None,
        python=launch.python or resolved.python,
        requirements=launch.requirements,
        released=resolved.released,
        instead_of=resolved.instead_of,
    )


def _name_package(package: PackageRef) -> str:
    if package.type == "pypi":
        return canonicalize_name(package.identifier)
    return parse_image(package)[0] if package.type == "oci" else package.identifier


def _plan_remote(
    listing: Listing, identity: str, placeholders: bool
) -> LaunchRecipe | UnlaunchableServer:
    about = {"context": describe_provider(listing), "placeholders": placeholders}
    url, url_made_up = fill_address(str(listing.url), **about)
    if url is None:
        return UnlaunchableServer(
            identity, "needs_argument", f"{listing.url!r} has places to fill in"
        )
    headers, made_up = fill_headers(listing.headers, **about)
    spoken: dict[str | None, Transport] = {"streamable-http": "http", "sse": "sse"}
    return LaunchRecipe(
        server_id=identity,
        ecosystem="remote",
        name=normalise_address(str(listing.url)),
        url=url,
        transport=spoken.get(listing.transport, "auto"),
        headers=headers,
        placeholders=(*url_made_up, *made_up),
    )
