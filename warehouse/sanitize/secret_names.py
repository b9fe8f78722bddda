"""Secret names: which names carry a secret, and which values are no secret whatever the name."""

import re
from functools import lru_cache
from itertools import pairwise

MARK = "[redacted]"


def _make_words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_PIECES = re.compile(r"[A-Z]++(?![a-z])|[A-Z]?[a-z]++|[A-Z]|\d++")
_SECRET = _make_words(
    "key keys apikey apikeys token tokens secret secrets password passwords passwd passphrase pwd"
    " pass passcode credential credentials cred creds authorization auth authtoken dsn cookie"
    " cookies pat jwt bearer signature sig"
)
_GLUED = re.compile(  # OPENAIAPIKEY, accesstoken: the words run together
    r"(?:api_?key|api_?token|api_?secret|access_?key|access_?token|auth_?token|bot_?token|"
    r"refresh_?token|secret_?key|private_?key|client_?secret|app_?secret|connection_?string|"
    r"conn_?str|password|passwd)s?$"
)
# What a name is about when it ends so: not the secret itself.
_ABOUT = _make_words(
    "type types name names url urls uri uris endpoint endpoints method methods required scheme"
    " schemes env format length len limit limits count counts description hint help label title"
    " header headers prefix suffix path paths file files filename dir directory mode provider"
    " providers status enabled disabled supported expires expiry expiration expired ttl at in date"
    " usage size budget options schema schemas page pages docs version algorithm alg placeholder"
    " position index field fields column kind source server servers flow flows issuer var variable"
    " variables domain host port region audience scope scopes manager config settings per cost"
    " price threshold window rotation days seconds minutes hours timeout level levels strategy"
    " service app vault store store"
)
_NOT_KEYS = _make_words(  # sort_key, publicKey, pageToken: names of other things
    "sort primary foreign partition public publishable cache row object index group issue project"
    " parent item citation lookup map file idempotency dedupe hot shortcut translation query react"
    " unique composite config field column range dict json metadata tag label short arrow"
    " or page next previous prev continuation sync cursor max min num total prompt completion input"
    " output context stop special per n used remaining"
)
_FIRM = _make_words(  # with these the value of a member is a secret whatever it looks like
    "password passwords passwd passphrase pwd apikey apikeys authorization authtoken"
)
_QUALIFIED = _make_words(
    "api access secret private client license encryption signing service master auth account admin"
    " app deploy refresh bot bearer personal subscription shared webhook integration user db"
    " database session security consumer"
)


def split_words(name: str) -> list[str]:
    """The words of a name in snake, kebab, dotted or camel case, lower case."""
    return [piece.lower() for piece in _PIECES.findall(name)]


@lru_cache(8192)  # a page says the same few names again and again
def is_secret_name(name: str) -> bool:
    """Whether a variable, header or parameter of this name carries a secret."""
    words = split_words(name[:200])
    if not words or words[-1] in _ABOUT:
        return False
    at = next((i for i in reversed(range(len(words))) if words[i] in _SECRET), None)
    if at is None:
        pairs = {"_".join(pair) for pair in pairwise(words)}
        return bool({"connection_string", "conn_str"} & pairs or _GLUED.search(words[-1]))
    if words[at] in ("pass", "sig", "signature") and at != len(words) - 1:
        return False
    common = words[at] in ("key", "keys", "token", "tokens")
    return not (common and at > 0 and words[at - 1] in _NOT_KEYS)


def is_firm(name: str) -> bool:
    """Whether a JSON member of this (secret) name holds a secret even where its value is one plain
    word: `apiKey`, `GITHUB_TOKEN`, `client_secret`; but not `key`, `token`, `auth`, `sortKey`."""
    words = split_words(name[:200])
    if len(words) > 1 and name.upper() == name:
        return True
    if _FIRM & set(words) or any(_GLUED.search(word) for word in words):
        return True
    return len(words) > 1 and bool(_QUALIFIED & set(words[:-1]))


_PLACE = re.compile(
    r"\$?\{{1,3}[^{}]{0,200}\}{1,3}|<[^<>]{0,200}>|&lt;.{0,200}?&gt;|%7B[^%]{0,200}%7D"
    r"|\$[A-Za-z_]\w{0,80}|%[A-Za-z_]\w{0,80}%|\[[^\[\]]{0,200}\]|\\u003c.{0,200}?\\u003e"
)
_FILL_IN = re.compile(
    r"(?i)(?:your|insert|enter|replace|change|add|paste|put|provide|example|dummy|placeholder|todo|"
    r"fill|sample|test|fake|the|an?|obtain|get)(?:[_\- .]\w{1,24}){0,12}[.!]?"
    r"|(?:your|changeme|replaceme|example|dummy|placeholder|todo|optional|required)\w{0,24}"
    r"|[\w\-]{0,24}(?:your|replace)[_\-][\w\-]{1,60}"
    r"|(?:[a-z]{2,6}[_\-])?(?:[a-z]{2,6}[_\-])?(?:x{3,}+|\*{3,}+|\.{2,}+|…|-++)"
    r"|true|false|none|null|undefined|nil|yes|no|on|off|\d{1,2}"
)


def is_place(value: str) -> bool:
    """Whether a value is a place to fill in (`<KEY>`, `${KEY}`, `{key}`, `YOUR_API_KEY`, `***`),
    redacted already, or a switch (`true`, `none`)."""
    text = value.strip()
    if len(text) > 1000:
        return False
    if MARK in text:  # a mark shields nothing that stands beside it
        return is_place(text.replace(MARK, ""))
    remainder = _PLACE.sub("", text).strip()
    if remainder != text:
        return len(remainder) < 8 or not is_credible(remainder)
    return not text or _FILL_IN.fullmatch(text) is not None


_CHUNK = re.compile(r"[A-Za-z0-9]{8,}+")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


def is_credible(value: str, least: int = 8) -> bool:
    """Whether a value looks made by a generator rather than written by a person: one run of at
    least `least` letters and digits mixed, a run of 24 of either, or a UUID."""
    if "://" in value or any(char.isspace() for char in value):
        return False
    for chunk in _CHUNK.findall(value):
        if len(chunk) >= 24:
            return True
        if len(chunk) >= least and not chunk.isalpha() and not chunk.isdigit():
            return True
    return _UUID.search(value) is not None
