"""Checks of what is stored: pointers, histories, versions, blobs."""

import re
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from extensions.upkeep.doctor.check import NOTICE, REPAIR, RUN, Finding, Home, Looked
from orchestration.tables import TABLES
from warehouse.storage.blobs import BlobCorrupt
from warehouse.storage.files import PointerBroken
from warehouse.storage.repair import list_line_files, list_pointers, split_lines
from warehouse.storage.tables import Tables, find_schema_version

_SHA = re.compile(r"[0-9a-f]{64}")


def check_pointers(at: Home) -> Looked:
    """Whether each pointer names a version that can be read and is what its name says; one of an
    older schema is worth a notice."""
    heads = _list_heads(at.tables)
    found = [one for name, partition in heads if (one := _find_flaw(at.tables, name, partition))]
    return Looked(len(heads), found)


def _list_heads(tables: Tables) -> list[tuple[str, str]]:
    return [(path.parent.parent.name, path.parent.name) for path in list_pointers(tables)]


def _find_flaw(tables: Tables, name: str, partition: str) -> Finding | None:
    thing = f"tables/{name}/{partition}"
    try:
        head = tables.head(name, partition)
    except PointerBroken as error:
        return Finding(f"{thing}/HEAD.json", str(error), _choose_fix(tables, name, partition))
    spec = TABLES.get(name)
    if head is None:
        published = len(tables.list_publications(name, partition))
        problem = f"is not there, though its history names {published} publications"
        fix = _choose_fix(tables, name, partition)
        return Finding(f"{thing}/HEAD.json", problem, fix) if published else None
    if spec is None:
        problem = "this version knows no such table; nothing reads it"
        return Finding(thing, problem, "leave it, or remove the folder", NOTICE)
    version = tables.folder(name, partition) / f"{head.digest}.parquet"
    fix = _write_anew(name)
    try:
        schema_version = find_schema_version(spec, version)
        beside = version.with_name(f"{head.digest}.volatile.parquet")
        expected = len(pl.read_parquet(version))  # fewer than were published: some are taken down
        rows = len(pl.read_parquet(beside)) if spec.volatile and beside.exists() else expected
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = " ".join(str(error).split())[:160]
        return Finding(f"{thing}/{head.digest[:12]}", f"cannot be read ({reason})", fix)
    if schema_version is None:
        problem = "its rows have another digest than its name"
        return Finding(f"{thing}/{head.digest[:12]}", problem, fix)
    if rows != expected:
        problem = f"{rows} rows of volatile columns, expected {expected}"
        return Finding(f"{thing}/{head.digest[:12]}", problem, fix)
    if schema_version != spec.schema_version:
        problem = f"schema version {schema_version}, now {spec.schema_version}; it is read as it is"
        return Finding(thing, problem, f"{RUN} writes it anew", NOTICE)
    return None


def _choose_fix(tables: Tables, name: str, partition: str) -> str:
    """A pointer can be put back where a version that it named is left."""
    return REPAIR if tables.history(name, partition) else _write_anew(name)


def _write_anew(name: str) -> str:
    return f"materialize {name} again: {RUN}"


def check_histories(at: Home) -> Looked:
    """Whether every line of histories, decisions and reviews is whole."""
    files = list_line_files(at.home)
    found = []
    for path in files:
        # Looked at twice: a line that is being added may be half there the first time.
        if split_lines(path)[1] and (torn := split_lines(path)[1]):
            problem = f"{torn} torn lines"
            found.append(Finding(str(path.relative_to(at.home)), problem, REPAIR))
    return Looked(len(files), found)


def check_blobs(at: Home) -> Looked:
    """Whether blobs hold the bytes that they are named by, of a sample or of all."""
    chosen = at.choose_some(_list_blobs(at.blobs.root))
    found = []
    for sha in chosen:
        try:
            at.blobs.get(sha)
        except KeyError:  # removed since it was listed
            continue
        except (BlobCorrupt, OSError) as error:
            path = at.blobs.path(sha).relative_to(at.home)
            problem = " ".join(str(error).split())[:200]
            found.append(Finding(str(path), problem, f"rm it, then {RUN}: what made it is redone"))
    return Looked(len(chosen), found)


def _list_blobs(root: Path) -> Iterator[str]:
    for folder in root.glob("??/??"):
        yield from (path.name for path in folder.iterdir() if _SHA.fullmatch(path.name))


def check_blob_names(at: Home) -> Looked:
    """Whether the blobs that current tables name are there."""
    named = [
        (name, partition, column, sha)
        for name, partition in _list_heads(at.tables)
        for column, sha in _list_named_blobs(at.tables, name, partition)
    ]
    lost: dict[tuple[str, str, str], list[str]] = {}
    for name, partition, column, sha in named:
        if not at.blobs.path(sha).is_file():
            lost.setdefault((name, partition, column), []).append(sha)
    found = [
        Finding(
            f"tables/{name}/{partition}.{column}",
            f"{len(shas)} blobs are not there, first {shas[0][:12]}",
            f"{RUN}; where it does not make them again, restore the latest backup",
        )
        for (name, partition, column), shas in lost.items()
    ]
    return Looked(len(named), found)


def _list_named_blobs(tables: Tables, name: str, partition: str) -> list[tuple[str, str]]:
    """(column, SHA-256) of the columns that name blobs."""
    spec = TABLES.get(name)
    columns = [one for one in spec.columns if is_blob_column(one)] if spec else []
    if not columns or spec is None:
        return []
    try:
        frame = tables.read(spec, partition)
    except (ValueError, OSError, pl.exceptions.PolarsError):
        return []  # `check_pointers` tells of it
    return [
        (column, sha)
        for column in columns
        for sha in frame[column].drop_nulls().unique().to_list()
        if _SHA.fullmatch(sha)
    ]


def is_blob_column(name: str) -> bool:
    return name.endswith("_blob") or name == "certificate"
