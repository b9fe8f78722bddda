"""Typed placeholders: plausible values for what a listing leaves to its user."""

import re

from assets.servers.recipes.key_formats import (
    base64_of,
    jwt,
    key_of,
    letters,
    pem,
    service_account,
    uuid,
)
from assets.servers.sandbox.spec import HOME

DATA = f"{HOME}/data"
_HEX_KEY = f"{'0' * 63}1"  # the smallest valid secp256k1 key; all zeros is none
_MNEMONIC = f"{'abandon ' * 11}about"  # BIP 39 of all-zero entropy
_SECRET = (
    r"key|token|secret|password|passwd|passphrase|pwd|credential|bearer|auth|\bpat\b|\bpass\b"
    r"|signature|cookie|mnemonic|seed phrase"
)
# A name that speaks of a secret without holding one: TOKEN_URL, AUTH_TYPE, MAX_TOKENS, KEY_PATH.
_NO_SECRET = (
    r"\bur[il]s?\b|path|file|\bdir|type|method|mode|enabled?|disabled?|header|prefix|name"
    r"|application credentials|\bmax\b|limit|timeout|ttl|expir|port|host|scope|region|issuer"
    r"|audience|domain|endpoint"
    r"|^(use|skip|allow|require|is|has|no) "
)
_FORMATS = {
    "number": "1", "integer": "1", "boolean": "true", "filepath": DATA, "directory": DATA,
    "file": f"{DATA}/placeholder.txt", "uri": "https://placeholder.example.com",
    "url": "https://placeholder.example.com", "email": "placeholder@example.com",
    "hostname": "placeholder.example.com", "ipv4": "127.0.0.1", "uuid": uuid(),
    "date": "2026-01-01", "date-time": "2026-01-01T00:00:00Z", "json": "{}",
}  # fmt: skip
_USER = "placeholder:placeholder"
# (words of the name) -> value, for names that hold no secret. The first match counts.
_RULES: tuple[tuple[str, str], ...] = (
    (r"^mongo\w*$|(mongo|\bmdb\b).*\b(ur[il]|string|dsn|connection|conn ?str)\b", f"mongodb://{_USER}@localhost:27017/placeholder"),
    (r"redis.*\b(ur[il]|string)\b|^redis$", "redis://localhost:6379/0"),
    (r"(mysql|mariadb).*\b(ur[il]|string|dsn)\b", f"mysql://{_USER}@localhost:3306/placeholder"),
    (r"(mssql|sql server).*\b(ur[il]|string|dsn)\b",
     "Server=localhost,1433;Database=placeholder;User Id=placeholder;Password=placeholder;"),
    (r"click ?house.*\bur[il]\b", "http://localhost:8123"),
    (r"rabbit ?mq.*\bur[il]\b|amqp", "amqp://placeholder:placeholder@localhost:5672/"),
    (r"neo4j.*\bur[il]\b|\bbolt\b", "bolt://localhost:7687"),
    (r"(elastic|open) ?search.*(\bur[il]|\bhosts?|node|endpoint)|\bes ur[il]\b",
     "http://localhost:9200"),
    (r"qdrant.*\bur[il]\b", "http://localhost:6333"),
    (r"ollama.*(\bur[il]|host|endpoint)", "http://localhost:11434"),
    (r"sqlite|duckdb|\bdb ?(path|file)", f"{DATA}/placeholder.db"),
    (r"kafka|bootstrap", "localhost:9092"),
    (r"postgres.*\b(ur[il]|string|dsn)\b|^postgres\w*$|database ?ur[il]|connection ?(string|ur[il])"
     r"|\bdsn\b|\bdb ?ur[il]|\bconn ?str", f"postgresql://{_USER}@localhost:5432/placeholder"),
    (r"atlassian.*(ur[il]|host|site|domain)?$|jira.*(ur[il]|host|site|domain)"
     r"|confluence.*(ur[il]|host|site|domain)", "https://placeholder.atlassian.net"),
    (r"supabase.*ur[il]", "https://placeholder.supabase.co"),
    (r"web ?socket|\bwss?\b", "wss://placeholder.example.com"),
    (r"proxy", "http://localhost:8080"),
    (r"\bur[il]s?\b|endpoint|webhook|\bsite\b|base ?url|\binstance\b|issuer",
     "https://placeholder.example.com"),
    (r"google application credentials|credentials?.*(path|file)|(path|file).*credentials?",
     f"{DATA}/placeholder.json"),
    (r"path|folder|\bdirs?\b|director|workspace ?(root|dir)|\broot\b|\bvault\b", DATA),
    (r"\bfile(name)?\b", f"{DATA}/placeholder.json"),
    (r"e-?mail|\blogin\b", "placeholder@example.com"),
    (r"jira user|confluence user|atlassian user", "placeholder@example.com"),
    (r"phone|mobile|whats ?app number", "+10000000000"),
    (r"uuid|guid|tenant|client ?id|subscription ?id|application ?id", uuid()),
    (r"account ?id|\bsid\b|chat ?id|guild|channel ?id|user ?id|member ?id", "000000000000"),
    (r"\bhost(name)?s?\b|\bserver\b|address|\bip\b", "localhost"),
    (r"domain", "placeholder.example.com"),
    (r"mysql.*port", "3306"), (r"(postgres|\bpg\b).*port", "5432"), (r"redis.*port", "6379"),
    (r"mongo.*port", "27017"), (r"\b(pg|db|http)?ports?\b", "8080"),
    (r"region|\blocation\b|\bzone\b", "us-east-1"),
    (r"time ?zone|\btz\b", "UTC"), (r"language|locale|\blang\b", "en"),
    (r"country", "US"), (r"currency", "USD"),
    (r"log ?level|logging level|\bloglevel\b|verbosity", "info"),
    (r"telemetry", "disabled"), (r"transport", "stdio"),
    (r"\bnode env\b|environment|\bstage\b", "production"),
    (r"\b(enable|disable|allow|use|is|has|skip|require|verify|debug|verbose|strict|insecure)d?\b"
     r"|read ?only|dry ?run|\bssl\b|\btls\b", "true"),
    (r"timeout|interval|seconds|\bms\b|\bttl\b", "30"),
    (r"\b(max|min|limit|count|size|retries|depth|num|number|concurrency|page|top k)\b", "10"),
    (r"temperature|threshold|ratio", "0.5"),
    (r"date ?time|timestamp", "2026-01-01T00:00:00Z"), (r"\bdate\b", "2026-01-01"),
    (r"api ?version|\bversion\b", "1"),
    (r"\bjson\b|config object", "{}"),
    (r"wallet|contract address|eth.*address", f"0x{'0' * 39}1"),
    (r"latitude|longitude", "0.0"),
    (r"\bid\b", uuid()),
)  # fmt: skip
_NAMED_SECRETS = (
    (r"mnemonic|seed phrase|recovery phrase", _MNEMONIC),
    (r"\bjwt\b|json web token", jwt()),
    (r"service ?account.*(json|key|info|credential)|credentials? json", service_account()),
    (r"\b(ssh|rsa|app|github app|pem|signing|jwt) private key|private key pem|\bpem\b",
     pem("RSA PRIVATE KEY")),
    (r"(wallet|eth\w*|evm|deployer|account|signer|agent) private key", f"0x{_HEX_KEY}"),
    (r"^private key$|private key", f"0x{_HEX_KEY}"),
    (r"certificate|\bcert\b", pem("CERTIFICATE")),
    (r"encrypt\w* key|fernet|base64|secret key base", base64_of(32)),
    (r"client ?id|\buuid\b|\bguid\b", uuid()),
)  # fmt: skip


def value_for(
    name: str,
    description: str | None = None,
    format: str | None = None,
    *,
    choices: tuple[str, ...] = (),
    context: str = "",
) -> str:
    """A plausible value, the first of `choices` where there are any. format: string, number,
    boolean, filepath, directory, file, or a format of JSON Schema. context: what else names the
    provider, such as the package."""
    if choices:
        return choices[0]
    if format in _FORMATS:
        return _FORMATS[format]
    words, about = words_of(name), (description or "").lower()
    if holds_secret(name):
        return _secret(words, about, words_of(context))
    if stated := _stated(description or ""):
        return stated
    for pattern, value in _RULES:
        if re.search(pattern, words):
            return value
    if re.search(r"https?://|\burl\b", about):
        return "https://placeholder.example.com"
    if re.search(r"\b(path|directory|folder)\b", about):
        return DATA
    if re.search(r"\be-?mail\b", about):
        return "placeholder@example.com"
    if re.search(r"\b(api[ -]?key|access token|personal token|secret)\b", about):
        return _secret(words, about, words_of(context))
    return "placeholder"


def holds_secret(name: str) -> bool:
    """Whether a name says that its value is a secret."""
    words = words_of(name)
    return re.search(_SECRET, words) is not None and re.search(_NO_SECRET, words) is None


def words_of(name: str) -> str:
    """`NOTION_API_TOKEN`, `notionApiToken` -> "notion api token"."""
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return re.sub(r"[^a-z0-9]+", " ", split.lower()).strip()


def _secret(words: str, about: str, context: str) -> str:
    for pattern, value in _NAMED_SECRETS:
        if re.search(pattern, words):
            return value
    if re.search(r"password|passwd|passphrase|\bpwd\b|\bpass\b", words):
        return "placeholder-Passw0rd!"
    for text in (words, f"{about} {words}", f"{context} {words}"):
        if found := key_of(text):
            return found
    if starts := re.search(r"start(?:s|ing)? with [`'\"]?([a-z][\w\-]{1,11}[_\-])", about):
        return starts[1] + letters(40)
    if digits := re.search(r"\b(32|40|64)[ -]?(?:char\w*[ -])?hex", f"{about} {words}"):
        return "0" * int(digits[1])
    return letters(40)


def _stated(description: str) -> str | None:
    """The first of the choices, the default or the example that a description spells out, where it
    is one plain word or number."""
    found = re.search(
        r"(?i)\b(?:one of|options?|choices|(?:allowed|valid|possible) values?|either)\b\W{0,4}"
        r"([a-z0-9][\w.\-]{0,30})\W{0,3}(?:[,|/]|\bor\b)"
        r"|\bdefaults?(?: value| is| to|:)*[\s:=]+[`'\"]?([a-z0-9][\w.\-]{0,60})(?![\w.\-/:@])"
        r"|^(localhost|\d{1,5}|true|false)$",
        description.strip(),
    )
    value = next((text for text in found.groups() if text), None) if found else None
    known = ("none", "null", "to", "is", "value", "empty", "the", "a", "an", "your", "not", "no")
    return None if value is None or value.lower() in known else value.rstrip(".")
