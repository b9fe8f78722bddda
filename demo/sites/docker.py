"""Docker: the replica of its MCP catalogue: one file."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from starlette.requests import Request
from starlette.routing import Route

from demo.replicas.reply import JSON, ReplicaReply
from demo.replicas.site import ReplicaSite
from demo.world.record import ServerRecord

_HEAD = {"version": 3, "name": "docker-mcp", "displayName": "Docker MCP Catalog"}


class DockerSite(ReplicaSite):
    """`/mcp/catalog/v3/catalog.json`."""

    name = "docker"

    def list_routes(self) -> Sequence[Route]:
        return [self.make_route("/mcp/catalog/v3/catalog.json", self.serve_json)]

    def serve_json(self, request: Request) -> ReplicaReply:
        # Put together as text: that is how a key can come twice.
        entries = ",".join(
            f"{_make_text(name)}: {_make_text(facts)}" for name, facts in self._list_entries()
        )
        text = f'{_make_text(_HEAD)[:-1]}, "{self.name_member("registry")}": {{{entries}}}}}'
        return self._make_reply(text, JSON)

    def _list_entries(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """One at a time: thousands of them would be large."""
        return ((record.slug, _make_entry(record)) for record in self.list_records())

    def _make_reply(self, text: str, media_type: str) -> ReplicaReply:
        edited = max((record.revised_at for record in self.list_records()), default=None)
        return ReplicaReply(text.encode(), media_type, last=True, validators=True, edited=edited)


def _make_entry(record: ServerRecord) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "description": record.description,
        "title": record.title,
        "type": "remote" if record.remote else "server",
        "dateAdded": record.created_at,
        "upstream": record.repository or "",
        "tools": [{"name": name} for name in record.tools],
        "metadata": {"category": (record.tags or ("other",))[0], "tags": list(record.tags)},
    }
    if record.remote:
        return entry | _make_remote(record)
    if record.package is None:
        return entry
    image = record.package.identifier if record.package.kind == "oci" else f"mcp/{record.slug}"
    entry["image"] = f"{image}@sha256:{record.digest}"
    return (
        entry
        | _list_inputs(record)
        | {"command": [arg for arg in record.args if isinstance(arg, str)]}
    )


def _make_remote(record: ServerRecord) -> dict[str, Any]:
    remote = record.remote
    assert remote is not None
    variable = f"{record.slug.upper().replace('-', '_')}_PERSONAL_ACCESS_TOKEN"
    secret = f"{record.slug}.personal_access_token"
    result: dict[str, Any] = {"remote": {"transport_type": remote.transport, "url": remote.url}}
    if remote.auth == "oauth2":
        provider = {"provider": record.slug, "secret": secret, "env": variable}
        result["oauth"] = {"providers": [provider]}
    elif remote.auth == "api_key":
        result["remote"]["headers"] = {"Authorization": f"Bearer ${{{variable}}}"}
        result["secrets"] = [{"name": secret, "env": variable, "example": "<YOUR_TOKEN>"}]
    return result


def _list_inputs(record: ServerRecord) -> dict[str, Any]:
    """Secrets, variables with a value, and the configuration that others are filled from."""
    secrets, env, keys = [], [], {}
    for variable in record.inputs:
        key = variable.name.lower()
        if variable.secret:
            secrets.append(
                {
                    "name": f"{record.slug}.{key}",
                    "env": variable.name,
                    "example": f"<YOUR_{variable.name}>",
                    "description": variable.description,
                    "required": variable.required,
                }
            )
        elif variable.default:
            env.append({"name": variable.name, "value": variable.default})
        else:
            env.append({"name": variable.name, "value": f"{{{{{record.slug}.{key}}}}}"})
            keys[key] = {"type": "string", "description": variable.description}
    required = [
        item.name.lower() for item in record.inputs if item.required and item.name.lower() in keys
    ]
    config = {
        "name": record.slug,
        "description": f"Configuration of {record.title}",
        "type": "object",
        "properties": keys,
        "required": required,
    }
    return {"secrets": secrets, "env": env} | ({"config": [config]} if keys else {})


def _make_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
