"""A stand-in of the hub over HTTP: what `huggingface_hub` asks for when it creates and commits."""

import base64
import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response


@dataclass
class Hub:
    """repos: "kind/ORG/NAME" -> path -> bytes. puts: objects that were sent. fail_at: the commit
    that ends in a 500, counted from 1."""

    repos: dict[str, dict[str, bytes]] = field(default_factory=dict)
    commits: dict[str, int] = field(default_factory=dict)
    objects: dict[str, bytes] = field(default_factory=dict)
    puts: int = 0
    fail_at: int = 0
    tokens: set[str] = field(default_factory=set)
    _begun: int = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        if "authorization" in request.headers:
            self.tokens.add(request.headers["authorization"])
        answer = self._answer(request.method, request.url.path, await request.body(), request)
        await answer(scope, receive, send)

    def _answer(self, method: str, path: str, body: bytes, request: Request) -> Response:
        parts = path.strip("/").split("/")
        if path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked.get('organization') or 'me'}/{asked['name']}"
            name = asked["name"] if "/" in asked["name"] else name
            self.repos.setdefault(f"{asked.get('type') or 'model'}/{name}", {})
            return JSONResponse({"url": f"{request.base_url}{name}", "id": name, "name": name})
        if path == "/api/validate-yaml":
            return JSONResponse({"errors": [], "warnings": []})
        if parts[0] == "put":
            assert hashlib.sha256(body).hexdigest() == parts[1]
            self.objects[parts[1]] = body
            self.puts += 1
            return JSONResponse({})
        if path.endswith("/info/lfs/objects/batch"):
            return self._answer_batch(json.loads(body), request)
        if "resolve" in parts:
            return self._answer_file(parts)
        kind = parts[1].removesuffix("s")
        repo = f"{kind}/{'/'.join(parts[2:4])}"
        if len(parts) == 4 or parts[4] == "revision":
            return JSONResponse({"id": "/".join(parts[2:4]), "sha": self._find_sha(repo),
                                 "siblings": [], "private": True})  # fmt: skip
        if parts[4] == "preupload":
            return JSONResponse({"files": [self._choose_mode(repo, one)
                                           for one in json.loads(body)["files"]]})  # fmt: skip
        if parts[4] == "tree":
            return JSONResponse([{"type": "file", "path": name, "size": len(data), "oid": "0"}
                                 for name, data in self.repos[repo].items()])  # fmt: skip
        assert parts[4] == "commit"
        return self._take_commit(repo, body, str(request.base_url))

    def _answer_file(self, parts: list[str]) -> Response:
        at = parts.index("resolve")
        kind = "dataset" if parts[0] == "datasets" else "model"
        repo = f"{kind}/{'/'.join(parts[at - 2 : at])}"
        data = self.repos[repo]["/".join(parts[at + 2 :])]
        headers = {"etag": f'"{hashlib.sha1(data).hexdigest()}"', "x-repo-commit": "c" * 40}
        return Response(data, 200, headers)

    def _find_sha(self, repo: str) -> str:
        return f"{self.commits.get(repo, 0):040x}"

    def _choose_mode(self, repo: str, one: dict[str, Any]) -> dict[str, Any]:
        large = one["path"].endswith((".safetensors", ".gguf", ".parquet"))
        held, oid = self.repos[repo].get(one["path"]), None
        if held is not None and large:
            oid = hashlib.sha256(held).hexdigest()
        elif held is not None:
            oid = hashlib.sha1(b"blob %d\0" % len(held) + held).hexdigest()
        mode = "lfs" if large else "regular"
        return {"path": one["path"], "uploadMode": mode, "shouldIgnore": False, "oid": oid}

    def _answer_batch(self, asked: dict[str, Any], request: Request) -> JSONResponse:
        found = []
        for one in asked["objects"]:
            made = {"oid": one["oid"], "size": one["size"]}
            if one["oid"] not in self.objects:
                made["actions"] = {"upload": {"href": f"{request.base_url}put/{one['oid']}"}}
            found.append(made)
        return JSONResponse({"transfer": "basic", "objects": found})

    def _take_commit(self, repo: str, body: bytes, address: str) -> JSONResponse:
        self._begun += 1
        if self._begun == self.fail_at:
            return JSONResponse({"error": "out of order"}, 403)
        for line in filter(None, body.splitlines()):
            one = json.loads(line)
            value = one["value"]
            if one["key"] == "file":
                self.repos[repo][value["path"]] = base64.b64decode(value["content"])
            elif one["key"] == "lfsFile":
                self.repos[repo][value["path"]] = self.objects[value["oid"]]
            elif one["key"] == "deletedFile":
                del self.repos[repo][value["path"]]
        self.commits[repo] = self.commits.get(repo, 0) + 1
        shown = repo.replace("dataset/", "datasets/").removeprefix("model/")
        sha = self._find_sha(repo)
        made = {"commitOid": sha, "commitUrl": f"{address}{shown}/commit/{sha}"}
        return JSONResponse({"success": True, "hookOutput": "", **made})
