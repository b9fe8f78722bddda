"""Audits: Great Expectations suites over a staged table, turned into plain results."""

import os
from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any

import polars as pl

_SHORT = {
    "expect_column_values_to_be_unique": "unique",
    "expect_column_values_to_not_be_null": "present",
    "expect_column_values_to_be_in_set": "in_set",
    "expect_column_values_to_match_regex": "matches",
    "expect_column_values_to_be_between": "in_range",
}


@dataclass(frozen=True)
class ColumnExpectation:
    """A Great Expectations expectation. optional: a null passes; it sees them only on request."""

    type: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    optional: bool = True

    @property
    def columns(self) -> list[str]:
        column = self.arguments.get("column")
        return [column] if column else list(self.arguments.get("column_list", ()))

    @property
    def text(self) -> str:
        arguments, beside = self.arguments, " or null" if self.optional else ""
        if "value_set" in arguments:
            return f"one of {arguments['value_set']}{beside}"
        if "regex" in arguments:
            return f"values that match {arguments['regex']}{beside}"
        if "min_value" in arguments:
            return f"values from {arguments['min_value']} to {arguments['max_value']}"
        return self.type.removeprefix("expect_").replace("_", " ")

    @property
    def rule(self) -> str:
        """Its name as a check: the columns and what is expected of them."""
        if len(self.columns) > 1:
            return "key_unique"
        return f"{self.columns[0]}_{_SHORT.get(self.type, self.type)}"


@dataclass(frozen=True)
class AuditVerdict:
    """A rule's outcome; `observed` and `expected` are for readers. warns: refuses nothing."""

    rule: str
    passed: bool
    observed: str
    expected: str = ""
    warns: bool = False

    def describe(self) -> str:
        """One line: the rule, what was found, what was expected."""
        expected = f", expected {self.expected}" if self.expected else ""
        return f"{self.rule}: found {self.observed}{expected}"


@dataclass(frozen=True)
class TableAudit:
    verdicts: list[AuditVerdict]

    @property
    def passed(self) -> bool:
        return not self.failures

    @property
    def failures(self) -> list[AuditVerdict]:
        return [verdict for verdict in self.verdicts if not verdict.passed and not verdict.warns]

    def describe_failures(self) -> str:
        """One line that says which rules failed and on what."""
        return "; ".join(verdict.describe() for verdict in self.failures)

    def as_rows(self) -> list[dict[str, Any]]:
        return [asdict(verdict) for verdict in self.verdicts]


def expect_unique(*columns: str) -> ColumnExpectation:
    if len(columns) == 1:
        return ColumnExpectation("expect_column_values_to_be_unique", {"column": columns[0]})
    return ColumnExpectation("expect_compound_columns_to_be_unique", {"column_list": list(columns)})


def read_expectations(values: Mapping[str, Any]) -> list[ColumnExpectation]:
    """Expectations as `tables.toml` writes them: column -> true (present), a text (each value
    matches it), a list (each is one of it) or {from, to}; a null is fine behind `column?`."""
    return [_read_expectation(name.removesuffix("?"), value, name.endswith("?"))
            for name, value in values.items()]  # fmt: skip


def _read_expectation(column: str, value: Any, optional: bool) -> ColumnExpectation:
    match value:
        case True:
            kind, arguments, optional = "not_be_null", {}, True
        case str():
            kind, arguments = "match_regex", {"regex": value}
        case {"from": low, "to": high}:
            kind, arguments, optional = "be_between", {"min_value": low, "max_value": high}, True
        case _:
            kind, arguments = "be_in_set", {"value_set": sorted(value)}
    return ColumnExpectation(
        f"expect_column_values_to_{kind}", {"column": column, **arguments}, optional
    )


def check_fall(
    rule: str, worked: Set[str], works: Mapping[str, bool], *, proven: bool, floor: float, few: int
) -> AuditVerdict:
    """Whether servers that worked in the current version still do. A table is refused only if fewer
    than `floor` of them work and nothing tried in this run does (`proven`: one that does shows that
    the fault is not ours); otherwise a low rate warns, but for `few` servers or fewer. works:
    whether each works now."""
    before = [works[server] for server in worked if server in works]
    fell = len(before) > 1 and sum(before) < floor * len(before)
    low = len(works) > few and sum(works.values()) < floor * len(works)
    observed = (
        f"{sum(before)} of {len(before)} that worked before, {sum(works.values())} of {len(works)}"
        " in all"
    )
    expected = f"at least {floor:.0%} of each"
    return AuditVerdict(rule, not (fell or low), observed, expected, warns=proven or not fell)


def audit(
    frame: pl.DataFrame,
    expectations: Sequence[ColumnExpectation],
    rules: Sequence[AuditVerdict] = (),
) -> TableAudit:
    """Runs expectations over the frame and adds rules' verdicts. Great Expectations 1.24 has no
    polars, so audited columns go to pandas. An empty frame passes: row floors are rules."""
    verdicts = list(rules)
    if expectations and len(frame):
        results = _run_great_expectations(frame, expectations)
        verdicts += [
            _refuse_nulls(frame, *pair) for pair in zip(expectations, results, strict=True)
        ]
    return TableAudit(verdicts)


def _refuse_nulls(
    frame: pl.DataFrame, expect: ColumnExpectation, verdict: AuditVerdict
) -> AuditVerdict:
    nulls = 0 if expect.optional else frame[expect.columns[0]].null_count()
    if not nulls or not verdict.passed:
        return verdict
    return AuditVerdict(expect.rule, False, f"{nulls} null of {len(frame)}", expect.text)


def _run_great_expectations(
    frame: pl.DataFrame, expectations: Sequence[ColumnExpectation]
) -> list[AuditVerdict]:
    from great_expectations import ExpectationSuite
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

    columns = sorted({name for expect in expectations for name in expect.columns})
    batch = _open_table().get_batch({"dataframe": frame.select(columns).to_pandas()})
    # Results come in another order than asked where an expectation could not be tried.
    configured = [
        ExpectationConfiguration(type=e.type, kwargs=dict(e.arguments), meta={"place": place})
        for place, e in enumerate(expectations)
    ]
    suite = ExpectationSuite("staged", expectations=[c.to_domain_obj() for c in configured])
    # Counts and examples are half of the work, and told of what fails alone.
    if batch.validate(suite, result_format="BOOLEAN_ONLY").success:
        none = {"unexpected_count": 0, "element_count": len(frame)}
        return [_make_verdict(expect, True, none) for expect in expectations]
    results = {r.expectation_config.meta["place"]: r for r in batch.validate(suite).results}
    return [
        _make_verdict(expect, bool(results[place].success), results[place].result or {})
        for place, expect in enumerate(expectations)
    ]


@cache
def _open_table() -> Any:
    """The batch definition for every table: one context a process and one suite a table, 42 ms for
    five expectations instead of 78."""
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    # 4-5 s and 250 MB: only when a table is really audited.
    import great_expectations as gx

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}  # type: ignore[assignment]
    assets = context.data_sources.add_pandas("staged")
    return assets.add_dataframe_asset("table").add_batch_definition_whole_dataframe("whole")


def _make_verdict(
    expect: ColumnExpectation, passed: bool, result: Mapping[str, Any]
) -> AuditVerdict:
    unexpected = result.get("unexpected_count", 0)
    examples = [str(value)[:80] for value in result.get("partial_unexpected_list", [])[:3]]
    observed = f"{unexpected} unexpected of {result.get('element_count', '?')}"
    if examples:
        observed += f", e.g. {', '.join(examples)}"
    return AuditVerdict(expect.rule, passed, observed, expect.text)
