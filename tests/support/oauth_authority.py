"""A protected MCP server and its OAuth authorisation server on loopback, each with its own port."""

import base64
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from tests.support.http_mcp import Call, Peer, make_good_script, serve_script


@dataclass
class Authority:
    """What both servers know, and what a test may change while they run."""

    issuer: str = ""
    resource: str = ""
    lifetime_s: int | None = 3600
    refreshable: bool = True
    rotates: bool = True
    refuses_refresh: bool = False
    denies: bool = False
    challenge: str = ""  # the header of a 401; default: names the metadata
    metadata: dict[str, Any] = field(default_factory=dict)  # overrides of the authority's
    resource_metadata: dict[str, Any] = field(default_factory=dict)
    clients: dict[str, dict[str, Any]] = field(default_factory=dict)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    access: set[str] = field(default_factory=set)
    refresh: set[str] = field(default_factory=set)
    grants: list[dict[str, str]] = field(default_factory=list)

    def resource_script(self, call: Call) -> None:
        if call.path.startswith("/.well-known/oauth-protected-resource"):
            named = {"resource": self.resource, "authorization_servers": [self.issuer]}
            call.json({**named, **self.resource_metadata})
        elif call.path.startswith("/.well-known/"):
            call.say(status=404)
        elif call.headers.get("authorization", "").removeprefix("Bearer ") not in self.access:
            url = self.resource.removesuffix("/mcp") + "/.well-known/oauth-protected-resource/mcp"
            challenge = self.challenge or f'Bearer resource_metadata="{url}"'
            call.say(status=401, WWW_Authenticate=challenge)
        else:
            make_good_script()(call)

    def authority_script(self, call: Call) -> None:
        path = urlsplit(call.path).path
        if path == "/.well-known/oauth-authorization-server":
            call.json({**self._facts(), **self.metadata})
        elif path == "/register":
            client = {**call.message, "client_id": f"client-{len(self.clients)}"}
            self.clients[client["client_id"]] = client
            call.json(client, status=201)
        elif path == "/authorize":
            self._authorize(call)
        elif path == "/token":
            self._token(call)
        else:
            call.say(status=404)

    def _facts(self) -> dict[str, Any]:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "registration_endpoint": f"{self.issuer}/register",
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none", "client_secret_post"],
            "scopes_supported": ["tools"],
        }

    def _authorize(self, call: Call) -> None:
        asked = {name: values[0] for name, values in parse_qs(urlsplit(call.path).query).items()}
        client = self.clients.get(asked["client_id"])
        wanted = asked["redirect_uri"]  # of a client without any that are its own, each will do
        if client is None or wanted not in (client["redirect_uris"] or [wanted]):
            call.say("unknown client or redirect", status=400)
            return
        answer = {"state": asked["state"]}
        if self.denies:
            answer["error"] = "access_denied"
        else:
            answer["code"] = secrets.token_urlsafe(16)
            self.codes[answer["code"]] = asked
        call.say(status=302, Location=f"{asked['redirect_uri']}?{urlencode(answer)}")

    def _token(self, call: Call) -> None:
        asked = {name: values[0] for name, values in parse_qs(call.body.decode()).items()}
        kind, _, given = call.headers.get("authorization", "").partition(" ")
        if kind == "Basic":
            name, _, secret = base64.b64decode(given).decode().partition(":")
            asked |= {"client_id": name, "basic_secret": secret}
        self.grants.append(asked)
        problem = getattr(self, f"_{asked['grant_type']}")(asked, call)
        if problem:
            call.json({"error": problem, "error_description": f"no: {call.body.decode()}"}, 400)
            return
        token: dict[str, Any] = {"access_token": secrets.token_urlsafe(24), "token_type": "bearer"}
        self.access.add(token["access_token"])
        if self.lifetime_s is not None:
            token["expires_in"] = self.lifetime_s
        if self.refreshable and (self.rotates or asked["grant_type"] != "refresh_token"):
            token["refresh_token"] = secrets.token_urlsafe(24)
            self.refresh.add(token["refresh_token"])
        call.json(token)

    def _authorization_code(self, asked: dict[str, str], _: Call) -> str | None:
        begun = self.codes.pop(asked.get("code", ""), None)
        if begun is None or begun["redirect_uri"] != asked["redirect_uri"]:
            return "invalid_grant"
        digest = sha256(asked["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if (begun["code_challenge"], begun["code_challenge_method"]) != (challenge, "S256"):
            return "invalid_grant"
        secret = self.clients[begun["client_id"]].get("client_secret")
        given = asked.get("client_secret") or asked.get("basic_secret")
        return None if secret is None or given == secret else "invalid_client"

    def _refresh_token(self, asked: dict[str, str], _: Call) -> str | None:
        if self.refuses_refresh or asked["refresh_token"] not in self.refresh:
            return "invalid_grant"
        if self.rotates:
            self.refresh.discard(asked["refresh_token"])
        return None


@contextmanager
def authority(**facts: Any) -> Iterator[tuple[Authority, Peer, Peer]]:
    state = Authority(**facts)
    with (
        serve_script(state.resource_script) as resource,
        serve_script(state.authority_script) as issuer,
    ):
        state.resource, state.issuer = resource.url, issuer.url.removesuffix("/mcp")
        yield state, resource, issuer
