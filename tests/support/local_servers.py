"""Servers of one's own: small folders with a Python or a Node server, and the file naming them."""

import json
from pathlib import Path
from typing import Any

from assets.marketplaces.adapters.private import read_files
from assets.marketplaces.listing import Listing
from assets.marketplaces.policy import CrawlPolicy
from tests.serving.calling import HARNESS
from tests.support.untrusted_server import PREAMBLE

ECHO = "calls(lambda m, x: say(m, [x, os.getcwd()]))"
NODE = """
const SCHEMA = {type: 'object', properties: {x: {type: 'integer'}, how: {type: 'string'}},
                required: ['x']}
const answers = {
  initialize: () => ({protocolVersion: '2025-06-18', capabilities: {tools: {}},
                      serverInfo: {name: 'own', version: '1'}}),
  'tools/list': () => ({tools: [{name: 'do', inputSchema: SCHEMA}]}),
  'tools/call': (p) => ({content: [{type: 'text', text: String(p.arguments.x * 2)}]}),
  ping: () => ({}),
}
require('readline').createInterface({input: process.stdin}).on('line', (line) => {
  const m = JSON.parse(line)
  if (answers[m.method])
    console.log(JSON.stringify({jsonrpc: '2.0', id: m.id, result: answers[m.method](m.params)}))
})
"""


def write_server(folder: Path, source: str = ECHO, name: str = "server.py") -> Path:
    """A folder with a server in it: Python that may use `calls(do)`, or Node as it stands."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    for item in (folder.parent, folder, path.parent):
        item.chmod(0o755)  # pytest's folders are their owner's alone
    path.write_text(PREAMBLE + HARNESS + source if name.endswith(".py") else source)
    return folder


def write_file(path: Path, **servers: dict[str, Any]) -> CrawlPolicy:
    path.write_text(json.dumps({"mcpServers": servers}))
    return CrawlPolicy(base_url="", paths=(path,))


def list_server(folder: Path, *words: str, **entry: Any) -> Listing:
    """The listing of one command in a folder: `python server.py` where no words are given."""
    command, *args = words or ("python", "server.py")
    about = {"command": command, "args": args, "cwd": str(folder), **entry}
    [found] = read_files(write_file(folder.parent / "mcp.json", own=about))
    return found
