"""Names that mean the same, or nearly: by case, separators and a slip of the pen."""

import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

from assets.contracts.schema_shapes import spend_steps

_LONGEST = 64  # characters of a name that is compared letter by letter
_REMEMBERED = 200  # characters of a name that is worth remembering
_MOST = 500  # names that are compared with one


# Words of arguments without which a call does more, or that rule out what they hold.
_GUARDS = {
    *("dry", "dryrun", "simulate", "simulation", "preview", "draft", "test", "sandbox", "noop"),
    *("confirm", "confirmed", "confirmation", "approve", "approved", "approval", "backup", "undo"),
    *("where", "filter", "filters", "condition", "conditions", "if", "unless", "only", "except"),
    *("exclude", "excludes", "excluding", "before", "after", "older", "newer", "since", "until"),
    *("not", "no", "without", "ignore", "skip", "keep", "avoid"),
}

_CONFIRMING = {
    *("confirm", "confirmed", "confirmation", "force", "accept", "agree", "approve", "approved"),
    *("acknowledge", "consent", "sure", "override", "yes"),
}


def is_confirming(name: str) -> bool:
    """Whether an argument's name says that it confirms the call (`confirm`, `force`)."""
    return not _CONFIRMING.isdisjoint(split_identifier(name))


def is_guard(name: str) -> bool:
    """Whether an argument's name says that it guards or narrows the call (`dry_run`, `where`)."""
    return not _GUARDS.isdisjoint(split_identifier(name))


def fold_name(name: str) -> str:
    """Letters and digits only, without case: `userId`, `user_id` and `User-ID` are one."""
    return (
        _fold_name_cached(name) if len(name) <= _REMEMBERED else _fold_name_cached.__wrapped__(name)
    )


@lru_cache(maxsize=8192)
def _fold_name_cached(name: str) -> str:
    return "".join(char for char in name.casefold() if char.isalnum())


def split_identifier(name: str) -> tuple[str, ...]:
    """The lower-case words of an identifier: `getHTTPStatus_v2` -> get http status v2."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", name)
    return tuple(word.lower() for word in re.split(r"[^A-Za-z0-9]+", spaced) if word)


def find_same_name(name: str, among: Iterable[str]) -> str | None:
    """The only one of `among` that is the same but for case and separators."""
    folded = fold_name(name)
    matches = [candidate for candidate in among if fold_name(candidate) == folded] if folded else []
    return matches[0] if len(matches) == 1 else None


def find_nearest(name: str, among: Iterable[str]) -> str | None:
    """The one of `among` that is spelt most like the name, where it is close and nothing else is
    as close: one slip in four letters, two in eight. Numbers in it have to agree: `date1` is no
    slip for `date2`; nor is another word one (`is_misspelt`)."""
    folded = fold_name(name)
    if not 4 <= len(folded) <= _LONGEST:
        return None
    allowed = 1 if len(folded) < 8 else 2
    numbers = re.findall(r"\d+", name)
    ranked = sorted(
        (count_slips(folded, fold_name(candidate), allowed), candidate)
        for candidate in list(among)[:_MOST]
        if re.findall(r"\d+", candidate) == numbers
        and abs(len(fold_name(candidate)) - len(folded)) <= allowed
    )
    if not ranked or ranked[0][0] > allowed or not is_misspelt(name, ranked[0][1]):
        return None
    alone = len(ranked) == 1 or ranked[1][0] > ranked[0][0]
    return ranked[0][1] if alone else None


def is_misspelt(name: str, meant: str) -> bool:
    """Whether letters were left out, doubled or swapped in the words of a name. Another first
    letter, another letter in the place of one (but `s` for `z`) or a difference within three
    letters make another word: `get` and `set`, `unlock` and `lock`, `charge` and `change`. A first
    letter is only missed where five more tell the word, and where it is none of the prefixes `a`
    and `e`: `umbers` is `numbers`, `symmetric` not `asymmetric`, `lock` not `block`."""
    ours, theirs = _split_words(name), _split_words(meant)
    if len(ours) != len(theirs):  # a separator is missing, too
        ours, theirs = [fold_name(name)], [fold_name(meant)]
    return all(a == b or _is_word_misspelt(a, b) for a, b in zip(ours, theirs, strict=True))


def _is_word_misspelt(a: str, b: str) -> bool:
    if a == b[1:]:
        return len(a) >= 5 and b[0] not in "ae"
    longest = max(a, b, key=len)
    if a[:1] != b[:1] or len(longest) < 4:
        return False
    letters, others = (Counter(word.replace("z", "s")) for word in (a, b))
    if letters - others and others - letters:
        return False
    allowed = 1 if len(longest) < 8 else 2
    return count_slips(a, b, allowed) <= allowed


def count_slips(a: str, b: str, most: int) -> int:
    """Letters to add, drop, change or swap with the next; `most` + 1 where it takes more."""
    spend_steps()
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, char in enumerate(a, 1):
        older, before, row = before, row, [i]
        for j, other in enumerate(b, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (char != other))
            if i > 1 and j > 1 and char == b[j - 2] and a[i - 2] == other:
                cost = min(cost, older[j - 2] + 1)
            row.append(cost)
        if min(row) > most:
            return most + 1
    return min(row[-1], most + 1)


def is_reminiscent(a: str, b: str) -> bool:
    """Whether one name may have been meant by the other, however little speaks for it: enough to
    keep what was given, not to change it."""
    a, b = sorted((fold_name(a), fold_name(b)), key=len)
    if len(a) < 2:
        return False
    allowed = 1 if len(b) < 6 else 2
    return (
        b.startswith(a)
        or b.endswith(a)
        or count_slips(a[:_LONGEST], b[:_LONGEST], allowed) <= allowed
    )


def _split_words(name: str) -> list[str]:
    """The words of a name, whatever letters they have."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", name)
    return [word.casefold() for word in re.split(r"[\W_]+", spaced) if word]
