"""Changes one server's block in `toolmill.toml`; all else stays as it is."""

import fcntl
import os
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from stat import S_IMODE
from typing import Any

from orchestration.settings.load import SettingsError
from orchestration.settings.model import config_path
from warehouse.storage.files import write_atomically


def write_server_settings(server_id: str, changes: Mapping[str, Any]) -> Path:
    """Sets names of `[servers."<server id>"]` to values that its settings take, keeping comments
    and order; returns the file. Nobody else who writes it so does meanwhile. Raises SettingsError
    for broken TOML, the file untouched."""
    path = Path(os.path.realpath(config_path()))  # a link stays one
    with _hold_folder(path.parent):
        before = path.read_bytes() if path.exists() else b""
        try:
            tomllib.loads(before.decode())  # tomlkit takes some files that this reader does not
            after = _change_text(before.decode(), server_id, changes)
        except ValueError as error:
            problem = " ".join(str(error).split())
            raise SettingsError(f"{path}: not TOML: {problem}") from None
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


def _change_text(text: str, server_id: str, changes: Mapping[str, Any]) -> str:
    """Raises ValueError if `servers` is no table of tables, or other text would change too."""
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        document = tomlkit.parse(text)
        servers = document.setdefault("servers", tomlkit.table(is_super_table=True))
        server = servers.setdefault(server_id, tomlkit.table())
        for name, value in changes.items():
            if name not in server or server[name] != value:
                server[name] = value
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
