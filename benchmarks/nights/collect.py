"""`toolmill gc --yes` in the month's time, with the bytes before and after."""

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks.nights.place import measure_bytes
from extensions.upkeep.retention.garbage import count_garbage
from extensions.upkeep.takedown.collect import Place, find_garbage, remove_garbage
from orchestration.runs.instance import open_instance
from orchestration.settings.load import load_settings
from orchestration.settings.sections import get_section


def collect_garbage(root: Path, now: float) -> dict[str, Any]:
    """{before, after (bytes of home and events), removed (kind -> count), skipped, failed}."""
    before = measure_store(root)
    settings = load_settings()
    with open_instance() as instance:
        home, state = settings.home_path(), settings.state_path()
        keep, releases = get_section(settings, "retention"), settings.training.releases
        found = find_garbage(Place(home, state, keep, releases, now, instance))
        gone = remove_garbage(found)
    removed = {kind: of["count"] for kind, of in count_garbage(gone).items()}
    rest = {"removed": removed, "skipped": found.skipped, "failed": found.failed}
    return {"before": before, "after": measure_store(root), **rest}


def measure_store(root: Path) -> dict[str, int]:
    """Bytes of Dagster's instance, and of all else in the home, where nobody has it open: the logs
    of databases that this process holds open are written back first."""
    home = root / "home"
    for path in (home / "state").rglob("*.db"):
        with closing(sqlite3.connect(path)) as opened:
            opened.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    events = measure_bytes(home / "state" / "dagster")
    return {"home": measure_bytes(home) - events, "events": events}


def list_unwell() -> list[str]:
    """What `toolmill doctor` finds wrong: its checks that do not hold. A process of its own: it
    looks at the machine's clock, not at the month's."""
    command = [str(Path(sys.executable).with_name("toolmill")), "doctor", "--json"]
    shown = subprocess.run(command, capture_output=True, text=True)
    try:
        checks = json.loads(shown.stdout)["checks"]
    except (ValueError, KeyError):
        return [f"doctor: {shown.stderr.strip()[-200:]}"]
    return [
        f"doctor: {check['name']}: {check['findings'][:1]}"
        for check in checks
        if not check["holds"]
    ]
