"""Whether the pointers that a backup holds resolve to versions that it holds too."""

from pathlib import Path, PurePath

from extensions.upkeep.backup.manifest import Entry, Manifest, get_pool_path
from extensions.upkeep.backup.walk import is_pointer
from warehouse.storage.files import PointerBroken, read_history, read_pointer


def find_broken_pointer(folder: Path, manifest: Manifest) -> tuple[str, str] | None:
    """(path below the home, what is wrong) of the first pointer that names nothing whole: it is no
    JSON object, the version of a table that it names is not in the backup, or it is lost while its
    history names publications."""
    for name, entry in sorted(manifest.home.items()):
        if is_pointer(name) and (wrong := _find_flaw(folder, manifest, name, entry)):
            return wrong
    return None


def is_sound(folder: Path, manifest: Manifest) -> bool:
    """Whether a restore of a backup makes a home whose pointers resolve: every file of it is still
    there, by its name; what it holds is read by a restore."""
    entries = (*manifest.home.values(), *manifest.state.values())
    there = all(entry.target or get_pool_path(folder, entry.sha256).is_file() for entry in entries)
    return there and find_broken_pointer(folder, manifest) is None


def _find_flaw(folder: Path, manifest: Manifest, name: str, entry: Entry) -> tuple[str, str] | None:
    path, of_table = PurePath(name), name.startswith("tables/")
    kept = get_pool_path(folder, entry.sha256)
    if path.suffix == ".jsonl":
        head = str(path.with_name("HEAD.json"))
        if of_table and head not in manifest.home and read_history(kept):
            return head, "is not there, though its history names publications"
        return None
    try:
        body = read_pointer(kept, "") or {}
    except PointerBroken as error:
        return name, f"cannot be read ({_describe_cause(error)}), expected a JSON object"
    digest = body.get("digest")
    if of_table and not isinstance(digest, str):
        return name, "names no version"
    if of_table and str(path.with_name(f"{digest}.parquet")) not in manifest.home:
        return name, f"names version {str(digest)[:12]}, which is not there"
    return None


def _describe_cause(error: PointerBroken) -> str:
    cause = error.__cause__
    return " ".join(str(cause).split())[:120] if cause else "it is no object"
