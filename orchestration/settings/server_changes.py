"""Changes one server's block in `toolmill.toml`, what it is granted; all else stays as it is."""

import fcntl
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from stat import S_IMODE
from typing import Any, Literal

from assets.servers.deploy.grants import parse_folder
from assets.servers.sandbox.gateway import format_host, parse_host
from orchestration.settings.load import SettingsError
from orchestration.settings.model import config_path
from warehouse.errors import UnusableInput
from warehouse.storage.files import write_atomically


class GrantRefused(UnusableInput):
    """What cannot be granted, why, and what to do instead."""


@dataclass(frozen=True)
class GrantChange:
    """What is granted besides, or taken back (revoke; all of it where nothing is named). folders,
    hosts: as they are typed; a relative folder is one below `here`."""

    folders: Sequence[str] = ()
    hosts: Sequence[str] = ()
    network: Literal["none", "full"] | None = None
    revoke: bool = False
    here: Path = Path("/")

    @property
    def is_empty(self) -> bool:
        return not (self.folders or self.hosts or self.network)


def change_block(block: Mapping[str, Any], change: GrantChange) -> dict[str, Any]:
    """One server's block after a change: name -> value, None if left out. Raises GrantRefused."""
    folders = _read_folders(block.get("folders", ()), Path("/"))
    hosts = _read_hosts(block.get("hosts", ()))
    change_folders = _read_folders(change.folders, change.here)
    change_hosts = _read_hosts(change.hosts)
    network = block.get("network")
    if not change.revoke:
        network = change.network or network
        # The first folder lies where recipes name one: a change of it must not move it.
        folders, hosts = {**folders, **change_folders}, list(dict.fromkeys([*hosts, *change_hosts]))
    elif change.is_empty:
        network, folders, hosts = None, {}, []
    else:
        _require_granted([str(path) for path in change_folders if path not in folders])
        _require_granted([host for host in change_hosts if host not in hosts])
        folders = {path: mode for path, mode in folders.items() if path not in change_folders}
        hosts = [host for host in hosts if host not in change_hosts]
        network = None if change.network else network
    texts = [f"{path}:rw" if written else str(path) for path, written in folders.items()]
    values = {"network": network, "folders": texts, "hosts": hosts}
    return {name: value or None for name, value in values.items()}


def _read_folders(texts: Sequence[str], here: Path) -> dict[Path, bool]:
    result: dict[Path, bool] = {}
    for text in texts:
        whole = text if text.startswith(("/", "~")) else str(here / text)
        try:
            path, written = parse_folder(whole)
        except ValueError as error:
            raise GrantRefused(str(error)) from None
        result[path] = written
    return result


def _read_hosts(texts: Sequence[str]) -> list[str]:
    try:
        return [format_host(parse_host(text)) for text in texts]
    except ValueError as error:
        raise GrantRefused(str(error)) from None


def _require_granted(missing: Sequence[str]) -> None:
    if missing:
        raise GrantRefused(f"{missing[0]} is not granted: `toolmill grant SERVER` lists what is")


def write_server_settings(server_id: str, changes: Mapping[str, Any]) -> Path:
    """Sets names of `[servers."<server id>"]`, or removes None ones, keeping comments and order;
    returns the file. Raises SettingsError for broken TOML or settings, the file untouched."""
    return change_server_settings(server_id, lambda _: changes)


def change_server_settings(
    server_id: str, decide: Callable[[Mapping[str, Any]], Mapping[str, Any]]
) -> Path:
    """`write_server_settings` of what `decide` makes of the server's settings in the file. Nobody
    else who writes it so does meanwhile; what `decide` raises leaves the file as it was."""
    path = Path(os.path.realpath(config_path()))  # a link stays one
    with _hold_folder(path.parent):
        before = path.read_bytes() if path.exists() else b""
        try:
            # tomlkit takes some files that the settings' own reader does not
            servers = tomllib.loads(before.decode()).get("servers", {})
            section = servers.get(server_id, {}) if isinstance(servers, dict) else {}
        except ValueError as error:
            raise _make_unreadable(path, error) from None
        changes = decide(section)
        try:
            after = _change_text(before.decode(), server_id, changes)
        except ValueError as error:
            raise _make_unreadable(path, error) from None
        _check_servers(path, after)
        if after.encode() != before:
            mode = S_IMODE(path.stat().st_mode) if path.exists() else 0o666
            write_atomically(path, after.encode(), mode)
    return path


@contextmanager
def _hold_folder(folder: Path) -> Iterator[None]:
    """Holds a folder against another process that changes the file in it; leaves nothing there."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _make_unreadable(path: Path, error: ValueError) -> SettingsError:
    return SettingsError(f"{path}: not TOML: {' '.join(str(error).split())}")


def _change_text(text: str, server_id: str, changes: Mapping[str, Any]) -> str:
    """Raises ValueError if `servers` is no table of tables, or other text would change too."""
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        document = tomlkit.parse(text)
        servers = document.setdefault("servers", tomlkit.table(is_super_table=True))
        server = servers.setdefault(server_id, tomlkit.table())
        for name, value in changes.items():
            if value is None:
                server.pop(name, None)
            elif name not in server or server[name] != value:
                server[name] = value
        if not server:
            servers.pop(server_id)
    except (TOMLKitError, AttributeError, TypeError) as error:
        raise ValueError(str(error)) from None
    written = tomlkit.dumps(document)
    if _drop_server(tomllib.loads(written), server_id) != _drop_server(
        tomllib.loads(text), server_id
    ):
        raise ValueError(
            f'[servers."{server_id}"] cannot be changed alone; write it there yourself'
        )
    return written


def _drop_server(settings: dict[str, Any], server_id: str) -> dict[str, Any]:
    others = {key: value for key, value in settings.get("servers", {}).items() if key != server_id}
    remaining = {name: value for name, value in settings.items() if name != "servers"}
    return {**remaining, "servers": others} if others else remaining


def _check_servers(path: Path, text: str) -> None:
    from pydantic import TypeAdapter, ValidationError

    from orchestration.settings.load import explain_errors
    from orchestration.settings.schema import ServerSection

    wrong: list[str] = []
    try:
        servers = tomllib.loads(text).get("servers", {})
        TypeAdapter(dict[str, ServerSection]).validate_python(servers)
        return
    except tomllib.TOMLDecodeError as error:
        wrong = [str(error)]
    except ValidationError as error:
        wrong = explain_errors(error)
    raise SettingsError(f"{path} is left as it was: " + "; ".join(wrong))
