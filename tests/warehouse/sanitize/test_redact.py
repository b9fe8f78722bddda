"""Secrets are taken out of text and JSON; facts, prose and places to fill in stay."""

import html
import json
import string
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cases import cases
from tests.support.examples import examples
from tests.support.paths import SHARED
from warehouse.sanitize.redact import MARK, is_secret_name, redact_json
from warehouse.sanitize.redact import redact as cleaned

ALNUM = string.ascii_letters + string.digits


def token(length: int, alphabet: str = ALNUM) -> st.SearchStrategy[str]:
    """A random run with at least one digit and one letter, as every generator's is."""
    start = "a1" if "a" in alphabet else "A2"
    return st.text(alphabet, min_size=length, max_size=length).map(lambda text: start + text[2:])


HEX = "0123456789abcdef"
BODY = "aB1dE6gH9jK2mN5pQ8sT1vX4yZ7cD0fGhIjKlMnOpQrStUvWxYz0123456789abcd"
WIDE = {code: code + 0xFEE0 for code in range(0x21, 0x7F)}  # full-width forms
FORMS = {  # the body stands where {} does
    "openai": ("sk-{}", 48, ALNUM),
    "openai project": ("sk-proj-{}", 60, ALNUM + "-_"),
    "anthropic": ("sk-ant-api03-{}", 80, ALNUM + "-_"),
    "github": ("ghp_{}", 36, ALNUM),
    "github fine": ("github_pat_{}", 70, ALNUM + "_"),
    "gitlab": ("glpat-{}", 20, ALNUM),
    "slack": ("xoxb-{}", 40, ALNUM + "-"),
    "slack app": ("xapp-1-{}", 60, ALNUM + "-"),
    "aws": ("AKIA{}", 16, "ABCDEFGHIJKLMNOP234567"),
    "google": ("AIzaSy{}", 33, ALNUM + "-_"),
    "google oauth": ("ya29.{}", 60, ALNUM + "-_"),
    "notion": ("ntn_{}", 43, ALNUM),
    "notion old": ("secret_{}", 43, ALNUM),
    "hf": ("hf_{}", 34, ALNUM),
    "npm": ("npm_{}", 36, ALNUM),
    "sendgrid": ("SG.aB1dE6gH9jK2mN5pQ8sT1v.{}", 43, ALNUM + "-_"),
    "stripe": ("sk_live_{}", 24, ALNUM),
    "stripe restricted": ("rk_live_{}", 24, ALNUM),
    "twilio": ("SK{}", 32, HEX),
    "linear": ("lin_api_{}", 40, ALNUM),
    "supabase": ("sbp_{}", 40, HEX),
    "tavily": ("tvly-{}", 32, ALNUM),
    "brave": ("BSA{}", 28, ALNUM),
    "firecrawl": ("fc-{}", 32, HEX),
    "telegram": ("123456789:AA{}", 33, ALNUM + "-_"),
    "pinecone": ("pcsk_{}", 60, ALNUM + "_"),
    "groq": ("gsk_{}", 52, ALNUM),
    "xai": ("xai-{}", 80, ALNUM),
    "perplexity": ("pplx-{}", 48, ALNUM),
    "replicate": ("r8_{}", 37, ALNUM),
    "digitalocean": ("dop_v1_{}", 64, HEX),
    "airtable": ("patAbCdEfGhIjKlM1.{}", 64, HEX),
    "atlassian": ("ATATT3xFfGF0{}", 60, ALNUM + "-_"),
    "pypi": ("pypi-AgEIcHlwaS5vcmc{}", 60, ALNUM + "-_"),
    "jwt": ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.{}", 43, ALNUM + "-_"),
    "discord": ("MTIzNDU2Nzg5MDEyMzQ1Njc4.GaBcDe.{}", 38, ALNUM + "-_"),
    "mailgun": ("key-{}", 32, HEX),
    "databricks": ("dapi{}", 32, HEX),
    "doppler": ("dp.st.{}", 40, ALNUM),
    "doppler of a config": ("dp.st.dev_eu.{}", 40, ALNUM),
    "vercel": ("vck_{}", 56, ALNUM),
    "vercel blob": ("vercel_blob_rw_{}", 48, ALNUM),
    "rubygems": ("rubygems_{}", 48, HEX),
    "tailscale": ("tskey-auth-{}", 40, ALNUM),
    "1password": ("ops_eyJ{}", 120, ALNUM),
}
SECRETS = st.one_of([token(n, abc).map(form.format) for form, n, abc in FORMS.values()])
# What a page may put before and after a secret: never a letter, as no generator would end there.
BEFORE = st.sampled_from(["", " ", '"', "'", ">", "=", ":", "/", "(", "`", "\n", "&#10;", "%3D"])
AFTER = st.sampled_from(["", " ", '"', "'", "<", "&amp;x=1", ")", ",", "\n", "`", "%20", "\\n"])
LEAVES = st.text(max_size=30) | st.integers(-9, 9) | st.none() | st.booleans()
NAMED = st.sampled_from(
    [
        '{{"env": {{"MY_API_KEY": "{}"}}}}',
        "<pre>{{&quot;MY_TOKEN&quot;: &quot;{}&quot;}}</pre>",
        'x = "{{\\"env\\":{{\\"MY_TOKEN\\":\\"{}\\"}}}}"',
        'x = "{{\\\\\\"apiKey\\\\\\":\\\\\\"{}\\\\\\"}}"',
        "config=%7B%22apiKey%22%3A%22{}%22%7D",
        "{{\\u0022MY_SECRET\\u0022:\\u0022{}\\u0022}}",
        "{{'clientSecret':'{}'}}",
        "export MY_PASSWORD={}",
        'docker run -e "MY_TOKEN={}" image',
        '["--api-key", "{}"]',
        "run --token={} now",
        "run --key {} now",
        '["--header", "Authorization: Bearer {}"]',
        "X-Api-Key: {}",
        "Authorization: Basic {}",
        "https://example.com/mcp?api_key={}&x=1",
        "https://example.com/mcp?a=1&amp;profile={}",
        "https%3A%2F%2Fexample.com%2Fmcp%3Ftoken%3D{}",
        "postgres://me:{}@db.example.com/x",
        '{{"name": "MY_API_KEY", "value": "{}"}}',
        "MY_SECRET: {}",
        '<input name="api_key" value="{}">',
        "curl -H 'Authorization: Bearer {}' x",
        "DefaultEndpointsProtocol=https;AccountName=x;AccountKey={}",
        "aws_secret_access_key = {}",
        "CLOUDFLARE_API_TOKEN={}",
        "https://mcp.zapier.com/api/mcp/s/{}/mcp",
    ]
)


@st.composite
def pages(draw: st.DrawFn) -> tuple[str, str]:
    """(a secret, a text of JSON or HTML that holds it somewhere)."""
    secret = draw(SECRETS)
    around = draw(st.text(max_size=20)), draw(st.text(max_size=20))
    text = around[0] + draw(BEFORE) + secret + draw(AFTER) + around[1]
    return secret, text


@given(pages())
@examples(300)
def test_no_secret_of_a_known_form_survives_in_text(page):
    secret, text = page
    assert secret not in cleaned(text)


@given(token(24), NAMED)
@examples(300)
def test_no_secret_survives_beside_its_name(secret, place):
    result = cleaned(place.format(secret))
    assert secret not in result
    assert MARK in result
    assert cleaned(result) == result


@given(st.sampled_from(sorted(FORMS)), st.data())
def test_every_form_is_found_in_every_encoding(form, data):
    pattern, length, alphabet = FORMS[form]
    secret = pattern.format(data.draw(token(length, alphabet)))
    inner = json.dumps({"K": secret, "n": f"line\n{secret}"})
    for text in (inner, json.dumps(inner), html.escape(inner), quote(inner), f"x\\n{secret}"):
        result = cleaned(text)
        assert secret not in result, text
        assert quote(secret) not in result


@given(
    SECRETS, st.recursive(LEAVES, lambda x: st.lists(x) | st.dictionaries(st.text(), x)), st.data()
)
def test_no_secret_survives_anywhere_in_json(secret, value, data):
    planted = {"a": value, data.draw(st.text(max_size=5)): [value, {"deep": [f"x {secret}"]}]}
    result = redact_json({secret: 1, "b": planted})
    assert secret not in json.dumps(result)
    assert redact_json(result) == result


FRAGMENTS = st.lists(
    st.sampled_from(
        [
            *"\"'\\`:=,&;?% \n{}<>[]", "API_KEY", "token", "--key", "Bearer ", "sk-", "eyJ", "://",
            "@", "a1b2c3d4e5f6a7b8c9d0e1f2", MARK, "%22", "&quot;", "\\u0022",
            "-----BEGIN PRIVATE KEY-----",
        ]
    ),
    max_size=14,
).map("".join)  # fmt: skip


@given(FRAGMENTS)
@examples(500)
def test_odd_pieces_of_syntax_keep_the_promises(text):
    result = cleaned(text)
    assert cleaned(result) == result
    assert json.loads(cleaned(json.dumps({"x": text, "API_KEY": text}))).keys() == {"x", "API_KEY"}
    assert json.loads(cleaned(json.dumps(json.dumps([text])))) is not None


@pytest.mark.parametrize("slashes", range(6))
def test_a_quote_that_a_text_ends_without_closing_ends_with_the_text(slashes):
    text = json.dumps({"a": 'api_key: "qT7wer8Tyu9abcd' + "\\" * slashes, "b": "other words"})
    for whole in (text, json.dumps(text)):
        result = cleaned(whole)
        assert "qT7wer8T" not in result
        assert "other words" in result
        assert json.loads(result)


@given(st.lists(FRAGMENTS | st.text(max_size=12)))
def test_texts_of_one_document_do_not_touch_each_other(texts):
    whole = redact_json([{"x": text} for text in texts])
    assert [item["x"] for item in whole] == [cleaned(text) for text in texts]


@cases(
    "text, gone",
    ('{"FOO_API_KEY": "plain-value-1"}', "plain-value-1"),
    ('{"FOO_API_KEY": "with \\"quotes\\" in it"}', "in it"),
    ('{"FOO_PASSWORD": "two words"}', "two words"),
    ("<pre>{&quot;FOO_API_KEY&quot;: &quot;plain-value-1&quot;}</pre>", "plain-value-1"),
    ("{'FOO_SECRET':'plain-value-1'}", "plain-value-1"),
    ('x="{\\"FOO_TOKEN\\":\\"plain-value-1\\"}"', "plain-value-1"),
    ('["run", "--key", "0f8c2d"]', "0f8c2d"),
    ("run --key 0f8c2d", "0f8c2d"),
    ("postgres://me:hunter22@db.example.com/x", "hunter22"),
    ("redis://:hunter22@db.example.com/x", "hunter22"),
    ("https://a1b2c3d4e5f6a7b8@git.example.com/x", "a1b2c3d4e5f6a7b8"),
    ("https://mcp.example.com/8c5b1d3e-1f2a-4b3c-8d9e-0a1b2c3d4e5f/app", "8c5b1d3e"),
    ("https:\\/\\/mcp.example.com\\/8c5b1d3e-1f2a-4b3c-8d9e-0a1b2c3d4e5f", "8c5b1d3e"),
    ("-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----", "MIIE"),
    (
        '{"k": "-----BEGIN RSA PRIVATE KEY-----\\nMIIEabc\\n-----END RSA PRIVATE KEY-----\\n"}',
        "MIIE",
    ),
    ("-----BEGIN%20PRIVATE%20KEY-----%0AMIIEabc", "MIIE"),
    ("AKIA" + "ABCDEFGHIJKLMNOP", "ABCDEFGHIJKLMNOP"),
    ("https://hooks.slack.com/services/T0001/B0001/a1b2c3d4e5f6a7b8c9d0", "a1b2c3d4"),
    ("https://x.example.com/api/webhooks/1234/a1b2c3d4e5f6a7b8c9d0", "a1b2c3d4"),
    ("2/1234567890123456:" + "a1b2c3d4" * 4, "a1b2c3d4"),
    ("sent as Basic Ym9iOmc3WGs5UTJtTHA0 before", "Ym9iOmc3"),
    ("`Basic YWxhZGRpbjpvcGVuc2VzYW1l`", "YWxhZGRp"),
    ("?api_key=" + MARK + "hidden-tail-12345678", "12345678"),
    ("refresh 1//0" + BODY, BODY[:20]),
    ('{"t": "1\\/\\/0' + BODY + '"}', BODY[:20]),
    ("x=1%2F%2F0" + BODY, BODY[:20]),
    (f"Private-Lines: 1\r\n{BODY[:40]}\r\nPrivate-MAC: " + "0a1b" * 16, BODY[:20]),
    (json.dumps({"x": f"Private-Lines: 2\n{BODY[:40]}\n{BODY}\nPrivate-MAC: 0a"}), BODY[:20]),
    ("machine api.example.com\n  login me\n  password hunter22\n", "hunter22"),
    ("machine api.example.com password hunter22 login me", "hunter22"),
    (json.dumps({"netrc": "default login me\n\tpassword hunter22\n"}), "hunter22"),
    ("$2b$12$R9h/cIPz0gi.URNNX3kh2OPST9/PgBkqquzi.Ss7KIUgO2t0jWMUW", "R9h/cIPz0gi"),
    (
        "skin rose dwarf neither rookie tornado twelve economy receive speed warfare opinion",
        "dwarf",
    ),
    ("legal winner thank year wave sausage worth useful legal winner thank yellow.", "winner"),
    (
        "phrase: april horn must share detail science scan stem kiss sleep cricket nest become"
        " vacant woman prison crop group vanish prison charge put kitten away.",
        "kitten",
    ),
    ("Cookie: theme=dark; session=9f86d081884c7d659a2feaa0c55ad015", "9f86d081"),
    ("Set-Cookie: connect.sid=s%3AaB1dE6gH9jK2mN5pQ8sT1v.x4yZ; Path=/", "aB1dE6gH"),
    ("PHPSESSID=4f1c2e9d8b7a6f5e4d3c2b1a0f9e8d7c", "4f1c2e9d"),
    ("csrftoken%3DaB1dE6gH9jK2mN5pQ8sT1vX4yZ7cD0fG", "aB1dE6gH"),
    ("ghp_aB1dE6gH9j\u200bK2mN5pQ8sT1vX4yZ7cD0fGhIjK", "aB1dE6gH9j"),
    ("ghp_a1B2c3D4e5F6\u200ba1B2c3D4e5F6G7h8J9k0L1m2", "G7h8J9k0"),
    ("sk-a\u2060B1dE6g\u00adH9jK2m\u200bN5pQ8sT1vX4yZ7cD0fGhIjK", "B1dE6g"),
    (f"ghp_{BODY[:36]}".translate(WIDE), BODY[:8].translate(WIDE)),
    ("password\uff1ahunter2hunter2x9", "hunter2"),
)
def test_known_forms_are_redacted(text, gone):
    assert gone not in cleaned(text)


def test_what_hides_a_key_goes_with_it_and_nothing_else_does():
    text = "a\u200bb, \u4f60\u597d\uff1aghp_aB1dE6gH9j\u200bK2mN5pQ8sT1vX4yZ7cD0fGhIjK\u200b end"
    assert cleaned(text) == f"a\u200bb, \u4f60\u597d\uff1a{MARK}\u200b end"


@cases(
    "text",
    "sha256:" + "ab12" * 16,
    "docker://alpine:3.18@sha256:" + "ab12" * 16,
    "https://github.com/example/tool/commit/" + "0a1b2c3d" * 5,
    "https://files.example.com/0a1b2c3d-1f2a-4b3c-8d9e-0a1b2c3d4e5f/server.mcpb",
    '{"NOTION_TOKEN": "<YOUR_NOTION_TOKEN>"}',
    '{"NOTION_TOKEN": "YOUR_NOTION_TOKEN", "OTHER_API_KEY": "${OTHER_API_KEY}"}',
    '{"API_KEY": "sk-...", "B_TOKEN": "xxxxxxxx", "C_TOKEN": "sk-your-key-here"}',
    "{&quot;NOTION_TOKEN&quot;: &quot;&lt;YOUR_NOTION_TOKEN&gt;&quot;}",
    "Authorization: Bearer {token}",
    "Authorization: Bearer ${input:token}",
    "Bearer authentication is required for every request",
    "1//0 is no number, and machine learning needs no password here",
    "machine learning models login with a password of their own",
    "Sign in with the default login, then change the password",
    "hash: $2b$12$ and a salt",
    "session=<SESSION_ID>; sid=none; sessionid=${SESSION}",
    "the session = started, sessions=20; max_sessions=1000000000000000000",
    "word " * 60,
    "skin rose dwarf neither rookie tornado twelve economy receive speed warfare option",
    "about above absent abstract access account across action actual address advice afford",
    "\u6587\u4ef6\uff1a\uff11\uff12\uff13\uff14\uff15\uff16\uff17",
    "family \U0001f468\u200d\U0001f469\u200d\U0001f467, key\u200bboard",
    "Basic authentication, or Basic internationalisation of 12 languages",
    "the Basic plan2024edition costs nothing",
    '{"name": "API_KEY", "isSecret": true}',
    "npx -y @modelcontextprotocol/server-memory@2026.8.31",
    "https://example.com/a?page=2&limit=100",
    "https://mcp.example.com/mcp?api_key={api_key}",
    "https://server.example.com/@owner/task-management-server-2026",
    "The maximum number of max_tokens: 4096; next_page_token from the last response.",
    '{"max_tokens": "4096", "nextPageToken": "CAUQAA1234567890abcd", "sort_key": "created"}',
    '{"token": {"type": "string", "description": "The API token of the account"}}',
    '{"authType": "api_key", "auth_type": "oauth", "tokenUrl": "https://example.com/token"}',
    '{"key": "category", "value": "search"}',
    '{"password": "Forgot your password?"}',
    "A tool that rotates each API key: it lists keys, revokes an old token, makes a new one.",
    "pass --api-key to the server, or --token and then the value",
    "https://localhost:3000/mcp",
    "ssh://git@github.com/example/tool.git",
    "run.tools serves slack-notifications-server and desk-booking-assistant-for-teams",
)
def test_facts_and_places_to_fill_in_stay(text):
    assert cleaned(text) == text
    assert redact_json([text]) == [text]


def test_names_stay_beside_what_is_taken():
    entry = {
        "command": "npx",
        "args": ["-y", "tool@1.0.0", "--api-key", "abc", "--header", "X-Api-Key: abc"],
        "env": {"A_TOKEN": "abc", "TEAM": "T01", "ID": "a1b2c3d4e5f6a7b8c9d0e1f2"},
        "headers": {"Authorization": "Bearer abc", "Accept": "text/event-stream"},
    }
    assert redact_json(entry) == {
        "command": "npx",
        "args": ["-y", "tool@1.0.0", "--api-key", MARK, "--header", f"X-Api-Key: {MARK}"],
        "env": {"A_TOKEN": MARK, "TEAM": "T01", "ID": MARK},
        "headers": {"Authorization": f"Bearer {MARK}", "Accept": "text/event-stream"},
    }


def test_marked_values_go_halves_of_pairs_become_a_sign_and_deep_json_is_read():
    result = redact_json({"name": "KEY_FILE", "value": "whatever", "isSecret": True})
    assert result == {"name": "KEY_FILE", "value": MARK, "isSecret": True}
    assert redact_json({"\ud800": ["x\udc00", "😀"]}) == {"\ufffd": ["x\ufffd", "😀"]}
    value: Any = "sk-" + "a1" * 20
    for _ in range(50_000):
        value = [value]
    result = redact_json(value)
    while isinstance(result, list):
        [result] = result
    assert result == MARK


@cases(
    "name",
    "API_KEY", "Authorization", "githubToken", "DB_PASSWORD", "pat", "OPENAIAPIKEY", "accesstoken",
    "AWS_ACCESS_KEY_ID", "X-Api-Key", "client_secret", "MYSQL_PASS", "TOKEN_GITHUB", "authToken",
)  # fmt: skip
def test_names_of_secrets(name):
    assert is_secret_name(name)


@cases(
    "name",
    "PATH", "AUTHOR", "PORT", "BASE_URL", "KEYBOARD", "monkey", "max_tokens", "nextPageToken",
    "sort_key", "publicKey", "authType", "AUTH_MODE", "TOKEN_URL", "PASS_THROUGH", "bypass", "",
)  # fmt: skip
def test_names_of_other_things(name):
    assert not is_secret_name(name)


@pytest.mark.shared
def test_descriptions_of_real_servers_hardly_change():
    path = SHARED / "smithery" / "servers.jsonl"
    if not path.exists():
        pytest.skip(f"{path} is absent")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    texts = [row["overview"] or "" for row in rows]
    texts += [tool["description"] or "" for row in rows for tool in row["tools"]]
    changed = [text for text in texts if cleaned(text) != text]
    assert len(changed) <= len(texts) / 1000, changed[:3]
