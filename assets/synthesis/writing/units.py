"""Units: which tool gets which task with which other tools, and the digest of what decides it.
Partners are chosen by the two tools alone, so that a tool moves only the units that show it."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from assets.synthesis.contract_reading import (
    get_input_schema,
    get_properties,
    get_required,
    guess_json_type,
    resolve_schema,
)
from assets.synthesis.policy import SynthesisPolicy, get_rules_version, get_scripts_version
from assets.synthesis.prompts import read_prompt
from assets.synthesis.tables import (
    CLARIFY,
    CONTRACT,
    EXPLORED,
    LOOKALIKE,
    MISSING,
    NO_TOOL,
    PARALLEL,
    RECOVERY,
    SEQUENTIAL,
    SINGLE,
    TASKS,
    make_tool_key,
    make_unit_key,
    read_contract,
)
from assets.synthesis.writing.profiles import is_evolved
from assets.vectors.lexicon import collect_words, split_identifier
from warehouse.item_failure import try_item
from warehouse.json_types import Contract, JsonObject, Row
from warehouse.llm.client import LLM
from warehouse.storage.digest import digest, sha256

# Every tool's parameters hold the first; they join nothing. The second join a little.
_EMPTY = collect_words("the and for with from get set of to in a an")
_LOOSE = collect_words("query text name content message input value data body")
_FINDS = collect_words("search find list get lookup create add resolve fetch query read")
# Half of a parameter's words, or all of them where they are loose. Below it one tool has nothing to
# say to the other, and only nonsense joins them.
JOINED = 0.5
_MOST = 12  # parameters that are looked at, required ones first


@dataclass(frozen=True)
class ToolLink:
    """What of a tool joins it to others: `takes`, the words of each parameter that one plain value
    fills; `makes`, the words of what it returns; whether it `finds` things."""

    name: str
    takes: tuple[frozenset[str], ...]
    makes: frozenset[str]
    finds: bool


def make_link(contract: Contract) -> ToolLink:
    name = str(contract.get("name") or "")
    takes = tuple(
        frozenset(split_identifier(taker)) - _EMPTY for taker in list_takers(contract)[:_MOST]
    )
    about = f"{contract.get('name') or ''} {str(contract.get('description') or '')[:600]}"
    output = contract.get("outputSchema")
    fields = output.get("properties") if isinstance(output, Mapping) else None
    names = " ".join(str(name) for name in list(fields)[:60]) if isinstance(fields, Mapping) else ""
    words = {word for part in f"{about} {names}".split() for word in split_identifier(part)}
    return ToolLink(
        name,
        takes,
        frozenset((words | {word.removesuffix("s") for word in words}) - _EMPTY),
        bool(_FINDS & set(split_identifier(name)[:2])),
    )


def chain_links(first: ToolLink, other: ToolLink) -> tuple[bool, float]:
    """(whether `one` goes first, how well the two join): the better of both orders."""
    forth, back = _score_joint(first, other), _score_joint(other, first)
    if forth == back:
        # Neither order is better: the name decides, so that both tools agree on it.
        return first.name <= other.name, forth
    return forth > back, max(forth, back)


def list_takers(contract: Contract) -> list[str]:
    """Parameters that one plain value fills and that offer no choice, required ones first."""
    schema, needed = get_input_schema(contract), get_required(contract)
    properties = get_properties(contract)
    plain = [name for name, of in properties.items() if _is_plain(resolve_schema(of, schema))]
    return sorted(plain, key=lambda name: name not in needed)


def _is_plain(schema: Contract) -> bool:
    if schema.get("enum") or "const" in schema:
        return False
    return guess_json_type(schema) in ("string", "integer", "number")


def _score_joint(first: ToolLink, second: ToolLink) -> float:
    """How well a parameter of `second` is filled out of the result of `first`; -1: not at all."""
    if not second.takes:
        return -1.0
    return max(_count_overlap(words, first.makes) for words in second.takes) + 0.25 * first.finds


def _count_overlap(parameter_words: frozenset[str], result_words: frozenset[str]) -> float:
    """Share of a parameter's words that the first tool speaks of; loose words count half."""
    shared = parameter_words & result_words
    loose = len(shared & _LOOSE)
    return (len(shared) - 0.5 * loose) / max(1, len(parameter_words))


Key = tuple[str, str]  # server_id, tool
_MIX, _MASK = 0x9E3779B97F4A7C15, 2**64 - 1  # Knuth's multiplier: near inputs fall far apart


def hash_fraction(*of: str) -> float:
    """A number in [0, 1) that these words always give."""
    # Not `digest`: its canonical JSON costs ten times as much, and all servers are drawn for each.
    return int(sha256("\0".join(of).encode())[:12], 16) / 16**12


def select_distinct(own: Row, others: Sequence[Row]) -> list[Row]:
    """The first of each name: tools offered in one conversation are told apart by name alone."""
    first: dict[str, Row] = {own["tool"]: own}
    for row in others:
        first.setdefault(row["tool"], row)
    return list(first.values())[1:]


class PartnerBook:
    """All tools of a marketplace, by server, with what their contracts take."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = {_make_key(row): row for row in rows}
        self._contracts = {_make_key(row): _read_contract(row) for row in rows}
        self._links: dict[Key, ToolLink] = {}
        self._servers: dict[str, list[Row]] = {}
        for row in rows:
            if self.is_readable(row):
                self._servers.setdefault(row["server_id"], []).append(row)
        self._marks = {name: int(hash_fraction("server", name) * 2**48) for name in self._servers}

    def select_known(self, others: Sequence[Row]) -> list[Row]:
        """Those of `others` that are among the rows, as they are there."""
        matches = (self._rows.get(_make_key(row)) for row in others)
        return [row for row in matches if row is not None and self.is_readable(row)]

    def is_readable(self, row: Row) -> bool:
        return self._contracts[_make_key(row)] is not None

    def get_contract(self, row: Row) -> JsonObject:
        return self._contracts[_make_key(row)] or {}

    def has_required(self, row: Row) -> bool:
        """Whether the tool has a required parameter that nothing fills in."""
        return bool(list_required(self.get_contract(row)))

    def has_parameters(self, row: Row) -> bool:
        return bool(get_properties(self.get_contract(row)))

    def choose_beside(self, row: Row) -> list[Row]:
        """Partners of parallel calls: none (the same tool again), of its server, or of another."""
        part = hash_fraction("parallel", *_make_key(row))
        if part < 1 / 3 and self.has_parameters(row):
            return []
        nearby = self._rank_partners(row, self._servers.get(row["server_id"], ()))[:1]
        if part < 2 / 3:
            return nearby
        elsewhere = next(self._walk_other_servers(row), [])
        return self._rank_partners(row, elsewhere)[:1] or nearby

    def _rank_partners(self, row: Row, tools: Sequence[Row]) -> list[Row]:
        apart = [tool for tool in tools if tool["tool"] != row["tool"]]
        key = _make_key(row)
        return sorted(apart, key=lambda partner: hash_fraction("beside", *key, *_make_key(partner)))

    def _walk_other_servers(self, row: Row) -> Iterator[list[Row]]:
        """The tools of other servers whose names tell them apart, server by server, in an order of
        the row's own."""
        mark = int(hash_fraction("server", *_make_key(row)) * 2**48)
        # One hash a server and one a row, mixed: hashing every pair took 4 of 10 s at 4,235 tools.
        order = sorted(self._marks, key=lambda name: ((self._marks[name] ^ mark) * _MIX) & _MASK)
        for name in order:
            if name == row["server_id"]:
                continue
            if apart := [server for server in self._servers[name] if server["tool"] != row["tool"]]:
                yield apart

    def choose_chain(self, row: Row) -> Row | None:
        """The tool that goes best before or after this one: of its server, else of another."""
        key = _make_key(row)
        make_link(self.get_contract(row))  # what nobody foresaw about its own is raised here
        for tools in (self._servers.get(row["server_id"], []), *self._walk_other_servers(row)):
            apart = [tool for tool in tools if tool["tool"] != row["tool"]]
            scored = [(self._score_joint(row, other), other) for other in apart]
            fits = [fit for fit in scored if fit[0] >= JOINED]
            if fits:
                return min(
                    fits,
                    key=lambda fit: (-fit[0], hash_fraction("chain", *key, *_make_key(fit[1]))),
                )[1]
        return None

    def _score_joint(self, row: Row, other: Row) -> float:
        return chain_links(self._get_link(row), self._get_link(other))[1]

    def _get_link(self, row: Row) -> ToolLink:
        key = _make_key(row)
        if key not in self._links:
            # Of a tool beside: it joins nothing, and its own unit says why.
            make = partial(make_link, self.get_contract(row))
            self._links[key] = try_item(make, lambda _: ToolLink("", (), frozenset(), False))
        return self._links[key]


def _make_key(row: Row) -> Key:
    return row["server_id"], row["tool"]


def _read_contract(row: Row) -> JsonObject | None:
    try:
        return read_contract(row)
    except (ValueError, TypeError):
        return None


def list_required(contract: Contract) -> list[str]:
    """The required parameters that neither a default nor a constant fills in."""
    properties = get_properties(contract)
    filled = {name for name, of in properties.items()
              if isinstance(of, Mapping) and ("default" in of or "const" in of)}  # fmt: skip
    return [name for name in get_required(contract) if name in properties and name not in filled]


Near = Callable[[Row], Sequence[Row]]

# The prompts of all requests that a row of the task may make, the checkers' aside.
_WRITTEN = ("generate", "revise", "call")
_STEPS: dict[str, tuple[str, ...]] = {
    SINGLE: _WRITTEN,
    LOOKALIKE: _WRITTEN,
    PARALLEL: ("several", "revise"),
    SEQUENTIAL: ("several", "revise", "act", "call"),
    NO_TOOL: ("no_tool",),
    MISSING: ("missing",),
    CLARIFY: ("missing", "call"),
    RECOVERY: (*_WRITTEN, "repair"),
}
# Prompt -> the role that it is put to.
ROLE_OF = {
    **dict.fromkeys(("generate", "several", "no_tool", "missing"), "generator"),
    **dict.fromkeys(("call", "repair"), "caller"),
    "revise": "reviser",
    "evolve": "evolver",
    "act": "actor",
}
_CHECKS = (("checker_a", "choose"), ("checker_b", "choose"))


@dataclass(frozen=True)
class WritingUnit:
    """One task for one tool. `rows`: the contracts it is about, its own first; `rivals`: the
    look-alikes shown to checkers or offered beside. `problem`: what nobody foresaw when it was
    planned; its rows say so, and nothing is asked for them. `world`: what decides the rows that are
    tasks of a world; None where there are none. `explored`: arguments of calls that worked, of
    `elsewhere` where those tools are not on offer. `outline`: what the task makes of such calls:
    the steps, the value that is withheld, or the server's objection."""

    task: str
    rows: tuple[Row, ...]
    rivals: tuple[Row, ...] = ()
    problem: str | None = None
    world: str | None = None
    explored: tuple[JsonObject, ...] = ()
    elsewhere: tuple[Row, ...] = ()
    outline: JsonObject | None = None

    @property
    def basis(self) -> str:
        """What its rows are written from."""
        return EXPLORED if self.explored or self.outline else CONTRACT

    @property
    def own(self) -> Row:
        return self.rows[0]

    @property
    def key(self) -> str:
        """`server_id/tool#task`."""
        return make_unit_key({**self.own, "task": self.task})

    @property
    def shown(self) -> tuple[Row, ...]:
        """Every contract that a prompt of this unit may show."""
        return (*self.rows, *self.rivals)


def make_units(
    rows: Sequence[Row],
    near: Near,
    policy: SynthesisPolicy,
    joined: Collection[Key] = (),
    grants: Mapping[Key, Collection[str]] | None = None,
) -> list[WritingUnit]:
    """All units of one marketplace's clear, usable snapshot rows, in the rows' order.

    joined: (server, tool) of those whose calls were seen to take values of other tools' answers:
    each has a sequence. grants: tasks of tools whatever the shares. A share of 0 allows neither.
    `near` names the tools most like one; what it names outside `rows` is left out, so that no
    quarantined text comes back through it.
    """
    book = PartnerBook(rows)
    chosen = {
        key: {*(grants or {}).get(key, ()), *([SEQUENTIAL] if key in joined else [])}
        for key in map(_make_key, rows)
    }
    planned = (
        try_item(
            partial(_make_unit, task, row, book, near, policy, task in chosen[_make_key(row)]),
            lambda hint, task=task, row=row: WritingUnit(task, (row,), problem=hint),
        )
        for row in rows
        for task in TASKS
    )
    return [unit for unit in planned if unit is not None]


def draws_task(row: Row, task: str, share: float) -> bool:
    """Whether a tool gets a task: a frozen hash, so that a new tool moves no other's tasks."""
    return hash_fraction("task", row["server_id"], row["tool"], task) < share


def _make_unit(
    task: str, row: Row, book: PartnerBook, near: Near, policy: SynthesisPolicy, chosen: bool
) -> WritingUnit | None:
    share = 1.0 if task == SINGLE else getattr(policy.tasks, task)
    if not share or not (chosen or draws_task(row, task, share)):
        return None
    if task == SEQUENTIAL and chosen:
        return WritingUnit(task, (row,))
    if not book.is_readable(row):
        # One unit stands for it, whose rows say that its contract cannot be read.
        return WritingUnit(task, (row,)) if task == SINGLE else None
    match task:
        case "single":
            rivals = book.select_known(near(row))[: policy.distractors] if policy.checks else ()
            return WritingUnit(task, (row,), tuple(rivals))
        case "lookalike" | "no_tool":
            named = select_distinct(row, book.select_known(near(row)))[: policy.distractors]
            return WritingUnit(task, (row,), tuple(named)) if named or task == NO_TOOL else None
        case "parallel":
            partners = book.choose_beside(row)
            return (
                WritingUnit(task, (row, *partners))
                if partners or book.has_parameters(row)
                else None
            )
        case "sequential":
            partner = book.choose_chain(row)
            return WritingUnit(task, (row, partner)) if partner is not None else None
        case "missing_parameter" | "clarification":
            return WritingUnit(task, (row,)) if book.has_required(row) else None
        case _:
            return WritingUnit(task, (row,)) if book.has_parameters(row) else None


def plan_units(units: Sequence[WritingUnit], llm: LLM, policy: SynthesisPolicy) -> dict[str, str]:
    """Unit key -> digest of all that decides its rows: contracts, prompts, roles, rules, policy."""
    steps_of_units = (try_item(partial(list_steps, unit, policy), lambda _: []) for unit in units)
    roles = sorted({role for steps in steps_of_units for role, _ in steps})
    identities = {name: llm.identity(name) for name in roles}
    return {
        unit.key: try_item(
            partial(_digest_plan, unit, identities, policy),
            lambda hint, unit=unit: digest([ascii(unit.key), hint]),
        )
        for unit in units
    }


def list_steps(unit: WritingUnit, policy: SynthesisPolicy) -> list[tuple[str, str]]:
    """(role, prompt) of every request that a row of the unit may make."""
    steps = [(ROLE_OF[prompt], prompt) for prompt in _STEPS[unit.task]]
    if unit.task in (SINGLE, LOOKALIKE):
        if any(
            is_evolved(unit.own, unit.task, index, policy)
            for index in range(count_rows(unit, policy))
        ):
            steps.append((ROLE_OF["evolve"], "evolve"))
        if policy.checks and unit.rivals:
            steps += _CHECKS
    return steps


def count_rows(unit: WritingUnit, policy: SynthesisPolicy) -> int:
    """How many rows the unit has."""
    return policy.pairs_per_tool if unit.task == SINGLE else 1


def _digest_plan(unit: WritingUnit, identities: JsonObject, policy: SynthesisPolicy) -> str:
    steps = list_steps(unit, policy)
    evolved = [policy.evolve_depth, policy.evolve_share] if ("evolver", "evolve") in steps else None
    return digest(
        {
            "task": unit.task,
            # A partner or rival is named by its server too: a call goes there.
            "own": unit.own["contract_digest"],
            "beside": [[make_tool_key(row), row["contract_digest"]] for row in unit.rows[1:]],
            "rivals": [[make_tool_key(row), row["contract_digest"]] for row in unit.rivals],
            "prompts": {name: read_prompt(name).digest for _, name in steps},
            "roles": {role: identities[role] for role, _ in steps},
            "rules": get_rules_version(),
            "scripts": get_scripts_version(),
            "count": count_rows(unit, policy),
            "seed": policy.seed,
            "languages": list(policy.languages),
            "evolved": evolved,
            **({"problem": unit.problem} if unit.problem else {}),
            **({"world": unit.world} if unit.world else {}),
            **({"explored": list(unit.explored)} if unit.explored else {}),
            **({"outline": unit.outline} if unit.outline else {}),
            **(
                {"elsewhere": [row["contract_digest"] for row in unit.elsewhere]}
                if unit.elsewhere
                else {}
            ),
        }
    )
