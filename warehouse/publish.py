"""Write, audit, publish: the one door through which a table becomes current in Dagster.

A bad night leaves yesterday's data current: `Failure` is raised after the check result and before
the pointer moves, and retries are off, since the same rows would fail again.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dagster as dg
import polars as pl

from warehouse.audit import Audit, Expect, Verdict, audit
from warehouse.sanitize.markdown import keep_cell, markdown_table
from warehouse.storage.tables import Head, Plan, TableSpec
from warehouse.store import Warehouse

CHECK = "audit"  # the name of every asset's blocking check

Published = Iterator[dg.AssetCheckResult | dg.MaterializeResult]


def audited(asset: str) -> list[dg.AssetCheckSpec]:
    """The check spec of an asset that publishes through this module."""
    text = "Great Expectations suite and row rules; the pointer moves only when all pass."
    return [dg.AssetCheckSpec(CHECK, asset=asset, blocking=True, description=text)]


def publish(
    context: dg.AssetExecutionContext,
    warehouse: Warehouse,
    spec: TableSpec,
    frame: pl.DataFrame,
    *,
    expectations: Sequence[Expect] = (),
    rules: Sequence[Verdict] = (),
    plan: Plan | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Published:
    """Stages `frame`, audits it, and only then moves the partition's pointer.

    Unchanged rows yield the same data version again, so nothing downstream is due.
    """
    partition = context.partition_key if context.has_partition_key else None
    staged = warehouse.tables.stage(spec, frame, partition)
    verdicts = audit(frame, expectations, rules)
    before = warehouse.tables.head(spec.name, partition)
    yield check_result(spec.name, verdicts, before)
    if not verdicts.passed:
        raise _refusal(spec.name, partition, verdicts.why(), before)
    head = warehouse.tables.promote(staged, context.run_id, verdicts.as_rows())
    figures: dict[str, Any] = {
        "rows": staged.rows,
        "version_moved": before is None or before.digest != head.digest,
        **_plan_figures(plan),
        **(metadata or {}),
    }
    yield dg.MaterializeResult(
        asset_key=spec.name, data_version=dg.DataVersion(head.digest), metadata=figures
    )


def publish_digest(asset: str, digest: str, verdicts: Audit, **metadata: Any) -> Published:
    """Publishes something that is not a table (a model, a release) under its content's name.

    The caller moves the pointer itself, before the last item is drawn and only if the audit passed.
    """
    yield check_result(asset, verdicts, None)
    if not verdicts.passed:
        raise _refusal(asset, None, verdicts.why(), None)
    yield dg.MaterializeResult(
        asset_key=asset, data_version=dg.DataVersion(digest), metadata=metadata
    )


def refuse(
    context: dg.AssetExecutionContext, warehouse: Warehouse, asset: str, rule: str, error: Exception
) -> Published:
    """Publishes nothing because making the rows failed as a whole; the check says why."""
    partition = context.partition_key if context.has_partition_key else None
    before = warehouse.tables.head(asset, partition)
    why = str(error)
    yield check_result(asset, Audit([Verdict(rule, False, why)]), before)
    raise _refusal(asset, partition, why, before) from error


def check_result(asset: str, verdicts: Audit, before: Head | None) -> dg.AssetCheckResult:
    """The audit as Dagster's check result, failures first in its metadata."""
    return dg.AssetCheckResult(
        asset_key=asset,
        check_name=CHECK,
        passed=verdicts.passed,
        severity=dg.AssetCheckSeverity.ERROR,
        description=verdicts.why() or f"{len(verdicts.verdicts)} rules passed",
        metadata={
            "failed": len(verdicts.failures),
            "rules": len(verdicts.verdicts),
            "verdicts": dg.MetadataValue.md(_table(verdicts)),
            "current_version": before.digest if before else "none yet",
        },
    )


def _refusal(asset: str, partition: str | None, why: str, before: Head | None) -> dg.Failure:
    name = f"{asset}[{partition}]" if partition else asset
    kept = f"version {before.digest[:12]} stays current" if before else "no version is current"
    return dg.Failure(f"{name} is not published: {why}; {kept}", allow_retries=False)


def _plan_figures(plan: Plan | None) -> dict[str, Any]:
    if plan is None:
        return {}
    return {
        "new": len(plan.new),
        "stale": len(plan.stale),
        "gone": len(plan.gone),
        "unchanged": len(plan.unchanged),
    }


def _table(verdicts: Audit) -> str:
    ordered = [*verdicts.failures, *(v for v in verdicts.verdicts if v.passed)]
    rows = [(v.rule, "yes" if v.passed else "**no**", v.observed[:200]) for v in ordered]
    return markdown_table(["rule", "passed", "observed"], rows, keep_cell)
