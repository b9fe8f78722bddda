"""Extensions: what installed packages add to the core, by entry point.

An extension is a package that names objects under these groups in its `pyproject.toml`:

- `toolmill.commands`: a `typer.Typer`. With a name it is a command group, or adds to the core's
  group of that name; without one its commands are top-level.
- `toolmill.definitions`: a module of Dagster assets. Its function `build_sensors(jobs)`, if there
  is one, returns sensors over the jobs of the core.
- `toolmill.settings`: a Pydantic model or dataclass. The name is its section in `toolmill.toml`,
  e.g. `retention` or `training.sidecar`.
- `toolmill.outboxes`: a class that collects the requests of roles with `batch = true`
  (`warehouse/llm/client.py`, RequestOutbox).
- `toolmill.fleets`: a class that runs launches on other machines (`warehouse/fleet.py`), under the
  value of `fleet.runs_on`.
- `toolmill.ledgers`: a class like `warehouse.ledger.database:SqliteStore`, the engine of the
  database that TOOLMILL_LEDGER_URL names.
- `toolmill.tables`: a `TableSpec` that the extension publishes, under the table's name.
- `toolmill.roles`: a `ModelRole` (`training/role.py`), a kind of model.
- `toolmill.model_cards`: a function that writes the card of a trained model.
- `toolmill.rerankers`: opens the reranker of an index (`serving/ranking/reranking.py`).
- `toolmill.learners`: teaches it from the log of calls (`serving/meta/context.py`).
- `toolmill.release_files`: adds files to `release export --weights` (`serving/export.py`).

The core imports no extension by name (`tests/orchestration/test_laws.py`).
"""

import sys
from functools import cache
from importlib.metadata import entry_points
from typing import Any

COMMANDS = "toolmill.commands"
DEFINITIONS = "toolmill.definitions"
SETTINGS = "toolmill.settings"
TABLES = "toolmill.tables"
ROLES = "toolmill.roles"
MODEL_CARDS = "toolmill.model_cards"
RERANKERS = "toolmill.rerankers"
LEARNERS = "toolmill.learners"
RELEASE_FILES = "toolmill.release_files"
LEDGERS = "toolmill.ledgers"
OUTBOXES = "toolmill.outboxes"
FLEETS = "toolmill.fleets"


@cache
def load_extensions(group: str) -> dict[str, Any]:
    """Entry point name -> object, sorted by name. One that cannot be imported is left out and named
    on stderr, so that a broken extension does not stop the core."""
    loaded: dict[str, Any] = {}
    for point in sorted(entry_points(group=group), key=lambda point: point.name):
        try:
            loaded[point.name] = point.load()
        except Exception as error:
            package = point.dist.name if point.dist else "unknown package"
            sys.stderr.write(
                f"extension {point.name!r} of {package} is left out: {point.value} cannot be"
                f" imported ({type(error).__name__}: {error}); reinstall or remove that package\n"
            )
    return loaded
