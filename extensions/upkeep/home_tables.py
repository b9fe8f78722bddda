"""Every table that a home may hold, by name."""

from assets.catalogue.catalogue import CATALOGUE
from assets.contracts.changes import CHANGES, ORIGINS
from assets.contracts.findings import FINDINGS, SCANS
from assets.contracts.listed_contracts import LISTED
from assets.contracts.quarantined_tools import CLEAR, HELD
from assets.contracts.snapshot import SNAPSHOTS
from assets.marketplaces.listing_table import LISTINGS
from assets.outcomes.reliability.table import RELIABILITY
from assets.outcomes.table import EXECUTIONS
from assets.outcomes.trace_pairs import TRACES
from assets.outcomes.trajectory import TRAJECTORIES
from assets.servers.deploy.deployment_table import DEPLOYMENTS
from assets.synthesis.judging.trials import JUDGE_TRIALS
from assets.synthesis.pair_report import SPEND
from assets.synthesis.summaries import SUMMARIES
from assets.synthesis.tables import CURRICULUM, EXPLORATIONS, JUDGEMENTS, PAIRS
from assets.vectors.confusable_table import CONFUSABLES
from assets.vectors.index import VECTORS
from training.adapter_table import make_adapter_table
from training.drift.drift import DRIFT
from training.evaluation.caller_table import CALLER_EVALUATION
from training.evaluation.retriever import RETRIEVER_EVALUATION
from training.role import list_roles
from training.sets.training_set import TRAINING_SET
from warehouse.extensions import TABLES as TABLES_GROUP
from warehouse.extensions import load_extensions
from warehouse.storage.tables import TableSpec

ADAPTERS = tuple(make_adapter_table(role) for role in list_roles())
_ALL = (
    *(LISTINGS, DEPLOYMENTS, SNAPSHOTS, ORIGINS, CHANGES, FINDINGS, SCANS, CLEAR, HELD, LISTED),
    *(CATALOGUE, VECTORS, CONFUSABLES, SUMMARIES),
    *(PAIRS, JUDGEMENTS, JUDGE_TRIALS, SPEND, EXPLORATIONS, EXECUTIONS, RELIABILITY),
    *(TRAJECTORIES, TRACES),
    *(CURRICULUM, TRAINING_SET, DRIFT, *ADAPTERS, RETRIEVER_EVALUATION, CALLER_EVALUATION),
    *load_extensions(TABLES_GROUP).values(),
)
TABLES: dict[str, TableSpec] = {table.name: table for table in _ALL}
# What is read beyond its last version by who wants the state of today: a fold over all its
# publications (first seen, contracts of before, rug pulls), or the sets that models learnt from.
KEPT_WHOLE = frozenset((SNAPSHOTS.name, TRAINING_SET.name))
# What is read as of the time of a set that a model learnt from (`training/drift/sources.py`).
KEPT_OF_SETS = frozenset((VECTORS.name, JUDGEMENTS.name))
