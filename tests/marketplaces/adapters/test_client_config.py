"""Files of MCP clients, in the forms that each client writes."""

import json

from assets.marketplaces.adapters.client_config import normalise_entry, parse_config
from tests.marketplaces.adapters.test_private import crawl, write
from tests.marketplaces.answers import read_inputs
from tests.support.cases import cases

STDIO = {"command": "npx", "args": ["-y", "mast-mcp@1.2.0"]}
OFF = "the file says that it is disabled"
CLIENT = "its client starts it, and the file does not say how"
SECRET, NEEDED = (True, True, None), (True, False, None)

CODEX = """
[mcp_servers.mast]
command = "npx"
args = ["-y", "mast-mcp@1.2.0"]
env = { MAST_DIR = "/srv/mast" }
env_vars = ["MAST_LEVEL"]
[mcp_servers.off]
command = "npx"
args = ["mast-mcp@1.2.0"]
enabled = false
[mcp_servers.harbour]
url = "https://harbour.example/mcp"
bearer_token_env_var = "HARBOUR"
http_headers = { "X-Region" = "north" }
env_http_headers = { "X-Berth" = "BERTH" }
"""
GOOSE = """
extensions:
  developer: {enabled: true, type: builtin}
  mast: {cmd: npx, args: [-y, mast-mcp@1.2.0], enabled: true, type: stdio,
         envs: {LEVEL: 3}, env_keys: [MAST_KEY]}
  off: {cmd: npx, args: [mast-mcp@1.2.0], enabled: false, type: stdio}
  harbour: {type: streamable_http, uri: "https://harbour.example/mcp", enabled: true}
"""
CONTINUE = """
name: Harbour
mcpServers:
  - name: mast
    command: npx
    args: ["-y", "mast-mcp@1.2.0"]
    env: {PASS: "${{ secrets.MAST }}"}
  - name: harbour
    type: streamable-http
    url: https://harbour.example/mcp
    requestOptions:
      headers: {X-Berth: "${{ secrets.BERTH }}"}
"""
OPENCODE = {
    "mast": {"type": "local", "command": ["npx", "-y", "mast-mcp@1.2.0"],
             "environment": {"A": "{env:MY_A}", "B": "{file:~/.b}"}},
    "off": {"type": "local", "command": ["bun", "x", "mast-mcp@1.2.0"], "enabled": False},
    "harbour": {"type": "remote", "url": "https://harbour.example/mcp",
                "headers": {"X-Berth": "{env:BERTH}"}},
}  # fmt: skip
ZED = """{"theme": "One", "context_servers": {
  "mast": {"source": "custom", "command": {"path": "npx", "args": ["-y", "mast-mcp@1.2.0"]}},
  "theirs": {"source": "extension", "settings": {}},
  "off": {"source": "custom", "enabled": false, "command": "npx", "args": ["mast-mcp@1.2.0"]},
},}"""
GEMINI = {
    "mcp": {"excluded": ["off"]},
    "mcpServers": {
        "mast": {**STDIO, "env": {"A": "$MY_A", "B": "${B:-two}"}, "trust": True},
        "off": STDIO,
        "harbour": {"httpUrl": "https://harbour.example/mcp"},
    },
}
VS_CODE = {
    "inputs": [{"id": "key", "password": True}, {"id": "level", "default": "3"}, {"id": "ask"}],
    "servers": {
        "mast": {**STDIO, "env": {"A": "${input:key}", "B": "${input:level}", "C": "${input:ask}"}}
    },
}
CLAUDE = {
    "mcpServers": {"mast": {**STDIO, "env": {"A": "${A:-one}", "SECRET_KEY": "${K:-sk-abc}"}}},
    "projects": {
        "/home/u/boat": {"mcpServers": {"mast": STDIO, "off": STDIO}, "disabledMcpServers": ["off"]}
    },
}


@cases(
    "name, content, keys",
    ("config.toml", CODEX, {"mast": None, "off": OFF, "harbour": None}),
    ("config.yaml", GOOSE, {"developer": CLIENT, "mast": None, "off": OFF, "harbour": None}),
    ("config.yml", CONTINUE, {"mast": None, "harbour": None}),
    ("opencode.json", {"mcp": OPENCODE}, {"mast": None, "off": OFF, "harbour": None}),
    ("v2.json", {"mcp": {"servers": OPENCODE}}, {"mast": None, "off": OFF, "harbour": None}),
    ("settings.json", ZED, {"mast": None, "theirs": CLIENT, "off": OFF}),
    ("settings.json", GEMINI, {"mast": None, "off": OFF, "harbour": None}),
    ("mcp.json", VS_CODE, {"mast": None}),
    ("settings.json", {"mcp": VS_CODE}, {"mast": None}),
    ("a.code-workspace", {"settings": {"mcp": VS_CODE}}, {"mast": None}),
    ("claude.json", CLAUDE, {"mast": None, "boat/mast": None, "boat/off": OFF}),
    ("list.json", {"mcpServers": [{"name": "mast", **STDIO}]}, {"mast": None}),
    ("bare.json", {"mast": STDIO}, {"mast": None}),
    ("old.json", {"experimental": {"modelContextProtocolServers": [
        {"name": "mast", "transport": {"type": "stdio", **STDIO}}]}}, {"mast": None}),
    ("amp.json", {"amp.mcpServers": {"mast": STDIO}}, {"mast": None}),
    ("q.json", {"mcpServers": {"mast": {**STDIO, "disabled": True}}}, {"mast": OFF}),
    ("cherry.json", {"mcpServers": {"mast": {**STDIO, "isActive": False}}}, {"mast": OFF}),
    ("roo.json", {"mcpServers": {"mast": {**STDIO, "disabled": False}}}, {"mast": None}),
)  # fmt: skip
def test_the_servers_of_every_clients_file_are_read(tmp_path, name, content, keys):
    pages, found = crawl(write(tmp_path / name, content))
    assert {each.native_id.partition("#")[2]: each.reason for each in found} == keys
    assert [row for page in pages for row in page.problems] == []
    for each in found:
        assert each.runnable is (each.reason is None)
        if each.name == "mast":
            assert (each.package.identifier, each.package.version) == ("mast-mcp", "1.2.0")
        if each.name == "harbour":
            assert each.url == "https://harbour.example/mcp"


@cases(
    "name, content, server, variables",
    ("c.toml", CODEX, "mast", {"MAST_DIR": (False, False, "/srv/mast"), "MAST_LEVEL": NEEDED}),
    ("c.toml", CODEX, "harbour",
     {"Authorization": SECRET, "X-Berth": NEEDED, "X-Region": (False, False, "north")}),
    ("c.yaml", GOOSE, "mast", {"LEVEL": (False, False, "3"), "MAST_KEY": SECRET}),
    ("c.yaml", CONTINUE, "mast", {"PASS": SECRET}),
    ("c.yaml", CONTINUE, "harbour", {"X-Berth": SECRET}),
    ("o.json", {"mcp": OPENCODE}, "mast", {"A": NEEDED, "B": SECRET}),
    ("o.json", {"mcp": OPENCODE}, "harbour", {"X-Berth": NEEDED}),
    ("g.json", GEMINI, "mast", {"A": NEEDED, "B": (False, False, "two")}),
    ("v.json", VS_CODE, "mast", {"A": SECRET, "B": (False, False, "3"), "C": NEEDED}),
    ("l.json", CLAUDE, "mast", {"A": (False, False, "one"), "SECRET_KEY": SECRET}),
)  # fmt: skip
def test_places_of_every_client_have_defaults_or_ask(tmp_path, name, content, server, variables):
    _, listings = crawl(write(tmp_path / name, content))
    listing = next(each for each in listings if each.native_id.endswith(f"#{server}"))
    assert read_inputs((*listing.env, *listing.headers)) == variables


@cases(
    "text, written",
    ("--port=${PORT:-8080}", "--port=8080"),
    ("${env:DIR:-/x}/y", "/x/y"),
    ("${input:api-key}", "${input:api-key}"),
    ("$env:TOKEN", "${TOKEN}"),
    ("a ${env:B} {env:C}", "a ${B} ${C}"),
    ("${input:x}", "${input:x}"),
    ("${workspaceFolder}/x", "${workspaceFolder}/x"),
    ("{id}", "{id}"),
)
def test_a_place_is_written_as_all_are(text, written):
    assert normalise_entry({"command": text})["command"] == written


def test_extensions_of_claude_desktop_run_in_their_folders_unless_they_are_off(tmp_path):
    manifest = {
        "name": "notes",
        "server": {"type": "node", "mcp_config": {
            "command": "node", "args": ["${__dirname}/server/main.js", "${user_config.dir}"],
            "env": {"K": "${user_config.key}", "L": "${user_config.level}"}}},
        "user_config": {"key": {"sensitive": True, "default": "zz"}, "level": {"default": "3"}},
    }  # fmt: skip
    installed = {"extensions": {"a.notes": {"manifest": manifest}, "b.off": {"manifest": manifest}}}
    path = write(tmp_path / "extensions-installations.json", installed)
    settings = tmp_path / "Claude Extensions Settings"
    write(settings / "b.off.json", {"isEnabled": False})
    write(settings / "a.notes.json", {"isEnabled": True, "userConfig": {"dir": "/srv/notes"}})
    folder = tmp_path / "Claude Extensions" / "a.notes"
    write(folder / "server" / "main.js", "")
    _, (on, off) = crawl(path)
    assert (on.runnable, on.args) == (True, (f"{folder}/server/main.js", "/srv/notes"))
    assert on.launch.directory == str(folder)
    assert read_inputs(on.env) == {"K": SECRET, "L": (False, False, "3")}
    assert (off.runnable, off.reason) == (False, OFF)
    rows = [row for page in crawl(settings / "a.notes.json")[0] for row in page.problems]
    assert "extensions-installations.json" in rows[0]["hint"]
    _, (bundle,) = crawl(write(folder / "manifest.json", manifest))
    assert bundle.args[0] == f"{folder}/server/main.js"


@cases("content", {"mcpServers": {}}, {"mcp": {"servers": {}}}, None)
def test_nothing_is_complete_with_no_server_and_no_problem(tmp_path, content):
    place = tmp_path if content is None else write(tmp_path / "mcp.json", content)
    pages, found = crawl(place)
    [row] = [row for page in pages for row in page.problems]
    assert (found, pages[-1].ended, row["error_kind"]) == ([], True, "no_servers")
    assert row["native_id"] == ""  # what the file named before is gone


# Each level merges the one before nine times; six make 531,441 values.
MERGES = "mcpServers: &l0 {k: 1}\n" + "".join(
    f"a{level}: &l{level} {{<<: [{', '.join([f'*l{level - 1}'] * 9)}]}}\n" for level in range(1, 7)
)


@cases(
    "name, content, hint",
    ("x.toml", "key = = hunter2", "not TOML at line 1"),
    ("x.yaml", "mcpServers: [hunter2", "not YAML at line 1"),
    ("x.yaml", "mcpServers: &a\n  b: *a\n", "more than 200,000 values"),
    ("x.yaml", MERGES, "more than 200,000 values"),
    ("x.yaml", "mcpServers: !!int hunter2", "not YAML"),
    ("x.yaml", "mcpServers: !!bool hunter2", "not YAML"),
    ("x.yaml", 'mcpServers: "\\UFFFFFFFF"', "not YAML"),
    ("x.yaml", f"mcpServers: {'x' * (1 << 20)}", "more than 1 MiB of YAML"),
    ("x.toml", f"# mcp {'x' * (1 << 20)}", "more than 1 MiB of TOML"),
    ("x.toml", f"mcp{'.a' * 32} = 1", "a key of more than 32 names"),
    ("x.toml", "[mcp" + ' . "a\\"b"' * 32 + "]", "a key of more than 32 names"),
    ("x.xml", "<mcp>hunter2</mcp>", "give the servers as JSON"),
    ("x.json", {"theme": "hunter2"}, "no `mcpServers`, and none of servers, mcp"),
)
def test_a_file_that_is_none_is_named_and_not_quoted(tmp_path, name, content, hint):
    pages, _ = crawl(write(tmp_path / name, content))
    [row] = [row for page in pages for row in page.problems]
    assert hint in row["hint"]
    assert "hunter2" not in row["hint"]


def test_templates_in_a_folder_are_none_of_ours(tmp_path):
    write(tmp_path / "chart.yaml", "{{ include }}: [")
    write(tmp_path / "mcp.json", {"mcpServers": {"mast": STDIO}})
    pages, (found,) = crawl(tmp_path)
    assert (found.name, pages[-1].ended) == ("mast", True)


def test_dates_and_times_are_texts_and_dots_within_texts_of_toml_are_no_long_key():
    assert parse_config(b"a = 2026-01-02", ".toml") == {"a": "2026-01-02"}
    assert json.dumps(parse_config(b"a: 2026-01-02\noff: no", ".yaml")) == (
        '{"a": "2026-01-02", "off": "no"}'
    )
    source = b"a: 1:30\nb: !!int 1:30\nc: 1:30.5\nd: 17\ne: &e {x: 1}\nf: {<<: *e, y: 2.5}"
    value = parse_config(source, ".yaml")
    assert [value[name] for name in "abcd"] == ["1:30", "1:30", "1:30.5", 17]
    assert (value["e"], value["f"]) == ({"x": 1}, {"x": 1, "y": 2.5})
    text = "An end. " * 40 + "." * 40
    assert parse_config(f"a.b.c = '{text}'".encode(), ".toml") == {"a": {"b": {"c": text}}}
