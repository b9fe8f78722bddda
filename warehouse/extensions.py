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
- `toolmill.reports`: renders a section of the training report (`training/reporting/report.py`).
- `toolmill.perturbations`: changes tools and golden calls of test items (`perturb_tools`).
- `toolmill.rerankers`: opens the reranker of an index (`serving/ranking/strategies.py`).
- `toolmill.learners`: teaches it from the log of calls (`serving/meta/context.py`).
- `toolmill.marketplaces`: a `MarketplaceAdapter` (`assets/marketplaces/policy.py`).
- `toolmill.providers`: a `Provider` of language models (`warehouse/llm/roles.py`).
- `toolmill.hooks`: a function that the core calls where a user asks for it: `index_mcp_zero`,
  `open_reviser`, `train_over_bucket`, `write_weights`.

The core imports no extension by name (`tests/orchestration/test_laws.py`).
"""

import sys
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from warehouse.errors import UnusableInput

COMMANDS = "toolmill.commands"
DEFINITIONS = "toolmill.definitions"
SETTINGS = "toolmill.settings"
TABLES = "toolmill.tables"
ROLES = "toolmill.roles"
MODEL_CARDS = "toolmill.model_cards"
PERTURBATIONS = "toolmill.perturbations"
REPORTS = "toolmill.reports"
RERANKERS = "toolmill.rerankers"
LEARNERS = "toolmill.learners"
LEDGERS = "toolmill.ledgers"
OUTBOXES = "toolmill.outboxes"
FLEETS = "toolmill.fleets"
HOOKS = "toolmill.hooks"


class ExtensionMissing(UnusableInput):
    """What was asked for is done by an extension that is not installed."""


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


def load_hook(name: str) -> Any:
    for point in entry_points(group=HOOKS, name=name):
        return point.load()
    raise ExtensionMissing(
        f"no installed package registers {name!r} under {HOOKS}; install the extension that does"
    )
