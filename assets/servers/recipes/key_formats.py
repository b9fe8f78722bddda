"""Key shapes: what a made-up key of each known provider looks like."""

import base64
import json
import re
from collections.abc import Callable

_WORD = "placeholder"


def letters(length: int) -> str:
    """`placeholder0placeholder0…`: letters and digits."""
    return (f"{_WORD}0" * (length // 12 + 1))[:length]


def capitals(length: int) -> str:
    return letters(length).upper()


def zeros(length: int) -> str:
    """Zeros: digits, and hexadecimal too."""
    return "0" * length


def base64_of(length: int) -> str:
    """Base64 of `length` bytes that spell the word."""
    return base64.b64encode(letters(length).encode()).decode()


def jwt() -> str:
    """Three base64url parts; header and payload decode to JSON, the signature spells the word."""
    header = {"alg": "HS256", "typ": "JWT"}
    payload = {"sub": _WORD, "role": _WORD, "iss": _WORD, "iat": 0, "exp": 4102444800}
    parts = [json.dumps(part, separators=(",", ":")).encode() for part in (header, payload)]
    coded = [base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts]
    return ".".join([*coded, letters(43)])


def pem(kind: str) -> str:
    """A PEM block whose body is no key: it decodes to the word."""
    body = base64_of(144)
    lines = "\n".join(body[at : at + 64] for at in range(0, len(body), 64))
    return f"-----BEGIN {kind}-----\n{lines}\n-----END {kind}-----\n"


def service_account() -> str:
    """A service account's file, in one line."""
    facts = {
        "type": "service_account",
        "project_id": _WORD,
        "private_key_id": zeros(40),
        "private_key": pem("PRIVATE KEY"),
        "client_email": f"{_WORD}@{_WORD}.iam.gserviceaccount.com",
        "client_id": zeros(21),
        "token_uri": "https://oauth2.googleapis.com/token",
    }
    return json.dumps(facts)


def uuid() -> str:
    """`00000000-0000-4000-8000-000000000000`: version 4, all else zero."""
    return "00000000-0000-4000-8000-000000000000"


def _with(prefix: str, body: Callable[[int], str], length: int) -> Callable[[], str]:
    return lambda: prefix + body(length)


def _always(value: str) -> Callable[[], str]:
    return lambda: value


# (words that name the provider and, where it has several kinds, the kind) -> its key. First match.
SHAPES: tuple[tuple[str, Callable[[], str]], ...] = (
    (r"open ?router", _with("sk-or-v1-", zeros, 64)),
    (r"anthropic|claude", _with("sk-ant-api03-", letters, 95)),
    (r"open ?ai admin", _with("sk-admin-", letters, 48)),
    (r"open ?ai|\bgpt\b", _with("sk-", letters, 48)),
    (r"deep ?seek", _with("sk-", zeros, 32)),
    (r"dash ?scope|qwen|moonshot|kimi|siliconflow", _with("sk-", letters, 48)),
    (r"gemini|youtube|firebase|google ?(maps?|api|search|cloud|ai|genai|places|sheets)|\bgcp\b",
     _with("AIza", letters, 35)),
    (r"groq", _with("gsk_", letters, 52)),
    (r"perplexity|\bpplx\b", _with("pplx-", letters, 48)),
    (r"mistral", _with("", letters, 32)),
    (r"cohere", _with("", letters, 40)),
    (r"\bxai\b|grok", _with("xai-", letters, 80)),
    (r"hugging ?face|\bhf\b", _with("hf_", letters, 34)),
    (r"replicate", _with("r8_", letters, 37)),
    (r"eleven ?labs|\bxi api", _with("sk_", zeros, 48)),
    (r"stability", _with("sk-", letters, 48)),
    (r"github.*(fine|pat v2)", _with("github_pat_", letters, 82)),
    (r"github|\bgh\b", _with("ghp_", letters, 36)),
    (r"gitlab", _with("glpat-", letters, 20)),
    (r"notion", _with("ntn_", letters, 46)),
    (r"slack.*\bapp\b.*token", _with("xapp-1-A00000000-0000000000000-", zeros, 64)),
    (r"slack.*signing", _with("", zeros, 32)),
    (r"slack.*user", _with("xoxp-0000000000-0000000000-0000000000-", zeros, 32)),
    (r"slack", _with("xoxb-0000000000-0000000000000-", letters, 24)),
    (r"stripe.*(publish|public)", _with("pk_test_", letters, 24)),
    (r"stripe.*webhook", _with("whsec_", letters, 32)),
    (r"stripe|clerk", _with("sk_test_", letters, 24)),
    (r"tavily", _with("tvly-", letters, 32)),
    (r"linear", _with("lin_api_", letters, 40)),
    (r"airtable", _always(f"pat{letters(14)}.{zeros(64)}")),
    (r"brave", _with("BSA", letters, 28)),
    (r"figma", _with("figd_", letters, 40)),
    (r"send ?grid", _always(f"SG.{letters(22)}.{letters(43)}")),
    (r"twilio.*(account|sid)", _with("AC", zeros, 32)),
    (r"twilio", _with("", zeros, 32)),
    (r"telegram", _always(f"0000000000:AA{letters(33)}")),
    (r"discord", _always(f"{letters(24)}.{letters(6)}.{letters(38)}")),
    (r"(aws|amazon).*access key id|\bakid\b", _with("AKIA", capitals, 16)),
    (r"(aws|amazon).*(secret|access key)|secret access key", _with("", letters, 40)),
    (r"supabase.*(access|personal)", _with("sbp_", zeros, 40)),
    (r"supabase|\banon\b|service role", jwt),
    (r"cloud ?flare", _with("", letters, 40)),
    (r"digital ?ocean", _with("dop_v1_", zeros, 64)),
    (r"sentry", _with("sntryu_", zeros, 64)),
    (r"shopify", _with("shpat_", zeros, 32)),
    (r"hub ?spot", lambda: f"pat-na1-{uuid()}"),
    (r"mail ?chimp", lambda: f"{zeros(32)}-us1"),
    (r"mail ?gun", _with("key-", zeros, 32)),
    (r"resend", _with("re_", letters, 32)),
    (r"mapbox", lambda: f"pk.{letters(80)}.{letters(22)}"),
    (r"pinecone", _with("pcsk_", letters, 70)),
    (r"fire ?crawl", _with("fc-", zeros, 32)),
    (r"\bexa\b", uuid),
    (r"apify", _with("apify_api_", letters, 36)),
    (r"\bjina\b", _with("jina_", letters, 60)),
    (r"\be2b\b", _with("e2b_", zeros, 40)),
    (r"lang ?(smith|chain)", _always(f"lsv2_pt_{zeros(32)}_{zeros(10)}")),
    (r"data ?dog.*app", _with("", zeros, 40)),
    (r"data ?dog|\bdd\b", _with("", zeros, 32)),
    (r"new ?relic", _with("NRAK-", capitals, 27)),
    (r"grafana", _always(f"glsa_{letters(32)}_{zeros(8)}")),
    (r"atlassian|jira|confluence", _with("ATATT3", letters, 186)),
    (r"postman", _always(f"PMAK-{zeros(24)}-{zeros(34)}")),
    (r"riot", lambda: f"RGAPI-{uuid()}"),
    (r"etherscan|\w*scan api", _with("", capitals, 34)),
    (r"infura|alchemy|coin ?market ?cap|coin ?gecko", _with("", zeros, 32)),
    (r"netlify", _with("nfp_", letters, 36)),
    (r"npm", _with("npm_", letters, 36)),
    (r"pypi", _with("pypi-", letters, 150)),
    (r"heroku", _with("HRKU-", letters, 60)),
    (r"docker", _with("dckr_pat_", letters, 27)),
    (r"asana", _always(f"0/{zeros(16)}:{zeros(32)}")),
    (r"trello.*token", _with("ATTA", zeros, 72)),
    (r"open ?weather|trello|last ?fm|tmdb|news ?api|giphy|serp ?api", _with("", zeros, 32)),
)  # fmt: skip


def key_of(words: str) -> str | None:
    """A made-up key of the provider that the words name, None where they name none."""
    found = next((make for pattern, make in SHAPES if re.search(pattern, words)), None)
    return found() if found else None
