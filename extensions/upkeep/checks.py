"""The checks of `toolmill doctor`, in the order of what they rest on."""

import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from assets.marketplaces.listing import read_rows
from assets.marketplaces.listing_table import LISTINGS
from assets.servers.recipes.recipe import identify_server
from assets.vectors.encoders.saved import find_encoder_folder
from assets.vectors.index import VECTORS
from extensions.upkeep.health import NOTICE, CheckFinding, CheckOutcome, HomeCheck, InspectedHome
from extensions.upkeep.home_tables import ADAPTERS, TABLES
from extensions.upkeep.ledger_inspection import measure_health
from extensions.upkeep.purge import list_taken
from extensions.upkeep.storage_repair import list_line_files, list_pointers, split_lines
from extensions.upkeep.stored_versions import find_schema_version
from serving.index.folder import load_index
from serving.index.model import IndexBroken, IndexMissing
from serving.ranking.overlays import find_taken_tools, read_blocked
from training.releases.champion import MOVING, read_pending_move
from training.releases.in_service import (
    find_model_flaw,
    find_model_in_service,
    list_release_flaws,
    read_index_meta,
)
from training.releases.release import ReleaseError, read_current_release, read_release, read_served
from training.role import list_roles
from warehouse.home import POSTGRES, HomeUnavailable, check_home
from warehouse.item_failure import try_item
from warehouse.ledger.database import URL, LedgerUnavailable, find_url
from warehouse.storage.blobs import BlobCorrupt
from warehouse.storage.digest import is_sha256
from warehouse.storage.files import PointerBroken, find_file_flaw
from warehouse.storage.lance import DuplicateKeys, LanceStore, make_vector_key
from warehouse.storage.tables import Tables
from warehouse.storage.takedowns import find_active, read_takedowns

CHECKS: list[HomeCheck] = []
REPAIR, RUN = "toolmill doctor --fix", "toolmill run"
RENEW = "toolmill takedown --renew"
SERVE = "materialize release and router_index: toolmill run; or toolmill release rollback"
_ROOM = 1 << 30  # bytes; a first run of the demo leaves 0.8 GB
_INODES = 50_000  # the same run makes 37,000 files
_FOLDERS = ("tables", "blobs", "lance", "models", "router", "releases")
_SILENT_S = 300.0  # after which a daemon that says nothing is none
_Check = Callable[[InspectedHome], CheckOutcome]


def declare_check(name: str, claim: str) -> Callable[[_Check], _Check]:

    def add(look: _Check) -> _Check:
        CHECKS.append(HomeCheck(name, claim, look))
        return look

    return add


@declare_check("layout", "this version can read the home")
def check_layout(home: InspectedHome) -> CheckOutcome:
    try:
        check_home(home.home)
    except HomeUnavailable as error:
        problem, _, fix = str(error).partition("; ")
        return CheckOutcome(1, [CheckFinding("home.json", problem, fix)])
    return CheckOutcome(1)


@declare_check("room", "the disk has room for a run")
def check_room(home: InspectedHome) -> CheckOutcome:
    findings, folders = [], [path for path in {home.home, home.state} if path.is_dir()]
    for folder in folders:
        free, names = shutil.disk_usage(folder).free, os.statvfs(folder)
        if free < _ROOM:
            problem = f"{free / 1e6:,.0f} MB are free, expected {_ROOM / 1e6:,.0f} before a run"
            findings.append(CheckFinding(str(folder), problem, "toolmill gc"))
        if names.f_files and names.f_favail < _INODES:
            problem = f"{names.f_favail:,} files can still be made, expected {_INODES:,}"
            findings.append(CheckFinding(str(folder), problem, "toolmill gc"))
    return CheckOutcome(len(folders), findings)


@declare_check("permissions", "a run can write, and nobody else reads a secret")
def check_permissions(home: InspectedHome) -> CheckOutcome:
    findings, folders = [], [home.home, home.state, *(home.home / name for name in _FOLDERS)]
    for folder in filter(Path.exists, folders):
        if not folder.is_dir():
            findings.append(CheckFinding(str(folder), "is no folder", "move it away and run again"))
        elif not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            owner = folder.stat()
            mode = f"{stat.S_IMODE(owner.st_mode):o}"
            problem = f"cannot be written (owner {owner.st_uid}, mode {mode})"
            findings.append(CheckFinding(str(folder), problem, f"chown -R or chmod u+rwX {folder}"))
    secrets = [home.state / "salt", *(home.state / "oauth").glob("*.json")]
    for path in filter(Path.is_file, secrets):
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o077:
            problem = f"others may read it (mode {mode:o}), expected 600"
            findings.append(CheckFinding(str(path), problem, f"chmod 600 {path}"))
    return CheckOutcome(len(folders) + len(secrets), findings)


@declare_check("pointers", "each table's pointer names a whole version, true to its name")
def check_pointers(home: InspectedHome) -> CheckOutcome:
    """A version of an older schema is a notice."""
    heads = _list_heads(home.tables)
    flaws = [_find_pointer_flaw(home.tables, *head) for head in heads]
    return CheckOutcome(len(heads), [flaw for flaw in flaws if flaw])


def _list_heads(tables: Tables) -> list[tuple[str, str]]:
    return [(path.parent.parent.name, path.parent.name) for path in list_pointers(tables)]


def _find_pointer_flaw(tables: Tables, name: str, partition: str) -> CheckFinding | None:
    thing, remake = f"tables/{name}/{partition}", f"materialize {name} again: {RUN}"
    # A pointer can be put back where a version that it named is left.
    repair = REPAIR if tables.history(name, partition) else remake
    try:
        head = tables.head(name, partition)
    except PointerBroken as error:
        return CheckFinding(f"{thing}/HEAD.json", str(error), repair)
    spec = TABLES.get(name)
    if head is None:
        return None
    if spec is None:
        problem = "this version knows no such table; nothing reads it"
        return CheckFinding(thing, problem, "leave it, or remove the folder", NOTICE)
    version = tables.folder(name, partition) / f"{head.digest}.parquet"
    problem = None
    try:
        schema_version = find_schema_version(spec, version)
        beside = version.with_name(f"{head.digest}.volatile.parquet")
        expected = len(pl.read_parquet(version))  # fewer than were published: some are taken down
        rows = len(pl.read_parquet(beside)) if spec.volatile and beside.exists() else expected
    except (OSError, pl.exceptions.PolarsError) as error:
        problem = f"cannot be read ({' '.join(str(error).split())[:160]})"
    else:
        if schema_version is None:
            problem = "its rows have another digest than its name"
        elif rows != expected:
            problem = f"{rows} rows of volatile columns, expected {expected}"
        elif schema_version != spec.schema_version:
            found = f"schema version {schema_version}, now {spec.schema_version}"
            return CheckFinding(thing, f"{found}; it is read as it is", f"{RUN} updates it", NOTICE)
    return CheckFinding(f"{thing}/{head.digest[:12]}", problem, remake) if problem else None


@declare_check("histories", "every line of histories, decisions and reviews is whole")
def check_histories(home: InspectedHome) -> CheckOutcome:
    files, findings = list_line_files(home.home), []
    for path in files:
        # Read twice: a line that is being added may be half there the first time.
        if split_lines(path)[1] and (torn := split_lines(path)[1]):
            name = str(path.relative_to(home.home))
            findings.append(CheckFinding(name, f"{torn} torn lines", REPAIR))
    return CheckOutcome(len(files), findings)


@declare_check("blobs", "blobs hold the bytes that they are named by")
def check_blobs(home: InspectedHome) -> CheckOutcome:
    paths = home.blobs.root.glob("??/??/*")
    chosen = home.choose_sample(path.name for path in paths if is_sha256(path.name))
    findings = []
    for sha in chosen:
        try:
            home.blobs.get(sha)
        except KeyError:  # removed since it was listed
            continue
        except (BlobCorrupt, OSError) as error:
            name = str(home.blobs.path(sha).relative_to(home.home))
            problem = " ".join(str(error).split())[:200]
            findings.append(CheckFinding(name, problem, f"rm it, then {RUN} makes it again"))
    return CheckOutcome(len(chosen), findings)


@declare_check("references", "the blobs that current tables name are there")
def check_blob_names(home: InspectedHome) -> CheckOutcome:
    n, findings = 0, []
    for name, partition in _list_heads(home.tables):
        spec = TABLES.get(name)
        columns = [column for column in spec.columns if is_blob_column(column)] if spec else []
        if spec is None or not columns:
            continue
        try:
            frame = home.tables.read(spec, partition)
        except (ValueError, OSError, pl.exceptions.PolarsError):
            continue  # `check_pointers` reports it
        for column in columns:
            shas = [sha for sha in frame[column].drop_nulls().unique() if is_sha256(sha)]
            lost = [sha for sha in shas if not home.blobs.path(sha).is_file()]
            n += len(shas)
            if lost:
                problem = f"{len(lost)} blobs are not there, first {lost[0][:12]}"
                fix = f"{RUN}; where it does not make them again, restore the latest backup"
                findings.append(CheckFinding(f"tables/{name}/{partition}.{column}", problem, fix))
    return CheckOutcome(n, findings)


def is_blob_column(name: str) -> bool:
    return name.endswith("_blob") or name == "certificate"


@declare_check("ledger", "the database is whole, and its answers are there")
def check_ledger(home: InspectedHome) -> CheckOutcome:
    place = URL if find_url() else "state/ledger.db"
    has = home.blobs.has if home.everything else lambda sha: home.blobs.path(sha).is_file()
    try:
        health = measure_health(home.state / "ledger.db", find_url(), has)
    except LedgerUnavailable as error:
        return CheckOutcome(1, [CheckFinding(place, str(error), "restore the latest backup")])
    if health is None:
        return CheckOutcome(0)
    findings = []
    if health.blobs_missing:
        problem = f"the answers of {health.blobs_missing} effects are lost"
        fix = f"{RUN}: what is wanted is paid for again; or restore the latest backup"
        findings.append(CheckFinding("blobs", problem, fix))
    if health.unknown:
        problem = f"attempts that may have been paid, and count as paid: {health.losses}"
        findings.append(CheckFinding(place, problem, "toolmill spend names them", NOTICE))
    return CheckOutcome(health.effects, findings)


@declare_check("models", "the adapter that each role trained last is whole")
def check_models(home: InspectedHome) -> CheckOutcome:
    n, findings = 0, []
    for table in ADAPTERS:
        try:
            rows = home.tables.read(table).to_dicts()
        except (ValueError, OSError, pl.exceptions.PolarsError):
            continue  # `check_pointers` reports it
        n += len(rows)
        for row in rows:
            if flaw := find_model_flaw(home.home, str(row["role"]), str(row["model"])):
                fix = f"materialize {table.name} again, or restore the latest backup"
                findings.append(CheckFinding(f"models/{str(row['model'])[:12]}", flaw, fix))
    return CheckOutcome(n, findings)


@declare_check("vectors", "every current text has its vector, and each key occurs once")
def check_vectors(home: InspectedHome) -> CheckOutcome:
    store, findings = LanceStore(home.home / "lance"), []
    for path in sorted(store.root.glob("*.lance")):
        try:
            store.check_keys(path.name.removesuffix(".lance"))
        except (DuplicateKeys, OSError, RuntimeError, ValueError, KeyError) as error:
            problem = " ".join(str(error).split())[:200]
            findings.append(
                CheckFinding(f"lance/{path.name}", problem, f"rm -r {path}, then {RUN}")
            )
    rows = home.tables.read(VECTORS).select("text_digest", "embedder").unique().rows()
    keys = home.choose_sample(make_vector_key(text, embedder) for text, embedder in rows)
    if keys and not findings and (missing := store.find_missing(keys)):
        problem = f"{len(missing)} of {len(keys)} texts have no vector, first {min(missing)[:60]}"
        fix = f"materialize contract_vectors again: {RUN}"
        findings.append(CheckFinding("lance/texts.lance", problem, fix))
    return CheckOutcome(len(keys), findings)


@declare_check("champions", "the champion of each role serves")
def check_champions(home: InspectedHome) -> CheckOutcome:
    findings = []
    for role in list_roles():
        thing = f"champions/{role}.json"
        try:
            notice = find_model_in_service(home.home, role).notice
        except PointerBroken as error:
            findings.append(CheckFinding(thing, str(error), REPAIR))
            continue
        if notice:
            findings.append(CheckFinding(thing, notice, f"materialize {role}_adapter"))
    try:
        moving = read_pending_move(home.home)
    except PointerBroken as error:
        findings.append(CheckFinding(MOVING, str(error), f"rm {MOVING}"))
        moving = None
    if moving:
        problem = "a move of pointers was cut short, or goes on now; it counts as done"
        fix = "any run or `toolmill release` finishes it"
        findings.append(CheckFinding(MOVING, problem, fix, NOTICE))
    return CheckOutcome(len(list_roles()), findings)


@declare_check("release", "what is served is whole and consistent")
def check_release(home: InspectedHome) -> CheckOutcome:
    """By every digest that it names."""
    thing = "releases/HEAD.json"
    try:
        served, current = read_served(home.home), read_current_release(home.home)
        if not served:
            problem = "a release was made, and no index of it is served"
            finding = CheckFinding("router/HEAD.json", problem, SERVE)
            return CheckOutcome(0, [finding] if current else [])
        version, name = str(served.get("version")), str(served.get("release"))
        thing = f"releases/{name[:12]}"
        release = read_release(home.home, name)
    except (PointerBroken, ReleaseError) as error:
        return CheckOutcome(1, [CheckFinding(thing, str(error), SERVE)])
    flaws = list(list_release_flaws(home.home, release, version))
    try:
        load_index(home.home, version)
    except (IndexBroken, IndexMissing) as error:
        flaws.append(" ".join(str(error).split()))
    embedder = str(read_index_meta(home.home, version).get("embedder"))
    folder = find_encoder_folder(home.home, embedder)
    try:
        files = json.loads((folder / "encoder.json").read_bytes()).get("files") or {}
        flaws += filter(None, [find_file_flaw(folder, {n: f["sha256"] for n, f in files.items()})])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        flaws.append(f"{folder.name}/encoder.json cannot be read ({error})")
    findings = [CheckFinding(thing, flaw, SERVE) for flaw in dict.fromkeys(flaws)]
    return CheckOutcome(1 + len(release.get("models") or {}), findings)


@declare_check("takedowns", "nothing that was taken down is reached")
def check_takedowns(home: InspectedHome) -> CheckOutcome:
    """Tables are read without what was taken down. With --all, bytes that are left count too."""
    active, findings = find_active(home.home), []
    if not active:
        return CheckOutcome(0)
    try:
        shown = find_taken_tools(home.home) - read_blocked(home.home).tools
    except IndexBroken as error:  # `check_release` says what to do
        shown = set()
        problem = f"cannot be checked: {error}"
        findings.append(CheckFinding("router", problem, "see `release`"))
    if shown:
        problem = f"{len(shown)} tools that are taken down are served, first {min(shown)[:120]}"
        findings.append(CheckFinding("router/BLOCKED.json", problem, RENEW))
    servers = read_takedowns(home.home).servers
    listed = [
        row.listing_id
        for row in read_rows(home.tables.read(LISTINGS).to_dicts())
        if try_item(partial(identify_server, row), lambda _: None) in servers
    ]
    if listed:
        problem = f"{len(listed)} new listings of servers that are taken down, first {listed[0]}"
        findings.append(CheckFinding("tables/listings", problem[:240], RENEW))
    left = list(list_taken(home.home, home.state, home.now, None)) if home.everything else []
    if left:
        problem = f"{len(left)} files still hold what was taken down, first {left[0].name[:120]}"
        findings.append(CheckFinding("takedowns", problem, "toolmill gc --yes", NOTICE))
    return CheckOutcome(len(active), findings)


@declare_check("dagster", "its instance answers, and each started run has a process")
def check_instance(home: InspectedHome) -> CheckOutcome:
    from orchestration.runs.instance import make_config, open_history
    from warehouse.errors import UnusableInput

    make_config()  # as the next run does: without the driver of Postgres, none can start
    folder = Path(os.environ.get("DAGSTER_HOME") or home.state / "dagster")
    if not (folder / "dagster.yaml").is_file():
        return CheckOutcome(0)
    try:
        with open_history(folder) as instance:
            findings = list(list_dead_runs(instance, home.now))
            return CheckOutcome(instance.get_runs_count(), findings)
    except UnusableInput:
        raise
    except Exception as error:  # Dagster's storages raise what their databases do
        # The words of a database may hold its password.
        reason = "" if POSTGRES in os.environ else " ".join(str(error).split())[:200]
        problem = f"does not answer: {reason or type(error).__name__}"
        fix = f"look at {folder}/dagster.yaml; a damaged history may be moved away: tables stay"
        return CheckOutcome(1, [CheckFinding(str(folder), problem, fix)])


def list_dead_runs(instance: Any, now: float) -> Iterator[CheckFinding]:
    import dagster as dg

    from orchestration.runs.instance import PROCESS_TAG, UNFINISHED, find_run_process

    beats = instance.get_daemon_heartbeats().values()
    watched = any(now - beat.timestamp < _SILENT_S for beat in beats)
    for run in instance.get_runs(dg.RunsFilter(statuses=UNFINISHED)):
        thing, status = f"run {run.run_id[:8]}", run.status.value
        if find_run_process(run) is False:
            problem = f"{status}, and its process is gone; it holds its slots"
            yield CheckFinding(thing, problem, f"{RUN} clears it first")
        elif PROCESS_TAG not in run.tags and not watched:
            problem = f"{status}, and no daemon was seen that could carry it out"
            yield CheckFinding(thing, problem, "start `toolmill dev`, or mark it as failed there")
