"""Requests that stand on both sides of a boundary: found, and the train copy left out."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from training.sets.near import Embed, find_near_pairs
from training.sets.policy import SetPolicy
from training.sets.select import Placed, Tally, collect_trained_tools
from training.sets.split import SEEN_TOOL, TRAIN

LEAK_REQUEST = "leak_instruction"


def remove_leaks(
    placed: Sequence[Placed], embed: Embed, policy: SetPolicy, tally: Tally
) -> list[Placed]:
    """`placed` without the train copies of requests that are tested on, and without held-out pairs
    of tools that then nothing is learnt of.

    Between train and seen_tool a tool's last training pair stays, and the held-out copy goes.
    """
    tested = [one for one in placed if one.split not in (TRAIN, SEEN_TOOL)]
    left = _remove_train_copies(placed, _group_by_request(tested), embed, policy, tally)
    left = _remove_seen_requests(left, embed, policy, tally)
    trained = collect_trained_tools(left)
    kept = []
    for one in left:
        if one.split == SEEN_TOOL and not one.subjects <= trained:
            tally.count_drop("untrained_tool")
        else:
            kept.append(one)
    return kept


def _remove_train_copies(
    placed: Sequence[Placed],
    tested: dict[str, list[Placed]],
    embed: Embed,
    policy: SetPolicy,
    tally: Tally,
) -> list[Placed]:
    learnt = [one.request for one in placed if one.split == TRAIN]
    found = find_near_pairs(learnt, list(tested), embed, policy.near_cosine)
    kept = []
    for one in placed:
        if one.split == TRAIN and one.request in found:
            _record_leak(tally, one, tested[found[one.request][0]][0])
        else:
            kept.append(one)
    return kept


def _remove_seen_requests(
    placed: Sequence[Placed], embed: Embed, policy: SetPolicy, tally: Tally
) -> list[Placed]:
    held = _group_by_request(one for one in placed if one.split == SEEN_TOOL)
    learnt = [one for one in placed if one.split == TRAIN]
    found = find_near_pairs([one.request for one in learnt], list(held), embed, policy.near_cosine)
    left = Counter(tool for one in learnt for tool in one.tools)
    gone: set[str] = set()
    for one in learnt:
        copies = [each for text in found.get(one.request, ()) for each in held[text]]
        copies = [each for each in copies if each.name not in gone]
        if not copies:
            continue
        last = any(left[tool] < 2 for tool in one.tools)
        if last:
            for copy in copies:
                gone.add(copy.name)
                _record_leak(tally, copy, one)
        else:
            gone.add(one.name)
            left.subtract(one.tools)
            _record_leak(tally, one, copies[0])
    return [one for one in placed if one.name not in gone]


def _group_by_request(placed: Iterable[Placed]) -> dict[str, list[Placed]]:
    found: dict[str, list[Placed]] = defaultdict(list)
    for one in placed:
        found[one.request].append(one)
    return found


def _record_leak(tally: Tally, gone: Placed, stays: Placed) -> None:
    tally.count_drop(
        LEAK_REQUEST, pair=gone.name, split=gone.split, like=stays.name, beside=stays.split
    )
