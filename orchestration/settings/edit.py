"""Writing the settings of one server into toolmill.toml; all else in the file stays as it is."""

import fcntl
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from stat import S_IMODE
from typing import Any

from orchestration.settings.load import SettingsError
from orchestration.settings.model import config_path
from warehouse.storage.files import write_atomically


def write_server_settings(server_id: str, changes: Mapping[str, Any]) -> Path:
    """Sets names of `[servers."<server id>"]`, or removes those whose value is None; comments and
    order stay. Returns the file that was written, which is made where there is none.

    Raises SettingsError, with the file as it was, where it is no TOML or would hold no settings.
    """
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
            known = servers.get(server_id, {}) if isinstance(servers, dict) else {}
        except ValueError as error:
            raise _make_unreadable(path, error) from None
        changes = decide(known)
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
    """Raises ValueError where `servers` is no table of tables, or the text would change elsewhere
    too."""
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
    """The settings without one server's, and without `servers` where that is all of them."""
    others = {name: one for name, one in settings.get("servers", {}).items() if name != server_id}
    rest = {name: one for name, one in settings.items() if name != "servers"}
    return {**rest, "servers": others} if others else rest


def _check_servers(path: Path, text: str) -> None:
    """Raises SettingsError where a server's settings are none."""
    from pydantic import TypeAdapter, ValidationError

    from orchestration.settings.load import explain_errors
    from orchestration.settings.sandbox import Server

    wrong: list[str] = []
    try:
        servers = tomllib.loads(text).get("servers", {})
        TypeAdapter(dict[str, Server]).validate_python(servers)
        return
    except tomllib.TOMLDecodeError as error:
        wrong = [str(error)]
    except ValidationError as error:
        wrong = explain_errors(error)
    raise SettingsError(f"{path} is left as it was: " + "; ".join(wrong))
