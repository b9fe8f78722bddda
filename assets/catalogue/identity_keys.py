"""Keys: what a listing says about which server it is, in a form that two marketplaces share."""

import ipaddress
import re
import unicodedata
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from packaging.utils import canonicalize_name

from assets.marketplaces.listing import Listing, Package
from warehouse.sanitize.redact import MARK

LEVELS = ("package", "url", "repository", "name")  # strongest first

# What runs or reaches some other server: its own name says nothing about which.
_RUNNERS = frozenset(
    (
        *("npm:@smithery/cli", "npm:mcp-remote", "npm:supergateway", "npm:mcp-proxy"),
        *("pypi:mcp-proxy", "oci:node", "oci:python", "oci:alpine", "oci:ubuntu", "oci:debian"),
        *("oci:denoland/deno", "oci:oven/bun", "oci:busybox", "oci:", "npm:", "pypi:", "mcpb:"),
    )
)
_CODE_HOSTS = ("github.com", "gitlab.com", "bitbucket.org")  # owner and name in any case
_OTHER_CODE_HOSTS = ("codeberg.org", "gitee.com", "git.sr.ht", "gist.github.com")
_GATEWAYS = ("smithery.ai", "run.tools", "mcphub.com", "pipedream.net", "zapier.com", "glama.ai")
_FILLERS = frozenset(("mcp", "server", "servers", "the", "official", "for", "a", "an"))
_SCP = re.compile(r"(?:ssh://)?git@([\w.\-]+)[:/](.+)")


@dataclass(frozen=True)
class Keys:
    """The keys of one listing, None where a field gives none. `folder` of the repository."""

    package: str | None = None
    url: str | None = None
    repository: str | None = None
    name: str | None = None
    folder: str = ""

    def at(self, level: str) -> str | None:
        """The key of a level; the repository's with its folder."""
        key = getattr(self, level)
        return f"{key}#{self.folder}" if level == "repository" and key and self.folder else key


def find_keys(listing: Listing) -> Keys:
    """The keys of a listing. A URL counts where no package says what runs."""
    repository, folder = make_repository_key(listing.repository)
    folder = folder or (listing.subfolder or "").strip("/").lower()
    package = make_package_key(listing.package)
    url = make_url_key(listing.url) if listing.package is None else None
    return Keys(package, url, repository, name_key(listing.name), folder)


def make_package_key(package: Package | None) -> str | None:
    """`npm:@scope/Name` (scope lower case), `pypi:` by PEP 503, `oci:` without tag and digest,
    `mcpb:` without query; others in lower case."""
    if package is None or not package.identifier.strip() or MARK in package.identifier:
        return None
    text = package.identifier.strip()
    if package.type == "npm":
        scope, slash, name = text.rpartition("/")
        key = f"npm:{scope.lower()}{slash}{name}"
    elif package.type == "pypi":
        key = f"pypi:{canonicalize_name(text)}"
    elif package.type == "oci":
        key = f"oci:{_image(text)}"
    elif package.type == "mcpb":
        key = f"mcpb:{_address(text) or text}"
    else:
        key = f"{package.type}:{text.lower().replace('_', '-')}"
    return None if key in _RUNNERS else key


def make_url_key(url: str | None) -> str | None:
    """A remote URL without scheme, credentials, query, fragment and trailing slash; None where it
    is a pattern, this machine or a private network: such a URL names no server."""
    if not url or MARK in url or re.search(r"[{}<>$]|%7[Bb]", url):
        return None
    return _address(url)


def is_gateway(url: str) -> bool:
    """Whether a URL's key lies behind a marketplace's gateway: another address of one server."""
    host = url.partition("/")[0]
    return any(host == one or host.endswith(f".{one}") for one in _GATEWAYS)


def make_repository_key(repository: str | None) -> tuple[str | None, str]:
    """("host/owner/name", folder) of any way to write a repository's address."""
    if not repository or MARK in repository:
        return None, ""
    text = repository.strip()
    text = re.sub(r"^(?:git\+|scm:git:)", "", text)
    if found := _SCP.fullmatch(text):
        text = f"https://{found[1]}/{found[2]}"
    elif "://" not in text:
        text = f"https://{text.removeprefix('//')}"
    try:
        parts = urlsplit(text)
        host = (parts.hostname or "").lower().removeprefix("www.")
    except ValueError:
        return None, ""
    path, folder = _split_folder([unquote(part) for part in parts.path.split("/") if part])
    if len(path) < 2 or not (
        host in _CODE_HOSTS + _OTHER_CODE_HOSTS
        or parts.path.endswith(".git")
        or host.startswith(("gitlab.", "git.", "gitea."))
    ):
        return None, ""
    path[-1] = path[-1].removesuffix(".git")
    key = f"{host}/{'/'.join(path)}"
    return (key.lower() if host in _CODE_HOSTS else key), folder.strip("/").lower()


def name_key(name: str) -> str | None:
    """Words of a name without those every server has ("mcp", "server"); None where none is left or
    they are too short to mean one server."""
    text = unicodedata.normalize("NFKC", name).casefold()
    text = text.rpartition("/")[2]
    words = [word for word in re.findall(r"[^\W_]+", text) if word not in _FILLERS]
    key = "-".join(words)
    return key if len(key) >= 4 else None


def shorten_name(package: str) -> str:
    """The name of a package's key without ecosystem, scope and filler words."""
    return name_key(package.partition(":")[2]) or package.rpartition("/")[2].lower()


def find_url_root(url: str) -> str:
    """A URL's key without the part that only names the transport: `/sse`, `/mcp`."""
    return re.sub(r"(?:/(?:mcp|sse|stream|http|v\d))+$", "", url)


def _image(text: str) -> str:
    name = text.lower().partition("@")[0]
    head, colon, tag = name.rpartition(":")
    name = head if colon and "/" not in tag else name
    for prefix in ("index.docker.io/", "registry-1.docker.io/", "docker.io/", "library/"):
        name = name.removeprefix(prefix)
    return name


def _address(url: str) -> str | None:
    try:
        parts = urlsplit(url.strip())
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError:
        return None
    if not host or _is_local(host):
        return None
    shown = f":{port}" if port and port not in (80, 443) else ""
    return host + shown + parts.path.rstrip("/")


def _is_local(host: str) -> bool:
    if host == "localhost" or host.endswith((".local", ".localhost", ".internal", ".lan")):
        return True
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return "." not in host


def _split_folder(path: list[str]) -> tuple[list[str], str]:
    """(owner and name, folder) of the path of a repository's page."""
    for mark in ("-", "tree", "blob", "src"):
        if mark in path[2:]:
            at = path.index(mark, 2)
            rest = path[at + 1 :]
            rest = rest[1:] if mark == "-" else rest  # gitlab: /-/tree/REF/folder
            return path[:at], "/".join(rest[1:])
    return path, ""
