"""Alternative: a way to run a server that its README shows, beside the gateway its page offers."""

import re
from collections.abc import Mapping

from assets.marketplaces.launch.mcp_config import read_launch_facts
from assets.marketplaces.markup.launch_facts import Found

GATEWAY = "api.mcphub.com"


def choose_config(configs: list[Found], native_id: str) -> tuple[Found, Found | None]:
    """(the config to list, the gateway it is preferred to)."""
    gateway = next((config for config in configs if config.part or _is_gateway(config)), None)
    if gateway is None:
        return configs[0], None
    names = f"{native_id} {' '.join(gateway.servers)}"
    for one in configs:
        if one is not gateway and not _is_gateway(one) and _starts_named_package(one, names):
            return one, gateway
    return gateway, None


def _is_gateway(config: Found) -> bool:
    entries = [entry for entry in config.servers.values() if isinstance(entry, Mapping)]
    return any(f"//{GATEWAY}/" in str(entry.get("url")) for entry in entries)


def _starts_named_package(config: Found, names: str) -> bool:
    """Whether each server of a config starts a package of the server called `names`."""
    for key, entry in config.servers.items():
        facts = read_launch_facts(entry)
        package = facts.get("package")
        if not facts["runnable"] or package is None or "hosted_gateway" in facts["flags"]:
            return False
        if not is_kin(f"{key} {package.identifier}", names):
            return False
    return True


def is_kin(name: str, names: str) -> bool:
    """Whether two names share a word that tells servers apart."""
    common = {"mcp", "server", "servers", "com", "github", "https", "http", "www", "the", "org",
              "gitlab", "bitbucket", "modelcontextprotocol", "npm", "ai", "io"}  # fmt: skip
    words = [set(re.findall(r"[a-z0-9]{2,}", text.lower())) - common for text in (name, names)]
    return bool(words[0] & words[1])
