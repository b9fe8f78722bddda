"""Writing the settings of one server into toolmill.toml; all else in the file stays as it is."""

import os
import tomllib
from collections.abc import Mapping
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
    path = Path(os.path.realpath(config_path()))  # a link stays one
    try:
        before = path.read_bytes() if path.exists() else b""
        after = _change_text(before.decode(), server_id, changes)
    except ValueError as error:
        raise SettingsError(f"{path}: not TOML: {' '.join(str(error).split())}") from None
    _check_servers(path, after)
    if after.encode() != before:
        mode = S_IMODE(path.stat().st_mode) if path.exists() else 0o666
        write_atomically(path, after.encode(), mode)
    return path


def _change_text(text: str, server_id: str, changes: Mapping[str, Any]) -> str:
    """Raises ValueError where the text is no TOML, or `servers` no table of tables."""
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    tomllib.loads(text)  # tomlkit takes some files that the settings' own reader does not
    try:
        document = tomlkit.parse(text)
        servers = document.setdefault("servers", tomlkit.table(is_super_table=True))
        server = servers.setdefault(server_id, tomlkit.table())
        for name, value in changes.items():
            if value is None:
                server.pop(name, None)
            else:
                server[name] = value
    except (TOMLKitError, AttributeError, TypeError) as error:
        raise ValueError(str(error)) from None
    return tomlkit.dumps(document)


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
