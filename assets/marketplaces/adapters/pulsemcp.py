"""Pulsemcp: PulseMCP's subregistry, which speaks the registry's API behind a key and a tenant."""

from collections.abc import Mapping
from typing import Any, ClassVar

from assets.marketplaces.adapters.registry import RegistryAdapter
from assets.marketplaces.launch.shell_words import find_account_flags
from assets.marketplaces.listing import HeaderVar, Listing, dump_tools
from assets.marketplaces.policy import PostForm, RecordRef
from assets.marketplaces.server_json.inputs import as_object, list_objects, read_string


class PulseMcpAdapter(RegistryAdapter):
    """The registry's adapter with two headers and another `_meta` key."""

    name: ClassVar[str] = "pulsemcp"
    needs: ClassVar[tuple[str, ...]] = ("api_key", "tenant_id")
    meta_key: ClassVar[str] = "com.pulsemcp/server-version"

    async def headers(self, post: PostForm) -> dict[str, str]:
        keys = self.policy.keys
        return {"X-API-Key": keys["api_key"], "X-Tenant-ID": keys["tenant_id"]}

    def parse(self, raw: Any, ref: RecordRef) -> list[Listing]:
        """The registry's listing, with the headers and tools that PulseMCP found its remote to
        have."""
        meta = self.read_registry_meta(raw)
        results = []
        for listing in super().parse(raw, ref):
            remotes = sorted(name for name in meta if name.startswith("remotes["))
            # Tools of the remote that is launched, else of the first that has any.
            texts = (
                dump_tools(as_object(meta.get(name)).get("tools"))
                for name in (listing.evidence, *remotes)
            )
            changes: dict[str, Any] = {"tools": next(filter(None, texts), None)}
            if not listing.headers and listing.url:
                # The key of what PulseMCP says of a remote is the text "remotes[0]".
                headers = _make_auth_headers(as_object(meta.get(listing.evidence)))
                flags = {*listing.flags, *find_account_flags(headers)}
                changes |= {"headers": headers, "flags": tuple(sorted(flags))}
            results.append(listing.model_copy(update=changes))
        return results


def _make_auth_headers(auth: Mapping[str, Any]) -> tuple[HeaderVar, ...]:
    """The headers that a remote asks for: those of its API key, else `Authorization`."""
    options = list_objects(auth.get("authOptions"))
    if not options or any(option.get("type") == "open" for option in options):
        return ()
    names: list[str] = []
    for option in options:
        sources = list_objects(as_object(option.get("detail")).get("sources"))
        in_headers = [source for source in sources if source.get("location") == "header"]
        names = names or [read_string(source.get("name")).strip() for source in in_headers]
    unique = dict.fromkeys(name for name in names if name)
    return tuple(
        HeaderVar(name=name, required=True, secret=True) for name in unique or ["Authorization"]
    )
