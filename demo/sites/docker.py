"""Docker: the replica of its MCP catalogue: one file, in JSON and in YAML."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from starlette.requests import Request
from starlette.routing import Route

from demo.replicas.reply import JSON, Reply
from demo.replicas.site import Site
from demo.world.record import Record

_HEAD = {"version": 3, "name": "docker-mcp", "displayName": "Docker MCP Catalog"}
_YAML = "application/yaml"


class Docker(Site):
    """`/mcp/catalog/v3/catalog.json` and `.yaml`."""

    name = "docker"

    def routes(self) -> Sequence[Route]:
        return [
            self.route("/mcp/catalog/v3/catalog.json", self.in_json),
            self.route("/mcp/catalog/v3/catalog.yaml", self.in_yaml),
        ]

    def in_json(self, request: Request) -> Reply:
        # Put together as text: that is how a key can come twice.
        entries = ",".join(f"{_text(name)}: {_text(facts)}" for name, facts in self._entries())
        text = f'{_text(_HEAD)[:-1]}, "{self.key("registry")}": {{{entries}}}}}'
        return self._reply(text, JSON)

    def in_yaml(self, request: Request) -> Reply:
        """Block style above, JSON below: YAML holds JSON."""
        lines = [f"{name}: {_text(value)}" for name, value in _HEAD.items()]
        lines.append(f"{self.key('registry')}:" + ("" if len(self.records()) else " {}"))
        for name, facts in self._entries():
            lines.append(f"  {_text(name)}:")
            lines += [f"    {member}: {_text(value)}" for member, value in facts.items()]
        return self._reply("\n".join(lines) + "\n", _YAML)

    def _entries(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """One at a time: thousands of them would be large."""
        return ((one.slug, _entry(one)) for one in self.records())

    def _reply(self, text: str, media_type: str) -> Reply:
        records = self.records()
        edited = max(map(records.revised_at, range(len(records))), default=None)
        return Reply(text.encode(), media_type, last=True, validators=True, edited=edited)


def _entry(record: Record) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "description": record.description,
        "title": record.title,
        "type": "remote" if record.remote else "server",
        "dateAdded": record.created_at,
        "readme": f"https://desktop.docker.com/mcp/catalog/v3/readme/{record.slug}.md",
        "toolsUrl": f"https://desktop.docker.com/mcp/catalog/v3/tools/{record.slug}.json",
        "upstream": record.repository or "",
        "icon": "",
        "tools": [{"name": name} for name in record.tools],
        "prompts": 0,
        "resources": {},
        "metadata": {"category": (record.tags or ("other",))[0], "tags": list(record.tags)},
    }
    if record.remote:
        return entry | _remote(record)
    if record.package is None:
        return entry
    image = record.package.identifier if record.package.kind == "oci" else f"mcp/{record.slug}"
    entry["image"] = f"{image}@sha256:{record.digest}"
    return (
        entry | _inputs(record) | {"command": [one for one in record.args if isinstance(one, str)]}
    )


def _remote(record: Record) -> dict[str, Any]:
    remote = record.remote
    assert remote is not None
    variable = f"{record.slug.upper().replace('-', '_')}_PERSONAL_ACCESS_TOKEN"
    secret = f"{record.slug}.personal_access_token"
    found: dict[str, Any] = {
        "remote": {"transport_type": remote.transport, "url": remote.url},
    }
    if remote.auth == "oauth2":
        provider = {"provider": record.slug, "secret": secret, "env": variable}
        found["oauth"] = {"providers": [provider]}
    elif remote.auth == "api_key":
        found["remote"]["headers"] = {"Authorization": f"Bearer ${{{variable}}}"}
        found["secrets"] = [{"name": secret, "env": variable, "example": "<YOUR_TOKEN>"}]
    return found


def _inputs(record: Record) -> dict[str, Any]:
    """Secrets, variables with a value, and the configuration that others are filled from."""
    secrets, env, keys = [], [], {}
    for one in record.inputs:
        key = one.name.lower()
        if one.secret:
            secrets.append(
                {
                    "name": f"{record.slug}.{key}",
                    "env": one.name,
                    "example": f"<YOUR_{one.name}>",
                    "description": one.description,
                    "required": one.required,
                }
            )
        elif one.default:
            env.append({"name": one.name, "value": one.default})
        else:
            env.append({"name": one.name, "value": f"{{{{{record.slug}.{key}}}}}"})
            keys[key] = {"type": "string", "description": one.description}
    required = [
        one.name.lower() for one in record.inputs if one.required and one.name.lower() in keys
    ]
    config = {
        "name": record.slug,
        "description": f"Configuration of {record.title}",
        "type": "object",
        "properties": keys,
        "required": required,
    }
    return {"secrets": secrets, "env": env} | ({"config": [config]} if keys else {})


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
