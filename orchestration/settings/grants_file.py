"""Writing what one server is granted into toolmill.toml; the rest of the file stays as it is."""

import fcntl
import os
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from assets.servers.deploy.grants import parse_folder
from assets.servers.egress.hosts import format_host, parse_host
from orchestration.settings.sandbox import Server
from warehouse.errors import UnusableInput
from warehouse.storage.files import write_atomically

Block = dict[str, Any]
_KEYS = ("network", "folders", "hosts", "volume")


class GrantRefused(UnusableInput):
    """What cannot be granted, why, and what to do instead."""


@dataclass(frozen=True)
class GrantChange:
    """What is granted besides, or taken back (revoke; all of it where nothing is named). folders,
    hosts: as they are typed; a relative folder is one below `here`."""

    folders: Sequence[str] = ()
    hosts: Sequence[str] = ()
    network: Literal["none", "full"] | None = None
    volume: bool = False
    revoke: bool = False
    here: Path = Path("/")

    @property
    def is_empty(self) -> bool:
        return not (self.folders or self.hosts or self.network or self.volume)


def change_block(block: Block, change: GrantChange) -> Block:
    """The block of one server after a change; its other names are left as they are. Raises
    GrantRefused."""
    folders = _read_folders(block.get("folders", ()), Path("/"))
    hosts = _read_hosts(block.get("hosts", ()))
    named, wanted = _read_folders(change.folders, change.here), _read_hosts(change.hosts)
    network, volume = block.get("network"), bool(block.get("volume"))
    if not change.revoke:
        network, volume = change.network or network, volume or change.volume
        # The first folder lies where recipes name one: a change of it must not move it.
        folders, hosts = {**folders, **named}, list(dict.fromkeys([*hosts, *wanted]))
    elif change.is_empty:
        network, volume, folders, hosts = None, False, {}, []
    else:
        _require_granted([str(path) for path in named if path not in folders])
        _require_granted([host for host in wanted if host not in hosts])
        folders = {path: mode for path, mode in folders.items() if path not in named}
        hosts = [host for host in hosts if host not in wanted]
        network, volume = (None if change.network else network), volume and not change.volume
    texts = [f"{path}:rw" if written else str(path) for path, written in folders.items()]
    made = {"network": network, "folders": texts, "hosts": hosts, "volume": volume}
    rest = {name: value for name, value in block.items() if name not in _KEYS}
    return {**rest, **{name: value for name, value in made.items() if value}}


def _check_block(server_id: str, block: Block) -> Server:
    """The block as settings read it. Raises GrantRefused."""
    try:
        return TypeAdapter(Server).validate_python(block)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        said = first["msg"].removeprefix("Value error, ")
        raise GrantRefused(f"{server_id}: {said}") from None


def write_block(
    path: Path, server_id: str, change: GrantChange, check: Callable[[Server], None]
) -> Server:
    """Changes the server's block in the file, whole or not at all, and keeps every other line.
    check: raises for a block that is not to be written. Raises GrantRefused, and OSError with the
    file as it was."""
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    path = path.resolve()  # of a link: the file that it leads to
    with _hold_folder(path.parent):
        text = path.read_bytes().decode() if path.exists() else ""
        before = tomllib.loads(text)
        block = change_block(before.get("servers", {}).get(server_id, {}), change)
        server = _check_block(server_id, block)
        check(server)
        try:
            document = tomlkit.parse(text)
            _put_block(document, server_id, block)
            written = document.as_string()
            after = tomllib.loads(written)
        except (TOMLKitError, tomllib.TOMLDecodeError, TypeError, AttributeError) as error:
            raise _make_manual(path, server_id, block, str(error)) from None
        servers = {**before.get("servers", {}), server_id: block}
        expected = {name: one for name, one in servers.items() if one}
        found = after.pop("servers", {})
        if {name: one for name, one in found.items() if one} != expected or after != {
            name: value for name, value in before.items() if name != "servers"
        }:
            raise _make_manual(path, server_id, block, "the file would read otherwise")
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o666
        write_atomically(path, written.encode(), mode)
    return server


@contextmanager
def _hold_folder(folder: Path) -> Iterator[None]:
    """Holds a folder against another process that writes the file in it; leaves nothing there."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _put_block(document: Any, server_id: str, block: Block) -> None:
    """Sets the four names of one server's table, which is made at the end where there is none."""
    import tomlkit

    servers = document.get("servers")
    if servers is None:
        document["servers"] = servers = tomlkit.table(is_super_table=True)
    table = servers.get(server_id)
    if table is None:
        if not block:
            return
        servers[server_id] = table = tomlkit.table()
    for name in _KEYS:
        if name not in block:
            table.pop(name, None)
        elif name not in table or table[name] != block[name]:
            table[name] = block[name]
    if not block:
        servers.pop(server_id)


def _make_manual(path: Path, server_id: str, block: Block, why: str) -> GrantRefused:
    """What to write by hand where a file is laid out as no program should change it."""
    import tomlkit

    lines = " ".join(tomlkit.dumps({n: block[n] for n in _KEYS if n in block}).split("\n"))
    told = f'[servers."{server_id}"] {lines.strip()}'
    return GrantRefused(f"{path} is left as it was ({why}): write {told} there yourself")


def _read_folders(texts: Sequence[str], here: Path) -> dict[Path, bool]:
    found: dict[Path, bool] = {}
    for text in texts:
        whole = text if text.startswith(("/", "~")) else str(here / text)
        try:
            path, written = parse_folder(whole)
        except (ValueError, RuntimeError) as error:  # no home of that name
            raise GrantRefused(str(error)) from None
        found[path] = written
    return found


def _read_hosts(texts: Sequence[str]) -> list[str]:
    try:
        return [format_host(parse_host(text)) for text in texts]
    except ValueError as error:
        raise GrantRefused(str(error)) from None


def _require_granted(missing: Sequence[str]) -> None:
    if missing:
        raise GrantRefused(f"{missing[0]} is not granted: `toolmill grant SERVER` lists what is")
