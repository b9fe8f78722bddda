"""Needles of a home: its clear contracts, asked for with the requests that were accepted."""

from collections.abc import Sequence
from pathlib import Path

from assets.contracts.tool_id import ToolId
from assets.synthesis.tables import ONE_CALL
from serving.adhoc import read_source
from serving.index.model import IndexSource
from training.releases.index_source import build_published_source
from training.sets.split import TRAIN
from training.sets.training_set import TRAINING_SET
from warehouse.errors import UnusableInput
from warehouse.store import Warehouse
from warehouse.user_files import read_json_lines


def read_home(warehouse: Warehouse) -> tuple[IndexSource, list[dict[str, str]]]:
    """(source, {tool_id, instruction} of the accepted requests for one call in the test splits)."""
    source, _ = build_published_source(warehouse)
    rows = warehouse.tables.read(TRAINING_SET).to_dicts()
    asked = [
        {"tool_id": str(ToolId.of_row(row)), "instruction": row["instruction"]}
        for row in rows
        if row["split"] != TRAIN and (row.get("task") or ONE_CALL[0]) in ONE_CALL
    ]
    return source, asked


def read_files(servers: Path, requests: Path) -> tuple[IndexSource, Sequence[dict[str, str]]]:
    """The same of a file of servers, and one of rows {tool_id, instruction}. Raises
    UnusableInput."""
    source, _ = read_source(servers)
    asked = []
    for number, row in read_json_lines(requests):
        texts = {name: row.get(name) for name in ("tool_id", "instruction")}
        if not all(isinstance(text, str) and text.strip() for text in texts.values()):
            raise UnusableInput(
                f"{requests}, line {number}: expected texts in `tool_id` (server::tool) and"
                " `instruction`"
            )
        asked.append({name: str(text) for name, text in texts.items()})
    return source, asked
