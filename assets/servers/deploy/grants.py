"""Grants: the network and folders that a user gives one server beyond its sandbox."""

import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from assets.servers.recipes.placeholders import DATA
from assets.servers.recipes.recipe import LaunchRecipe
from assets.servers.sandbox.gateway import parse_host
from assets.servers.sandbox.spec import (
    HOME,
    SandboxMount,
    UnusableGrant,
    is_private_folder,
    is_system_folder,
    open_granted_folder,
)

Network = Literal["none", "full"]
# Who a server runs as in folders that toolmill made for it as root; beside that of the fetch phase.
SERVER_UID = 1_199_999_998


@dataclass(frozen=True)
class LocalSite:
    """A web site that toolmill itself serves, at a socket of this host: to who is granted it,
    http://HOST. It is at no address."""

    host: str
    socket: Path


@dataclass(frozen=True)
class ServerGrant:
    """What one server may reach besides its own files.

    network: None for the sandbox's. folders: of this host, shown where `mount_folders` says. hosts:
    as `parse_host` reads them, the only ones that it reaches, besides sites of toolmill's own.
    personal: the folders are a user's own: nobody changes
    whose they are, and what a listing chose runs beside them only once that is confirmed. Else they
    are toolmill's, made for this launch.
    """

    network: Network | None = None
    folders: tuple[SandboxMount, ...] = ()
    hosts: tuple[str, ...] = ()
    sites: tuple[LocalSite, ...] = ()
    personal: bool = False

    @property
    def reaches_own(self) -> bool:
        """Whether it reaches something that its user keeps."""
        return self.personal and bool(self.folders or self.hosts)

    @property
    def has_network(self) -> bool:
        """Whether it reaches hosts, some or all: what they answer moves."""
        return self.network == "full" or bool(self.hosts)

    @property
    def reached(self) -> tuple[str, ...]:
        """Names of the single hosts that it reaches, whose words it may hand on."""
        return tuple(
            [parse_host(host)[0] for host in self.hosts] + [site.host for site in self.sites]
        )

    def with_network_of(self, other: "ServerGrant") -> "ServerGrant":
        """This grant with what another reaches of the network: a server that is called in a folder
        of toolmill's own keeps its hosts, and gets none of its user's folders."""
        return replace(self, network=other.network, hosts=other.hosts)

    @property
    def user(self) -> int | None:
        """The user that a server runs as so that it can use the folders: their owner, never root;
        None for one of the sandbox's own. Only root's sandbox has a choice."""
        if not self.folders or os.geteuid() != 0:
            return os.getuid() if self.folders else None
        for mount in sorted(self.folders, key=lambda mount: not mount.writable):
            stat_folder = stat_granted_folder if self.personal else os.stat
            if owner := stat_folder(mount.host).st_uid:
                return owner
        return None


def parse_folder(text: str) -> tuple[Path, bool]:
    """(the folder, whether it may be written) of `PATH` or `PATH:rw`. Raises ValueError."""
    written = text.endswith(":rw")
    try:
        path = Path(text.removesuffix(":rw").removesuffix(":ro")).expanduser()
    except RuntimeError:
        raise ValueError(f"folder {text!r}: there is no home folder of that name") from None
    if not path.is_absolute():
        raise ValueError(f"folder {text!r}: expected a full path, or one that begins with ~/")
    return Path(os.path.normpath(path)), written


def mount_folders(folders: Iterable[str]) -> tuple[SandboxMount, ...]:
    """Where `PATH[:rw]` are seen inside: the first at the path that recipes make up for a folder,
    so that their arguments name it, further ones by their own names beside it. Raises ValueError
    for two of one name, and for what is never shown to a server."""
    mounts: list[SandboxMount] = []
    for text in folders:
        path, written = parse_folder(text)
        inside = f"{HOME}/{path.name}" if mounts else DATA
        if other := next((mount.host for mount in mounts if mount.inside == inside), None):
            raise ValueError(f"folders {other} and {path}: both are {inside} inside; grant one")
        mounts.append(SandboxMount(path, inside, writable=written))
    return tuple(mounts)


def find_folder_problem(path: Path) -> str | None:
    """Why a folder cannot be granted: what it is and what to do; None where it can."""
    real = Path(os.path.realpath(path))
    if is_private_folder(path):
        return "a home folder, a `.local` or above one: grant the one folder in it that is needed"
    if is_system_folder(real):
        fix = "grant a folder of your own"
        return f"other programs keep sockets there, which answer a server: {fix}"
    if not os.path.exists(real):
        return "no such folder: make it, or take the grant back"
    if real != path:
        return f"a link, or behind one, that leads to {real}: grant that if it is what you mean"
    if not os.path.isdir(real):
        return f"a file: grant the folder that holds it, {real.parent}, or one made for it"
    return None


def find_grant_problem(
    grant: ServerGrant,
    own_paths: Iterable[Path] = (),
    others: Mapping[str, ServerGrant] = MappingProxyType({}),
) -> str | None:
    """Why a server cannot be launched with its grant, naming the folder and the fix. own_paths:
    files and folders of toolmill's own, which a server neither sees nor writes. others: grants of
    other servers: who may write above a folder decides what lies there."""
    try:
        return _find_place_problem(grant, own_paths, others) or _find_rights_problem(grant)
    except (OSError, UnusableGrant) as error:  # it changes while it is looked at
        return str(error)


def _find_place_problem(
    grant: ServerGrant, own_paths: Iterable[Path], others: Mapping[str, ServerGrant]
) -> str | None:
    """Why a folder is not shown where it lies."""
    written = {
        mount.host: server
        for server, other in others.items()
        for mount in other.folders
        if mount.writable
    }
    for mount in grant.folders:
        problem = find_folder_problem(mount.host)
        above = next((folder for folder in mount.host.parents if folder in written), None)
        if grant.personal and above and not problem:
            problem = f"it lies in {above}, which {written[above]} may write: grant it that folder"
            problem += " read-only, or keep the two apart"
        for path in own_paths if grant.personal and not problem else ():
            real = Path(os.path.realpath(path))
            inside = mount.host.is_relative_to(real) or real.is_relative_to(mount.host)
            # Who can write where a link lies can lead it elsewhere.
            places = (real, Path(os.path.realpath(path.parent)) / path.name)
            writable = [place for place in places if place.is_relative_to(mount.host)]
            if real.is_dir() and inside:
                problem = f"toolmill keeps its own files in {real}: name a folder apart from that"
            elif mount.writable and writable:
                problem = f"{writable[0]} lies in it, so the server could grant itself more"
                problem += ": grant it read-only"
            if problem:
                break
        if problem:
            return f"folder {mount.host}: {problem}"
    return None


def _find_rights_problem(grant: ServerGrant) -> str | None:
    """Why a user's folders cannot be used as granted. Raises UnusableGrant."""
    user, root = grant.user, os.geteuid() == 0
    for mount in grant.folders if grant.personal else ():
        about = stat_granted_folder(mount.host)
        rights = 0o7 if mount.writable else 0o5
        mode = stat.S_IMODE(about.st_mode) >> (6 if user == about.st_uid else 0)
        needed = os.R_OK | os.X_OK | (os.W_OK if mount.writable else 0)
        if mode & rights == rights if root else os.access(mount.host, needed):
            continue
        way = "written" if mount.writable else "read"
        who = "you" if not root else f"user {user}" if user else "anybody but root"
        fix = "a server never runs as root: give the folder to a user (chown -R USER FOLDER)"
        if not root or about.st_uid:
            fix = "change its owner or its mode, or grant another"
        problem = f"it cannot be {way} by {who}, as whom the server would run; {fix}"
        return f"folder {mount.host}: {problem}"
    return None


def stat_granted_folder(path: Path) -> os.stat_result:
    """Raises UnusableGrant."""
    folder = open_granted_folder(path)
    try:
        return os.fstat(folder)
    finally:
        os.close(folder)


def prepare_folders(grant: ServerGrant) -> None:
    """Makes what root made for a launch writable for the launch; a user's own are left alone."""
    for mount in grant.folders:
        if mount.writable and not grant.personal:
            assign_folder(mount.host)


def assign_folder(folder: Path) -> None:
    """Makes the user that servers run as own what root owns in a folder of toolmill's own."""
    if os.geteuid() != 0:
        return
    # By descriptors: a server that still runs could lead a path elsewhere. Below what is a server's
    # own nothing is root's.
    for _, folders, names, here in os.fwalk(folder, follow_symlinks=False):
        roots = [
            name
            for name in (*folders, *names)
            if os.stat(name, dir_fd=here, follow_symlinks=False).st_uid == 0
        ]
        folders[:] = sorted({*folders} & {*roots})
        for name in roots:
            os.chown(name, SERVER_UID, SERVER_UID, dir_fd=here, follow_symlinks=False)
        if os.fstat(here).st_uid == 0:
            os.fchown(here, SERVER_UID, SERVER_UID)


def list_granted_places(recipe: LaunchRecipe, grant: ServerGrant) -> set[str]:
    """The made-up values (`arg:0`, `env:NAME`) that are the path of a granted folder."""
    if DATA not in (mount.inside for mount in grant.folders):
        return set()
    words = [(f"arg:{place}", word) for place, word in enumerate(recipe.args)]
    words += [(f"env:{name}", value) for name, value in recipe.env]
    return {place for place, word in words if word == DATA}
