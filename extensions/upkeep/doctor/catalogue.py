"""Which checks there are: ours in the order of what they rest on, then installed ones.

A package adds its own as an entry point of the group `toolmill.checks` that names a `Check`.
"""

from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points

from extensions.upkeep.doctor.check import Check, Finding, Home, Looked
from extensions.upkeep.doctor.effects import check_ledger, check_models
from extensions.upkeep.doctor.instance import check_instance
from extensions.upkeep.doctor.machine import (
    check_layout,
    check_leftovers,
    check_permissions,
    check_room,
)
from extensions.upkeep.doctor.releases import check_champions, check_release
from extensions.upkeep.doctor.servers import check_certificates, check_licences
from extensions.upkeep.doctor.storage import (
    check_blob_names,
    check_blobs,
    check_histories,
    check_pointers,
)
from extensions.upkeep.doctor.takedowns import check_takedowns
from extensions.upkeep.doctor.vectors import check_vector_keys, check_vectors

GROUP = "toolmill.checks"
CHECKS = (
    Check("layout", "this version can read the home", check_layout),
    Check("room", "the disk has room for a run", check_room),
    Check("permissions", "a run can write, and nobody else reads a secret", check_permissions),
    Check("pointers", "each table's pointer names a whole version, true to name", check_pointers),
    Check("histories", "every line of histories, decisions and reviews is whole", check_histories),
    Check("blobs", "blobs hold the bytes that they are named by", check_blobs),
    Check("references", "the blobs that current tables name are there", check_blob_names),
    Check("ledger", "the database is whole, and its answers are there", check_ledger),
    Check("models", "the adapter that each role trained last is whole", check_models),
    Check("keys", "each key of the vector store occurs once", check_vector_keys),
    Check("vectors", "every current text has its vector", check_vectors),
    Check("certificates", "what ran was held by today's escape suite", check_certificates),
    Check("licences", "the licence of every accepted pair is known", check_licences),
    Check("champions", "the champion of each role serves", check_champions),
    Check("release", "what is served is whole and fits itself", check_release),
    Check("takedowns", "nothing that was taken down is reached", check_takedowns),
    Check("dagster", "its instance answers, and each started run has a process", check_instance),
    Check("leftovers", "killed writers left nothing behind", check_leftovers),
)


def list_checks() -> Iterator[Check]:
    """Our checks, then those of installed packages; one that cannot be loaded is a finding."""
    yield from CHECKS
    for point in entry_points(group=GROUP):
        yield _load_check(point)


def _load_check(point: EntryPoint) -> Check:
    try:
        made = point.load()
        if isinstance(made, Check):
            return made
        problem = f"{point.value} is a {type(made).__name__}, expected a Check"
    except Exception as error:  # another package's code
        problem = f"{point.value} cannot be loaded: {type(error).__name__}: {error}"[:200]
    finding = Finding(point.name, problem, "correct or remove the package that names it")

    def look(_: Home) -> Looked:
        return Looked(0, [finding])

    return Check(point.name, "an installed check can be loaded", look)
