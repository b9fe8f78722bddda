"""Where a month is simulated: a home and an instance of its own, and the settings it runs by."""

import os
from collections.abc import Iterable
from pathlib import Path

from demo.server import Replicas
from orchestration.settings.roles import Roles
from warehouse.storage.files import write_atomically

ROOT = Path(__file__).parents[2]
# Five trainings a month at most. A month's past is kept for a week, so that the four collections of
# a month have something to take away. No limit of a run leaves calls for the next.
SETTINGS = {
    "TOOLMILL_TRAINING__DRIFT__COOL_DOWN_H": "160",
    "TOOLMILL_TRAINING__DEVICE": "cpu",
    "TOOLMILL_EXECUTIONS__SECONDS": "600",
    "TOOLMILL_EXECUTIONS__CALLS": "100000",
    "TOOLMILL_RETENTION__VERSIONS": "3",
    "TOOLMILL_RETENTION__DAYS": "7",
    "TOOLMILL_RETENTION__GRACE_DAYS": "1",
    "TOOLMILL_RETENTION__EVENT_DAYS": "7",
    # Prices of a million tokens.
    **{f"TOOLMILL_ROLES__{name.upper()}__USD_IN": "0.10" for name in Roles.model_fields},
    **{f"TOOLMILL_ROLES__{name.upper()}__USD_OUT": "0.40" for name in Roles.model_fields},
    "GX_ANALYTICS_ENABLED": "false",
    "TOKENIZERS_PARALLELISM": "false",
    "TQDM_DISABLE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}


def point_at(root: Path, sites: Replicas | None) -> None:
    """Lets this process and its children work in `root`, on these replicas."""
    home = root / "home"
    instance = home / "state" / "dagster"
    os.environ.pop("TOOLMILL_STATE", None)
    os.environ |= {**SETTINGS, "TOOLMILL_HOME": str(home), "DAGSTER_HOME": str(instance)}
    for site, url in (sites or {}).items():
        os.environ[f"TOOLMILL_DEMO__{site.upper()}_PORT"] = url.rpartition(":")[2]
    write_atomically(instance / "dagster.yaml", (ROOT / "dagster.yaml").read_bytes())


def age_files(root: Path, now: float, before: float) -> None:
    """Gives files of the real clock, which is before the month begins, the month's time; not those
    of LanceDB, which holds them against a clock of its own (`vectors.py`)."""
    for path in list_files(root):
        if "lance" not in path.relative_to(root).parts and path.stat().st_mtime < before:
            os.utime(path, (now, now))


def measure_bytes(root: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(path.stat().st_size for path in list_files(root))


def list_files(root: Path) -> Iterable[Path]:
    return [p for p in root.rglob("*") if p.is_file() and not p.is_symlink()]
