"""Proof by execution: the effect of a call is the one asked for, and other arguments differ.

A call proves a pair if it changed a readable world, the change holds what the request says, every
argument that the request states decides part of it, and no other argument decides any. No model is
asked; a pair that no world shows stays unproved. A task of a world is proved by its own check.
"""

import json
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from assets.contracts.repair.problems import find_problems
from assets.outcomes.environment import choose_world, digest_task, digest_world
from assets.outcomes.execution import CallExecution, ToolCall
from assets.outcomes.outcome import USEFUL
from assets.outcomes.table import PROVED, REFUTED, UNPROVED
from assets.outcomes.worlds.session import OpenWorld, open_world
from assets.outcomes.worlds.spec import TaskTemplate, WorldSpec
from assets.outcomes.worlds.task import (
    Task,
    has_choice,
    make_tasks,
    perturb_argument,
    perturb_task,
    read_schema,
)
from assets.outcomes.worlds.tree import WorldFailed, WorldFileError
from assets.servers.recipes.placeholders import DATA
from assets.synthesis.tables import TaskOrigin, WorldTask, WorldUnavailable
from assets.synthesis.verify.grading import grade_value, walk_leaves
from assets.synthesis.verify.literal import holds_value, is_asked, is_placed, is_stated, is_telling
from assets.synthesis.verify.request_text import RequestText
from assets.synthesis.verify.words import ABSENT, stem_word
from warehouse.storage.digest import digest

# Families of verbs: of a request that only looks, and of one that changes something.
_LOOKS = {"read", "search", "compute"}
_CHANGES = {"create", "update", "delete", "send", "run", "navigate"}
# Words of one that keeps what it doubles, and of one that does not.
_COPIES = {"copy", "copies", "copied", "duplicate", "clone", "replicate", "backup", "mirror"}
_MOVES = {"move", "rename", "relocate", "transfer", "shift"}

Facts = Mapping[str, Any]


@dataclass(frozen=True)
class CallEffect:
    """What a call did: its execution, and the world's facts before and after it."""

    execution: CallExecution
    before: Facts
    after: Facts

    @property
    def changes(self) -> dict[str, tuple[Any, Any]]:
        """Fact -> (before, after), None where it is not there."""
        keys = {*self.before, *self.after}
        both = {key: (self.before.get(key), self.after.get(key)) for key in sorted(keys)}
        return {key: pair for key, pair in both.items() if pair[0] != pair[1]}


def is_other_effect(first: CallEffect, other: CallEffect) -> bool:
    """Whether two calls in one first state differ in what they changed, or in whether they
    worked."""
    if first.execution.outcome != other.execution.outcome:
        return True
    return first.changes != other.changes


def show_changes(effect: CallEffect) -> str:
    """All that changed as one text, case folded: names of facts and their values on both sides."""
    lines = []
    for key, (before, after) in effect.changes.items():
        lines += [key, _show_fact(before), _show_fact(after)]
    return "\n".join(lines).casefold()


def find_contradiction(
    effect: CallEffect, values: Sequence[Any], request: RequestText
) -> str | None:
    """How the request's own verbs speak against the effect; None where they do not, as where it
    has none that are known. values: of the call."""
    families = request.families
    looks = families & _LOOKS or request.raw.rstrip().endswith("?")
    if looks and not families & _CHANGES:
        return "the request asks to look, and the call changed something"
    removes = all(after is None for _, after in effect.changes.values())
    if removes and families and "delete" not in families:
        return "the call only removed, and the request asks for no removing"
    asks_copy = _has_word(request, _COPIES) or " back up " in request.spaced
    if _is_move(effect) and asks_copy and not _has_word(request, _MOVES):
        return "the call moved something, and the request asks for a copy"
    if not asks_copy and any(_is_copied(effect, key, values) for key in effect.changes):
        return "the call made a copy, and the request asks for none"
    return None


def _has_word(request: RequestText, words: set[str]) -> bool:
    return bool(request.tokens & (words | {stem_word(word) for word in words}))


def _is_move(effect: CallEffect) -> bool:
    """Whether what was taken away at one place was added at another."""
    changes = effect.changes.values()
    added = [after for before, after in changes if before is None]
    return any(before in added for before, after in changes if after is None)


def _is_copied(effect: CallEffect, key: str, values: Sequence[Any]) -> bool:
    """Whether what was added at `key` is what stays at a place that the call names; what it holds
    itself is no copy."""
    before, after = effect.changes[key]
    content = _show_fact(after).casefold()
    texts = [
        value for value in values if not _is_path(value)
    ]  # a file's own name is in its fact too
    if before is not None or any(holds_value(text, content) for text in texts):
        return False
    return any(
        any(holds_value(value, f"{other}\n{content}".casefold()) for value in values)
        for other in ((key for key, fact in effect.before.items() if fact == after))
        if effect.after.get(other) == after
    )


def _is_path(value: Any) -> bool:
    return "/" in str(value) and not any(map(str.isspace, str(value)))


def _show_fact(value: Any) -> str:
    """Its texts and numbers as they are: JSON would escape what is looked for."""
    if value is None or isinstance(value, str):
        return value or ""
    return "\n".join(f"{path} {leaf}" for path, leaf in walk_leaves(value))


_ANSWERED = ("ok", "tool_error")  # what else comes back says nothing about the arguments
_OTHERS = ("credentials", "upstream", "us")  # whose failure is none of the arguments' either
MOST = 6  # arguments of a call that are changed, one after the other

Perturbed = Callable[[Mapping[str, Any]], Awaitable[tuple[CallExecution, Facts]]]


@dataclass(frozen=True)
class CallProof:
    """verdict: proved, refuted, unproved. why: one line of what it rests on."""

    verdict: str
    why: str


async def prove_call(
    call: ToolCall, request: str, effect: CallEffect, run_perturbed: Perturbed
) -> CallProof:
    """Whether an executed call proves the pair of this request. run_perturbed: makes the call with
    other arguments in the same first state; called at most `MOST` + 1 times."""
    if (judged := judge_effect(call, request, effect)) is not None:
        return judged
    if flaw := await _find_flaw(call, request, effect, run_perturbed):
        return CallProof(UNPROVED, flaw)
    return CallProof(PROVED, f"{', '.join(list(effect.changes)[:3])[:200]} as asked for")


async def _find_flaw(
    call: ToolCall, request: str, effect: CallEffect, run_perturbed: Perturbed
) -> str | None:
    """Why other arguments do not show that the stated ones decide; None where they do."""
    # The control: what differs between two equal calls says nothing about arguments.
    execution, after = await run_perturbed(dict(call.arguments))
    if is_other_effect(effect, CallEffect(execution, effect.before, after)):
        return "the same call has another effect when it is made again"
    tried = 0
    for name in list_stated(call, request):
        other = perturb_argument(call.contract, call.arguments, name)
        if other is None and not has_choice(call.contract, name):
            continue
        if other is None or tried == MOST:
            return f"no other {name} was tried"
        tried += 1
        execution, after = await run_perturbed(other)
        if not is_answered(execution):
            return f"another {name} was not answered: {execution.evidence}"[:300]
        if not is_other_effect(effect, CallEffect(execution, effect.before, after)):
            return f"another {name} has the same effect"
    if not tried:
        return "no other arguments can be tried"
    for name in list_unasked(call, request):
        other = perturb_argument(call.contract, call.arguments, name)
        if other is None and not has_choice(call.contract, name):
            continue
        flaw = f"the request does not state {name}: {str(call.arguments[name])[:80]!r}"
        if other is None or tried == MOST:
            return flaw
        tried += 1
        execution, after = await run_perturbed(other)
        if is_other_effect(effect, CallEffect(execution, effect.before, after)):
            return f"{flaw}, and it decides what changes"
    return None


def is_answered(done: CallExecution) -> bool:
    """Whether what came back says something about the arguments."""
    return done.status in _ANSWERED and done.blame not in _OTHERS


def judge_failure(done: CallExecution) -> CallProof | None:
    """What a call that was not useful decides; None for one that was."""
    if done.outcome == USEFUL:
        return None
    refuted = done.blame == "caller"
    return CallProof(REFUTED if refuted else UNPROVED, f"{done.outcome}: {done.evidence}"[:300])


def judge_effect(call: ToolCall, request: str, effect: CallEffect) -> CallProof | None:
    """What the effect alone decides; None where other arguments have to be tried."""
    if (failed := judge_failure(effect.execution)) is not None:
        return failed
    if not effect.changes:
        return CallProof(UNPROVED, "nothing that can be read changed")
    changes_text = show_changes(effect)
    text = RequestText(request)
    every = list(_walk_values(call.arguments))
    leaves = [item for item in every if is_telling(item[1])]
    shown_values = [(path, value) for path, value in leaves if holds_value(value, changes_text)]
    if not shown_values:  # as of a statement in SQL, or of `git_reset` on a whole repository
        return CallProof(UNPROVED, "what changed holds no value of the call")
    for path, value in shown_values:
        if not is_stated(value, path, text):
            return CallProof(REFUTED, f"it changed {str(value)[:80]!r}, which is not asked for")
    for _, value in shown_values:
        if not is_placed(value, text, DATA):
            return CallProof(UNPROVED, f"the request does not say where {str(value)[:80]!r} lies")
    for path, value in leaves:
        # Of a list or an object one value alone is tried otherwise: the others have to show.
        inner = path not in call.arguments and (path, value) not in shown_values
        if inner and is_stated(value, path, text):
            return CallProof(UNPROVED, f"what changed does not show {path}: {str(value)[:80]!r}")
    for path, value in every:
        if path not in call.arguments and not is_asked(value, path, text, DATA):
            return CallProof(UNPROVED, f"the request does not state {path}: {str(value)[:80]!r}")
    if contradiction := find_contradiction(effect, [value for _, value in leaves], text):
        return CallProof(UNPROVED, contradiction)
    return (
        None if list_stated(call, request) else CallProof(UNPROVED, "the request states no value")
    )


def list_stated(call: ToolCall, request: str) -> list[str]:
    """The arguments of which the request states a value, in order."""
    text = RequestText(request)
    return [
        name
        for name, value in call.arguments.items()
        if any(
            is_telling(leaf) and is_stated(leaf, path, text)
            for path, leaf in _walk_values({name: value})
        )
    ]


def list_unasked(call: ToolCall, request: str) -> list[str]:
    """The arguments of one value that the request does not state, in order: none of what the
    contract itself says."""
    text = RequestText(request)
    return [
        name
        for name, value in call.arguments.items()
        if not isinstance(value, bool | list | Mapping)
        and not _is_own(value, read_schema(call.contract, name), name, text)
        and not all(is_asked(leaf, path, text, DATA) for path, leaf in _walk_values({name: value}))
    ]


def _is_own(value: Any, schema: Mapping[str, Any], name: str, request: RequestText) -> bool:
    """Whether a contract itself gives a value: as the default, or as a choice that the request may
    mean in other words."""
    if "default" in schema and schema["default"] == value:
        return True
    chosen = isinstance(schema.get("enum"), list)
    return chosen and grade_value(value, schema, name, request) != ABSENT


def _walk_values(arguments: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """(path, scalar) of a call's values; of a text that is a JSON object or list, those in it."""
    for path, value in walk_leaves(dict(arguments)):
        inner = _parse_inner(value)
        if inner is None:
            yield path, value
        else:
            yield from ((f"{path}.{below}", leaf) for below, leaf in walk_leaves(inner))


def _parse_inner(value: Any) -> Any:
    if not isinstance(value, str) or value.lstrip()[:1] not in ("{", "["):
        return None
    try:
        inner = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return inner if isinstance(inner, dict | list) else None


# Drawn of each template. Two servers of the same tools take different ones of them: else the second
# one's requests would all repeat the first one's.
DRAWS = 8


@dataclass(frozen=True)
class WorldTasks:
    """The tasks of worlds, for servers that they suit. seed: of the worlds that calls are executed
    in; folder: in which they are opened to draw from."""

    worlds: tuple[WorldSpec, ...]
    seed: int
    folder: Path

    def digest_tasks(self, server_id: str, tools: Collection[str]) -> dict[str, str]:
        """Tool -> digest of all that decides its tasks, of the tools that have any."""
        world = choose_world(server_id, self.worlds, tools)
        digests: dict[str, list[str]] = defaultdict(list)
        single = list(_list_single(world, server_id, tools))
        try:
            first = digest_world(world, self.seed) if single else ""
            decides = [digest_task(world, item.name, first) for item in single]
        except WorldFileError as error:
            decides = [str(error)] * len(single)  # drawing says so
        for template, decisive in zip(single, decides, strict=True):
            digests[template.calls[0].tool].append(decisive)
        return {tool: digest([DRAWS, *task_digests]) for tool, task_digests in digests.items()}

    def draw_tasks(self, server_id: str, tools: Collection[str]) -> list[WorldTask]:
        """The tasks of these tools, one of every form before a second of any. Raises
        WorldUnavailable."""
        world = choose_world(server_id, self.worlds, tools)
        names = {item.name for item in _list_single(world, server_id, tools)}
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            with (
                TemporaryDirectory(prefix="tasks-", dir=self.folder) as place,
                open_world(world, self.seed, Path(place)) as opened,
            ):
                drawn = [task for task in opened.tasks(self.seed, DRAWS) if task.name in names]
        except (WorldFailed, WorldFileError) as error:
            raise WorldUnavailable(str(error)) from error
        return [_make_world_task(turn) for turn in _take_turns(drawn, server_id)]


def find_task(opened: OpenWorld, origin: TaskOrigin) -> Task | None:
    """The task that a pair is, in its open world; None where the world holds it no more."""
    templates = tuple(task for task in opened.world.tasks if task.name == origin.task)
    only = opened.world.model_copy(update={"tasks": templates})
    drawn = make_tasks(only, opened.read_first_facts(), origin.seed, DATA, DRAWS)
    return next((item for item in drawn if item.id == origin.id), None)


async def prove_task(
    call: ToolCall, task: Task, first: Facts, effect: CallEffect, run_perturbed: Perturbed
) -> CallProof:
    """Whether an executed call carried its task out, and no wrong call passes the task's check.
    first: facts of the world's first state, which wrong calls are made of; run_perturbed: as in
    `prove_call`."""
    if (failed := judge_failure(effect.execution)) is not None:
        return failed
    if not task.check(effect.after, [effect.execution.text]):
        return CallProof(REFUTED, f"{task.name}: the end state or answer is not the one asked for")
    wrong = list(islice(_list_wrong(call, task, first), MOST))
    for arguments in wrong:
        execution, after = await run_perturbed(arguments)
        if not is_answered(execution):
            return CallProof(UNPROVED, f"a wrong call was not answered: {execution.evidence}"[:300])
        if task.check(after, [execution.text]):
            return CallProof(UNPROVED, f"{task.name}: a wrong call passes its check too")
    if not wrong:
        return CallProof(UNPROVED, f"{task.name}: no other arguments can be tried")
    return CallProof(PROVED, f"{task.name}: ends as asked for")


def _list_single(world: WorldSpec, server_id: str, tools: Collection[str]) -> list[TaskTemplate]:
    """The forms of tasks that one call of one of these tools carries out."""
    tool_names = {tool for fit in world.servers if fit.id == server_id for tool in fit.tools} & set(
        tools
    )
    single = [
        task for task in world.tasks if len(task.calls) == 1 and task.calls[0].tool in tool_names
    ]
    return [item for item in single if not item.servers or server_id in item.servers]


def _take_turns(drawn: Sequence[Task], server_id: str) -> list[Task]:
    """One of every form, then a second of each; where a form begins is the server's own."""
    forms: dict[str, list[Task]] = defaultdict(list)
    for task in drawn:
        forms[task.name].append(task)
    turned = []
    for name, tasks in forms.items():
        start = int(digest([server_id, name])[:8], 16) % len(tasks)
        turned.append([*tasks[start:], *tasks[:start]])
    return [task for turn in zip_longest(*turned) for task in turn if task is not None]


def _make_world_task(task: Task) -> WorldTask:
    [call] = task.calls
    origin = TaskOrigin(task.world, task.seed, task.name, task.id)
    return WorldTask(origin, call.tool, task.request, call.arguments)


def _list_wrong(call: ToolCall, task: Task, first: Facts) -> Iterator[Facts]:
    """The call with one value of it changed, where its contract lets that through."""
    for [other] in perturb_task(task, first, task.seed, DATA):
        if not find_problems(call.contract, other.arguments):
            yield other.arguments
