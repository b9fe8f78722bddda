"""Where Dagster's instance of a state lies."""

import os
from pathlib import Path

POSTGRES = "DAGSTER_POSTGRES_URL"


def find_instance_folder(state: Path) -> Path | None:
    """The folder of Dagster's instance; None before the first run."""
    folder = Path(os.environ.get("DAGSTER_HOME") or state / "dagster")
    return folder if (folder / "dagster.yaml").is_file() else None


def is_own_instance(folder: Path, state: Path) -> bool:
    """Whether an instance is the one in a state: another, and a Postgres, may hold the runs of
    other projects."""
    return POSTGRES not in os.environ and folder.resolve() == (state / "dagster").resolve()
