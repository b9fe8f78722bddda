"""The replay of a home, and of each release: for who trains or tests a caller with it.

releases/<release>.replay.jsonl
"""

from pathlib import Path

from assets.contracts.quarantined_tools import open_firewall, read_clear
from assets.outcomes.replay.file import write_recording
from assets.outcomes.replay.recording import (
    Recording,
    add_executions,
    record_trajectories,
    select_clear,
)
from assets.outcomes.table import EXECUTIONS
from assets.outcomes.trajectories.trajectory import TRAJECTORIES
from assets.synthesis.export.selection import ask_firewall
from warehouse.store import Warehouse


def record_home(warehouse: Warehouse) -> Recording | None:
    """What trajectories and executions of a home recorded, without what rests on a held contract;
    None where no trajectory is left."""
    rows = warehouse.tables.read(TRAJECTORIES).to_dicts()
    rows = select_clear(rows, ask_firewall(open_firewall(warehouse))) if rows else []
    if not rows:
        return None
    made = record_trajectories(rows)
    executed = warehouse.tables.read(EXECUTIONS).to_dicts()
    if executed:
        add_executions(made, executed, read_clear(warehouse), warehouse.blobs.get)
    return made


def save_release_replay(warehouse: Warehouse, release: str) -> Path | None:
    """Writes the replay of a release that has none yet; None where there is nothing to replay."""
    path = warehouse.home / "releases" / f"{release}.replay.jsonl"
    if path.exists():
        return path
    made = record_home(warehouse)
    if made is None:
        return None
    write_recording(path, made)
    return path
