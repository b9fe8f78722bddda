"""Table versions that neither the pointer, the retention nor a release needs."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

from extensions.upkeep.retention.garbage import Garbage, measure_size
from extensions.upkeep.retention.policy import DAY, KeepPolicy
from warehouse.storage.files import PointerBroken
from warehouse.storage.repair import split_lines
from warehouse.storage.tables import Head, Tables


def choose_versions(
    heads: Sequence[Head], policy: KeepPolicy, now: float, moments: Collection[float] = ()
) -> set[str]:
    """The digests that stay of one partition's publications, oldest first: the last ones, and all
    that were current at any time of the last days, or at one of the `moments`."""
    last = list(dict.fromkeys(head.digest for head in reversed(heads)))[: policy.versions]
    since = now - policy.days * DAY
    recent = [head for head in heads if head.at >= since]
    before = [head for head in heads if head.at < since]
    then = [[head for head in heads if head.at <= at][-1:] for at in moments]
    return {*last, *(head.digest for head in [*before[-1:], *recent, *chain(*then)])}


def list_kept_versions(
    tables: Tables,
    policy: KeepPolicy,
    now: float,
    whole: Collection[str],
    moments: Mapping[str, Collection[float]] | None = None,
) -> dict[tuple[str, str], set[str]]:
    """(table, partition) -> the digests that stay. whole: tables whose versions all stay. moments:
    table -> times (epoch seconds) as of which it is still read. Raises PointerBroken: with a
    pointer or a history that cannot be read nobody knows what must stay."""
    kept = {}
    for folder in sorted(path for path in tables.root.glob("*/*") if path.is_dir()):
        name, partition = folder.parent.name, folder.name
        if tables.head(name, partition) is not None:
            _require_history(folder / "HEADS.jsonl")
        heads = tables.list_publications(name, partition)
        stay = {head.digest for head in heads} if name in whole else set()
        kept[name, partition] = stay | choose_versions(
            heads, policy, now, (moments or {}).get(name, ())
        )
    return kept


def _require_history(path: Path) -> None:
    """Raises PointerBroken: a version whose publication cannot be read would pass for one that was
    never current."""
    torn = split_lines(path)[1] if path.exists() else "all"
    if torn:
        raise PointerBroken(
            f"{path}: {torn} of its lines cannot be read; restore it from a backup, or take them"
            " out with `toolmill ledger repair`, and the next collection their versions"
        )


def list_old_versions(
    tables: Tables, kept: Mapping[tuple[str, str], set[str]], before: float
) -> Iterator[Garbage]:
    """The files of versions that do not stay and were written before `before`."""
    for (name, partition), stay in kept.items():
        for path in sorted(tables.folder(name, partition).glob("*.parquet")):
            digest = path.name.split(".")[0]
            if digest not in stay and path.stat().st_mtime < before:
                remove: Callable[[], bool] = partial(tables.remove_version, path, before)
                yield Garbage(
                    "tables", f"{name}/{partition}/{path.name}", measure_size(path), remove
                )


def list_version_files(
    tables: Tables, kept: Mapping[tuple[str, str], set[str]], before: float
) -> Iterator[Path]:
    """The files of what stays, and of what is too young to go."""
    for (name, partition), stay in kept.items():
        for path in sorted(tables.folder(name, partition).glob("*.parquet")):
            if path.name.split(".")[0] in stay or path.stat().st_mtime >= before:
                yield path
