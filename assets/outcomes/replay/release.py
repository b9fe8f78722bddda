"""The replay of a release: what was recorded in worlds when it was made, for who trains with it.

releases/<release>.replay.jsonl
"""

from pathlib import Path

from assets.contracts.quarantine.firewall import open_firewall
from assets.outcomes.replay.file import write_recording
from assets.outcomes.replay.recording import record_trajectories, select_clear
from assets.outcomes.trajectories.trajectory import TRAJECTORIES
from assets.synthesis.export.select import ask_firewall
from warehouse.store import Warehouse


def save_release_replay(warehouse: Warehouse, release: str) -> Path | None:
    """Writes the replay of a release that has none yet; None where no trajectory was played."""
    path = warehouse.home / "releases" / f"{release}.replay.jsonl"
    if path.exists():
        return path
    rows = warehouse.tables.read(TRAJECTORIES).to_dicts()
    rows = select_clear(rows, ask_firewall(open_firewall(warehouse))) if rows else []
    if not rows:
        return None
    write_recording(path, record_trajectories(rows))
    return path
