"""What one server is granted, changed: folders, hosts, network and volume of its block."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from assets.servers.deploy.grants import parse_folder
from assets.servers.sandbox.granted_hosts import format_host, parse_host
from warehouse.errors import UnusableInput


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


def change_block(block: Mapping[str, Any], change: GrantChange) -> dict[str, Any]:
    """What the block of one server holds after a change: name -> value, None for what is left out.
    Raises GrantRefused."""
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
    return {name: value or None for name, value in made.items()}


def _read_folders(texts: Sequence[str], here: Path) -> dict[Path, bool]:
    found: dict[Path, bool] = {}
    for text in texts:
        whole = text if text.startswith(("/", "~")) else str(here / text)
        try:
            path, written = parse_folder(whole)
        except ValueError as error:
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
