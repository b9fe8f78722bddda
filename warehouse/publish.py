"""Write, audit, publish: how a table becomes current in Dagster. A bad run leaves the last version:
`Failure` comes before the pointer moves, without retries, as the rows would fail again."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl
from dagster._core.definitions.metadata.metadata_set import TableMetadataSet

from warehouse.audit import AuditVerdict, ColumnExpectation, TableAudit, audit, read_expectations
from warehouse.sanitize.markdown import Markdown, escape_markdown, make_markdown_table, quote_text
from warehouse.storage.digest import digest_sources
from warehouse.storage.files import PointerBroken
from warehouse.storage.tables import RowPlan, StagedVersion, TableHead, TableSpec
from warehouse.store import Warehouse

OWNER = "team:toolmill"
_LONGEST_TEXT = 2000  # characters of what a check says
NOT_DUE = "nothing to check"  # what a declared rule observed that this run gave no verdict on
_ROOT = Path(__file__).resolve().parents[1]

Published = Iterator[dg.AssetCheckResult | dg.MaterializeResult]


@dataclass(frozen=True)
class AssetAudit:
    """What must hold before an asset becomes current: one blocking check each. `rules`: verdicts of
    the asset's own code, refusals (`refuse`) too, with what each asks for."""

    asset: str
    expectations: Sequence[ColumnExpectation] = ()
    rules: Mapping[str, str] = field(default_factory=dict)
    table: TableSpec | None = None

    @property
    def checks(self) -> list[str]:
        return [*(expect.rule for expect in self.expectations), *self.rules]

    def build_specs(
        self, partitions: dg.PartitionsDefinition | None = None
    ) -> list[dg.AssetCheckSpec]:
        """One blocking check per expectation and per rule, of each partition where there are some:
        or the last marketplace's pass would hide another's failure."""
        texts = {expect.rule: f"Great Expectations: {expect.text}" for expect in self.expectations}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", dg.PreviewWarning)
            return [
                dg.AssetCheckSpec(
                    name,
                    asset=self.asset,
                    blocking=True,
                    description=text,
                    partitions_def=partitions,
                )
                for name, text in {**texts, **self.rules}.items()
            ]

    def build_results(
        self, verdicts: TableAudit, before: TableHead | None
    ) -> Iterator[dg.AssetCheckResult]:
        """Every declared check's result. Raises ValueError naming a verdict nobody declared."""
        by_rule = {verdict.rule: verdict for verdict in verdicts.verdicts}
        if unknown := sorted(by_rule.keys() - set(self.checks)):
            raise ValueError(f"{self.asset}: rules {unknown} are not declared in its audit")
        for name in self.checks:
            verdict = by_rule.get(name, AuditVerdict(name, True, NOT_DUE))
            yield dg.AssetCheckResult(
                asset_key=self.asset,
                check_name=name,
                passed=verdict.passed,
                severity=dg.AssetCheckSeverity.WARN
                if verdict.warns
                else dg.AssetCheckSeverity.ERROR,
                description=escape_description(
                    verdict.observed if verdict.passed else verdict.describe()
                ),
                metadata={
                    "observed": verdict.observed,
                    "expected": verdict.expected or "-",
                    "current_version": before.digest if before else "none yet",
                },
            )


def audit_table(
    table: TableSpec,
    values: Mapping[str, Any] | None = None,
    rules: Mapping[str, str] | None = None,
) -> AssetAudit:
    """The audit of a one-table asset: its spec's and given rules, `values` as in `tables.toml`."""
    expectations = (*table.expectations, *read_expectations(values or {}))
    return AssetAudit(table.name, expectations, {**table.rules, **(rules or {})}, table)


def describe_asset(
    checked: AssetAudit,
    *sources: str,
    kinds: frozenset[str] | set[str] | None = None,
    partitions: dg.PartitionsDefinition | None = None,
) -> dict[str, Any]:
    """What `dg.asset` is given for a published asset: name, checks, schema, kinds, partitions.
    `sources`: folders or files whose digest is its code version."""
    metadata: dict[str, Any] = {}
    if checked.table:
        metadata["dagster/column_schema"] = _build_column_schema(checked.table)
    if checked.expectations:
        rows = [
            [expectation.rule, ", ".join(expectation.columns), expectation.text]
            for expectation in checked.expectations
        ]
        table = make_markdown_table(["expectation", "columns", "what is expected"], rows)
        metadata["great_expectations"] = make_markdown_metadata(table)
    return {
        "name": checked.asset,
        "check_specs": checked.build_specs(partitions),
        "partitions_def": partitions,
        "code_version": digest_code(*sources),
        "owners": [OWNER],
        "kinds": set(kinds or ({"polars", "parquet"} if checked.table else {"json"})),
        "tags": {"toolmill/package": sources[0].removesuffix(".py").replace("/", ".")},
        "metadata": metadata,
    }


@cache
def digest_code(*sources: str) -> str:
    """Digest of the source files under the repository's folders `sources`, 12 hex digits."""
    return digest_sources(_ROOT, *sources)


def publish(
    context: dg.AssetExecutionContext,
    warehouse: Warehouse,
    checked: AssetAudit,
    frame: pl.DataFrame,
    *,
    rules: Sequence[AuditVerdict] = (),
    plan: RowPlan | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Published:
    """Stages `frame`, audits it, then moves the partition's pointer; unchanged rows yield the same
    data version. plan: what was due, if more than changed rows. metadata: Markdown is shown."""
    spec = checked.table
    if spec is None:
        raise ValueError(f"{checked.asset} has no table; publish_digest publishes it")
    partition = context.partition_key if context.has_partition_key else None
    staged = warehouse.tables.stage(spec, frame, partition)
    before = warehouse.tables.head(spec.name, partition)
    last = _read_last(warehouse, spec, partition)
    changes = _count_plan(plan) or ({} if last is None else spec.count_changes(last, frame))
    # What the same values passed before is not validated again: to import Great Expectations
    # takes 4 s.
    unchanged: list[AuditVerdict] = []
    if before is not None and last is not None:
        passed = {(row["rule"], row["expected"]): AuditVerdict(**row) for row in before.audit}
        volatile = set(staged.spec.volatile)
        for expect in checked.expectations:
            verdict = passed.get((expect.rule, expect.text))
            if verdict is None or not verdict.passed or volatile & set(expect.columns):
                continue
            if before.digest == staged.digest or _hold_same(frame, last, expect.columns):
                unchanged.append(verdict)
    rules_held = {verdict.rule for verdict in unchanged}
    due = [expect for expect in checked.expectations if expect.rule not in rules_held]
    verdicts = TableAudit([*audit(frame, due, rules).verdicts, *unchanged])
    results = list(checked.build_results(verdicts, before))
    if not verdicts.passed:
        yield from results
        raise _build_refusal(spec.name, partition, verdicts.describe_failures(), before)
    head = warehouse.tables.promote(staged, context.run_id, verdicts.as_rows())
    counts = _count_rows(warehouse, staged, partition)
    if not staged.rows and counts.get("all_partitions") and not any(changes.values()):
        # The UI shows the last partition's figures as the asset's: those of one without rows, such
        # as `private` where nobody has files, would hide what the others say.
        changes, metadata = {}, None
    figures: dict[str, Any] = {
        **counts,
        "version_moved": before is None or before.digest != head.digest,
        "dagster/column_lineage": _trace_columns(context, spec),
        **changes,
        **(metadata or {}),
    }
    entries = {
        name: make_markdown_metadata(value) if isinstance(value, Markdown) else value
        for name, value in figures.items()
    }
    # Behind the version: Dagster counts results of a partition from before it as out of date.
    yield dg.MaterializeResult(
        asset_key=spec.name,
        data_version=dg.DataVersion(head.digest),
        metadata=entries,
        check_results=results,
    )


def make_markdown_metadata(text: Markdown) -> dg.MarkdownMetadataValue:
    """Markdown for an asset's page: of ours, with whatever a third party wrote escaped."""
    if not isinstance(text, Markdown):
        raise TypeError("a page shows Markdown that our code wrote: warehouse/sanitize/markdown.py")
    return dg.MetadataValue.md(str(text))  # Dagster's serialiser knows no kind of str but str


def escape_description(text: str) -> str:
    """What a check says, as text: the UI reads it as Markdown and loads the images in it. Where it
    could mean something there, as a code span, which can be read in a log too."""
    plain = str(escape_markdown(text, _LONGEST_TEXT))
    return plain if plain == text else str(quote_text(text, _LONGEST_TEXT))


def publish_digest(
    checked: AssetAudit, digest: str, rules: Sequence[AuditVerdict], **metadata: Any
) -> Published:
    """Publishes something that is not a table (a model, a release) under its content's name. The
    caller moves the pointer itself, before the last item is drawn and only if the audit passed."""
    verdicts = TableAudit(list(rules))
    results = list(checked.build_results(verdicts, None))
    if not verdicts.passed:
        yield from results
        raise _build_refusal(checked.asset, None, verdicts.describe_failures(), None)
    yield dg.MaterializeResult(
        asset_key=checked.asset,
        data_version=dg.DataVersion(digest),
        metadata=metadata,
        check_results=results,
    )


def refuse(
    context: dg.AssetExecutionContext,
    warehouse: Warehouse,
    checked: AssetAudit,
    rule: str,
    error: Exception,
) -> Published:
    """Publishes nothing because making the rows failed as a whole; the check `rule` says why."""
    partition = context.partition_key if context.has_partition_key else None
    before = warehouse.tables.head(checked.asset, partition)
    why = str(error)
    yield from checked.build_results(TableAudit([AuditVerdict(rule, False, why)]), before)
    raise _build_refusal(checked.asset, partition, why, before) from error


def skip_version(
    context: dg.AssetExecutionContext, warehouse: Warehouse, checked: AssetAudit, why: str
) -> Published:
    """Publishes nothing and fails nothing, where there is nothing yet to make a version of: what
    follows is skipped. Of an asset with `output_required=False`."""
    context.log.info(f"{checked.asset}: {why}")
    yield from checked.build_results(TableAudit([]), warehouse.tables.head(checked.asset))


def _hold_same(frame: pl.DataFrame, last: pl.DataFrame, columns: Sequence[str]) -> bool:
    """Whether these columns hold the same rows in both frames, in any order."""
    both = [each.select(columns).sort(columns) for each in (frame, last)]
    return both[0].equals(both[1])


def _build_column_schema(spec: TableSpec) -> dg.TableSchema:
    return dg.TableSchema(
        columns=[
            dg.TableColumn(
                name,
                type=str(kind),
                description=_describe_column(spec, name),
                constraints=dg.TableColumnConstraints(nullable=name not in spec.key),
            )
            for name, kind in spec.columns.items()
        ],
        constraints=dg.TableConstraints(other=[f"key: {', '.join(spec.key)}"]),
    )


_KEYS = ("_id", "_digest", "tool", "marketplace")  # endings of columns that stages hand on as is


def _trace_columns(context: dg.AssetExecutionContext, spec: TableSpec) -> dg.TableColumnLineage:
    """For each identity and digest, the same column of the assets that this one is made of: what
    joins their rows. Other columns of one name (`status`) say different things."""
    graph = context.job_def.asset_layer.asset_graph
    asset = context.assets_def.get_asset_spec(dg.AssetKey(spec.name))
    columns_of: dict[dg.AssetKey, set[str]] = {}
    for dep in asset.deps:
        metadata = graph.get(dep.asset_key).metadata if graph.has(dep.asset_key) else {}
        schema = TableMetadataSet.extract(metadata).column_schema
        columns_of[dep.asset_key] = {column.name for column in schema.columns} if schema else set()
    return dg.TableColumnLineage(
        {
            name: deps
            for name in spec.columns
            if name.endswith(_KEYS)
            and (
                deps := [
                    dg.TableColumnDep(asset_key=key, column_name=name)
                    for key, columns in columns_of.items()
                    if name in columns
                ]
            )
        }
    )


def _describe_column(spec: TableSpec, name: str) -> str | None:
    """The spec's words on a column, as Markdown that shows `<` as it is; None without any."""
    volatile = "volatile: takes no part in the version" if name in spec.volatile else None
    return "; ".join(filter(None, (spec.described.get(name), volatile))).replace("<", r"\<") or None


def _build_refusal(
    asset: str, partition: str | None, why: str, before: TableHead | None
) -> dg.Failure:
    name = f"{asset}[{partition}]" if partition else asset
    consequence = (
        f"version {before.digest[:12]} stays current" if before else "no version is current"
    )
    return dg.Failure(f"{name} is not published: {why}; {consequence}", allow_retries=False)


def _read_last(warehouse: Warehouse, spec: TableSpec, partition: str | None) -> pl.DataFrame | None:
    """The rows of the current version; None for one that is broken, which is replaced."""
    try:
        return warehouse.tables.read(spec, partition)
    except (OSError, pl.exceptions.PolarsError):
        return None


def _count_rows(
    warehouse: Warehouse, staged: StagedVersion, partition: str | None
) -> dict[str, Any]:
    """The standard figures of a table (`dagster.TableMetadataSet`): the UI shows those of whichever
    partition was made last as those of the table, so they are the ones of all of them."""
    if partition is None:
        return {"dagster/row_count": staged.rows}
    figures: dict[str, Any] = {"dagster/partition_row_count": staged.rows}
    try:
        counts = warehouse.tables.count_rows(staged.spec.name)
    except PointerBroken:  # of another partition: its own next run repairs it or names it
        return figures
    rows = [[name, count] for name, count in counts.items() if count]
    overall = {"all_partitions": make_markdown_table(["partition", "rows"], rows)} if rows else {}
    return {**figures, "dagster/row_count": sum(counts.values()), **overall}


def _count_plan(plan: RowPlan | None) -> dict[str, Any]:
    if plan is None:
        return {}
    return {
        "new": len(plan.new),
        "stale": len(plan.stale),
        "gone": len(plan.gone),
        "unchanged": len(plan.unchanged),
    }
