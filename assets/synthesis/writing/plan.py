"""Plans and writes a marketplace's pairs: what is due, what stays, what is new."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

import numpy as np

from assets.one_server import keep_other_servers
from assets.synthesis.offer import ClearOffer, read_offer
from assets.synthesis.policy import SynthesisPolicy
from assets.synthesis.tables import (
    CLARIFY,
    LOOKALIKE,
    MISSING,
    NO_TOOL,
    PAIRS,
    PARALLEL,
    PASSING,
    RECOVERY,
    SEQUENTIAL,
    SINGLE,
    WORLD,
    TaskSource,
    WorldTask,
    WorldUnavailable,
    dump_text,
    fail_row,
    make_call_message,
    make_golden,
    make_pair_id,
    make_unit_key,
    make_user_message,
    read_goldens,
    read_grants,
)
from assets.synthesis.verify.filters import SiblingTools, filter_rows
from assets.synthesis.writing.explored_calls import add_explored, read_explored
from assets.synthesis.writing.profiles import KINDS, is_evolved
from assets.synthesis.writing.row_builder import RowBuilder, StepFailed, check_values, describe_unit
from assets.synthesis.writing.several_turns import (
    write_no_tool,
    write_recovery,
    write_several,
    write_vague,
)
from assets.synthesis.writing.single_call import write_single
from assets.synthesis.writing.units import (
    WritingUnit,
    count_rows,
    list_steps,
    make_units,
    plan_units,
)
from assets.vectors.encoders.embedder import Embedder
from assets.vectors.index import INSTRUCTIONS, embed_either_kind, embed_texts, find_near_rows
from warehouse.item_failure import describe_failure, try_item
from warehouse.json_types import Json, Record
from warehouse.llm.client import LLM, OFFLINE, run_batch
from warehouse.llm.roles import PENDING
from warehouse.progress import Progress
from warehouse.storage.digest import digest
from warehouse.storage.lance import LanceStore
from warehouse.storage.tables import RowPlan, plan_keys
from warehouse.store import Warehouse

STEP = "world"


def add_worlds(
    units: Sequence[WritingUnit], source: TaskSource | None, policy: SynthesisPolicy
) -> list[WritingUnit]:
    """The units; one whose tool has tasks in a world knows what decides them."""
    if source is None or not policy.world_pairs:
        return list(units)
    digests = {
        name: source.digest_tasks(name, tools) for name, tools in _group_tools(units).items()
    }

    def add_world(unit: WritingUnit) -> WritingUnit:
        decides = digests.get(unit.own["server_id"], {}).get(unit.own["tool"])
        if unit.task != SINGLE or unit.problem or decides is None:
            return unit
        return replace(unit, world=f"{policy.world_pairs} {decides}")

    return [add_world(unit) for unit in units]


def write_world_pairs(
    units: Sequence[WritingUnit],
    due: Mapping[str, str],
    source: TaskSource | None,
    llm: LLM,
    policy: SynthesisPolicy,
) -> list[dict[str, Json]]:
    """Rows of PAIRS out of worlds for the units that are due, at most `world_pairs` of a tool; of a
    world that cannot be had one row a tool says so."""
    rows: list[dict[str, Json]] = []
    if source is None:
        return rows
    due_units: dict[str, list[WritingUnit]] = defaultdict(list)
    for unit in units:
        if unit.world and unit.key in due:
            due_units[unit.own["server_id"]].append(unit)
    tools = _group_tools(units)
    for server, server_units in due_units.items():
        try:
            tasks = source.draw_tasks(server, tools[server])
        except Exception as error:
            is_known = isinstance(error, WorldUnavailable)
            problem = str(error) if is_known else describe_failure(error)
            failure = StepFailed(STEP, "world_failed", problem, "see `toolmill worlds --check`")
            rows += [
                _start_row(item, due, 0, llm, policy).make_row(failure) for item in server_units
            ]
            continue
        for unit in server_units:
            mine = [item for item in tasks if item.tool == unit.own["tool"]]
            rows += [
                _write_row(_start_row(unit, due, number, llm, policy), task)
                for number, task in enumerate(mine[: policy.world_pairs])
            ]
    return rows


def _group_tools(units: Sequence[WritingUnit]) -> dict[str, list[str]]:
    tools: dict[str, list[str]] = defaultdict(list)
    for unit in units:
        if unit.task == SINGLE:
            tools[unit.own["server_id"]].append(unit.own["tool"])
    return tools


def _start_row(
    unit: WritingUnit, due: Mapping[str, str], number: int, llm: LLM, policy: SynthesisPolicy
) -> RowBuilder:
    writing = RowBuilder(unit, due[unit.key], policy.pairs_per_tool + number, llm, policy)
    writing.columns |= {"kind": KINDS[0], "profile": "{}", "provider": OFFLINE, "model": STEP}
    writing.columns["basis"] = WORLD
    return writing


def _write_row(writing: RowBuilder, task: WorldTask) -> dict[str, Json]:
    row = writing.unit.own
    writing.columns |= {"seed": task.origin.seed, "world_task": dump_text(asdict(task.origin))}
    writing.shown = {row["contract_digest"]: row}
    try:
        text = writing.set_request(STEP, task.request)
        arguments = check_values(STEP, task.arguments)
        messages = [make_user_message(text), make_call_message(1, [(task.tool, arguments)])]
        writing.set_conversation(messages, [make_golden(row, arguments)], [row])
        writing.verify_row()
    except StepFailed as failure:
        return writing.make_row(failure)
    return writing.make_row()


Rows = list[dict[str, Json]]
OpenRetriever = Callable[[], Embedder | None]

# A unit waits for one role at a time, so that as many units as requests keep every role busy.
_LEAST_AT_ONCE = 48
_ONE_ROW = {
    PARALLEL: write_several,
    SEQUENTIAL: write_several,
    NO_TOOL: write_no_tool,
    MISSING: write_vague,
    CLARIFY: write_vague,
    RECOVERY: write_recovery,
}


def compose_rows(
    units: Sequence[WritingUnit],
    llm: LLM,
    policy: SynthesisPolicy,
    *,
    progress: Progress | None = None,
) -> Rows:
    """The rows of PAIRS of all units, in order. What fails is a row with status, step, error_kind
    and hint. Raises LLMError for settings, and the ledger's errors."""
    plans = plan_units(units, llm, policy)

    async def write(unit: WritingUnit) -> Rows:
        if unit.problem:
            return _fail_unit(unit, plans[unit.key], "plan", unit.problem, llm, policy)
        if unit.task in (SINGLE, LOOKALIKE):
            return await write_single(unit, plans[unit.key], llm, policy)
        writing = RowBuilder(unit, plans[unit.key], 0, llm, policy)
        try:
            await _ONE_ROW[unit.task](writing)
            writing.verify_row()
        except StepFailed as failure:
            return [writing.make_row(failure)]
        return [writing.make_row()]

    workers = max(_LEAST_AT_ONCE, sum(role.concurrency for role in llm.roles.values()))

    def fail(unit: WritingUnit, hint: str) -> Rows:
        return _fail_unit(unit, plans[unit.key], "write", hint, llm, policy)

    written = run_batch(
        units, write, llm, fail=fail, workers=workers, stage="pairs", progress=progress
    )
    return [row for of_unit in written for row in of_unit]


def _fail_unit(
    unit: WritingUnit, plan: str, step: str, hint: str, llm: LLM, policy: SynthesisPolicy
) -> Rows:
    """Its rows where nobody foresaw what happened: of what they are about, nothing is read."""
    columns = describe_unit(unit, plan, llm)
    rows = [
        fail_row({**columns, "index": at}, step, hint) for at in range(count_rows(unit, policy))
    ]
    return [{**row, "pair_id": make_pair_id(row)} for row in rows]


Embed = Callable[[Sequence[str]], np.ndarray]
_KNOWN = ("pair_id", "marketplace", "server_id", "tool", "contract_digest", "plan_digest", "task",
          "index")  # fmt: skip


@dataclass(frozen=True)
class WritingResult:
    """The rows of PAIRS after a run, and how they came to be."""

    rows: list[Record]
    due: RowPlan
    offer: ClearOffer


@dataclass(frozen=True)
class PairsPlan:
    """wanted: unit -> digest of its plan; last: all rows; previous: those this run may replace."""

    offer: ClearOffer
    units: list[WritingUnit]
    wanted: dict[str, str]
    due: RowPlan
    last: list[Record]
    previous: list[Record]
    policy: SynthesisPolicy

    def list_due(self) -> list[WritingUnit]:
        """The units that a model is asked for."""
        due = set(self.due.due)
        return [unit for unit in self.units if unit.key in due and not unit.problem]

    def count_requests(self, units: Iterable[WritingUnit]) -> Counter[str]:
        """Role -> requests that these units make, without revisions, which few rows need."""
        counts = Counter[str]()
        for unit in units:
            rows = count_rows(unit, self.policy)
            evolved = sum(is_evolved(unit.own, unit.task, row, self.policy) for row in range(rows))
            times = {"generate": 1, "evolve": evolved * self.policy.evolve_depth, "revise": 0}
            for role, prompt in list_steps(unit, self.policy):
                counts[role] += times.get(prompt, rows)
        return counts


def plan_pairs(
    warehouse: Warehouse,
    name: str,
    policy: SynthesisPolicy,
    llm: LLM,
    embedder: Embedder,
    worlds: TaskSource | None = None,
    *,
    only: str | None = None,
) -> PairsPlan:
    """Which units of one marketplace are due; no model is asked."""
    if llm.role("generator").model == OFFLINE:
        policy = replace(policy, languages=("en",))  # its grammar knows no other; no row says so
    last = warehouse.tables.read(PAIRS, name).to_dicts()
    previous = [row for row in last if only in (None, row["server_id"])]
    offer = read_offer(warehouse, name)
    near = find_near_rows(offer.usable, embedder, LanceStore(warehouse.home / "lance"))
    explored = read_explored(warehouse.tables, name)
    grants = read_grants(warehouse.tables)
    units = make_units(offer.usable, near, policy, explored.list_joined(), grants)
    # What models fail goes first, in case that the budget ends.
    units.sort(key=lambda unit: (unit.own["server_id"], unit.own["tool"]) not in grants)
    units = [unit for unit in units if only in (None, unit.own["server_id"])]
    units = add_explored(units, explored, offer.usable, invents=_has_actor(llm))
    units = add_worlds(units, worlds, policy)
    filters = [embedder.id, policy.copies_above, policy.twins_above, policy.sibling_above]
    wanted = {key: digest([how, filters]) for key, how in plan_units(units, llm, policy).items()}
    due = plan_keys(
        {make_unit_key(row): row["plan_digest"] for row in previous},
        wanted,
        retry={make_unit_key(row) for row in previous if row["error_kind"] in PASSING},
    )
    return PairsPlan(offer, units, wanted, due, last, previous, policy)


def _has_actor(llm: LLM) -> bool:
    """Whether models answer in a tool's place: what rules invent holds no value to pass on."""
    roles = [llm.roles.get(name) for name in ("generator", "actor")]
    return all(role is not None and role.model != OFFLINE for role in roles)


def write_pairs(
    warehouse: Warehouse,
    name: str,
    policy: SynthesisPolicy,
    llm: LLM,
    embedder: Embedder,
    progress: Progress | None = None,
    worlds: TaskSource | None = None,
    *,
    only: str | None = None,
    open_retriever: OpenRetriever = lambda: None,
) -> WritingResult:
    """The pairs of one marketplace, or of `only` one server, with those out of `worlds`.
    open_retriever: the model that tells requests for a sibling of their tool; asked where any pair
    is due."""
    plan = plan_pairs(warehouse, name, policy, llm, embedder, worlds, only=only)
    policy, due, offer = plan.policy, plan.due, plan.offer
    if not due.due and not due.gone:
        return WritingResult(plan.last, due, offer)
    unchanged = set(due.unchanged)
    unchanged_rows = [row for row in plan.previous if make_unit_key(row) in unchanged]
    left = [row for row in plan.previous if make_unit_key(row) not in unchanged]
    wanted_now = {key: plan.wanted[key] for key in due.due}
    due_units = [unit for unit in plan.units if unit.key in wanted_now]
    new_rows = compose_rows(due_units, llm, policy, progress=progress)
    new_rows += write_world_pairs(plan.units, wanted_now, worlds, llm, policy)
    new_rows = [{**row, "plan_digest": plan.wanted[make_unit_key(row)]} for row in new_rows]
    # A unit of which a row waits for a batch keeps the rows that it had, and is due again.
    waiting = {make_unit_key(row) for row in new_rows if row["status"] == PENDING}
    before = [
        row
        for row in left
        if make_unit_key(row) in waiting
        and row["status"] == "ok"
        and try_item(partial(_offers_calls, row, offer), lambda _: False)
        and offer.shows_only_clear(row)
    ]
    kept_units = {make_unit_key(row) for row in before}
    made_rows = [row for row in new_rows if make_unit_key(row) not in kept_units]
    rows = [*unchanged_rows, *made_rows, *before]
    # Copies and twins are looked for in the whole set.
    rows = keep_other_servers(plan.last, _fit_rows(rows), only)
    store = LanceStore(warehouse.home / "lance")
    embed = partial(embed_texts, embedder=embedder, store=store, table=INSTRUCTIONS)
    siblings = None
    if (retriever := open_retriever()) is not None:
        find = partial(embed_either_kind, embedder=retriever, store=store)
        siblings = SiblingTools(offer.servers, find)
    rows = filter_rows(rows, offer.contracts, embed, policy, siblings)
    return WritingResult(keep_other_servers(plan.last, rows, only), due, offer)


def _fit_rows(rows: Sequence[Record]) -> list[Record]:
    """The rows with all columns, as the table takes them; one that it does not take is failed."""

    def fit(row: Record) -> Record:
        identity = {name: row.get(name) for name in _KNOWN}
        return try_item(
            lambda: PAIRS.frame([row]).to_dicts()[0], lambda hint: fail_row(identity, "table", hint)
        )

    try:
        return PAIRS.frame(rows).to_dicts()
    except Exception:  # one row's fault: the others are found one by one
        return PAIRS.frame(map(fit, rows)).to_dicts()


def _offers_calls(row: Record, offer: ClearOffer) -> bool:
    called = {golden.contract_digest for golden in read_goldens(row)}
    return offer.offers_contract_of(row) and called <= offer.contracts.keys()
