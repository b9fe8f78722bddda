"""Sites: replicas, each in its marketplace's shape."""

from collections.abc import Mapping

from demo.replicas.site import ReplicaSite
from demo.sites.docker import DockerSite
from demo.sites.files import FileSite
from demo.sites.json_sites import DeepNlp, GlamaSite, PipedreamSite
from demo.sites.mcphub import McpHub
from demo.sites.mcpso import McpSo
from demo.sites.registry import PulseMcp, RegistrySite
from demo.sites.smithery import SmitherySite

_SITES: tuple[type[ReplicaSite], ...] = (
    *(RegistrySite, McpSo, SmitherySite, GlamaSite, PulseMcp),
    *(McpHub, DeepNlp, PipedreamSite, DockerSite, FileSite),
)
REPLICAS: Mapping[str, type[ReplicaSite]] = {site.name: site for site in _SITES}
