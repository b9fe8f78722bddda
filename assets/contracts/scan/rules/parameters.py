"""Parameters: what a tool asks for, by the names and descriptions of its parameters."""

from collections.abc import Iterator, Sequence, Set

from assets.contracts.scan.finding import HIGH, LOW, MEDIUM, Hit, build_hit, define_rule
from assets.contracts.scan.pattern_rules import Judged, judge_text
from assets.contracts.scan.rules.cross_tool_orders import PLAIN
from assets.contracts.scan.rules.exfiltration import TALK, TPA
from assets.contracts.scan.text.fields import Text
from assets.contracts.scan.text.normalise import collect_words, split_words
from assets.contracts.scan.text.phrases import Ideas, parse_patterns

TALK_PARAMETER = define_rule(
    "conversation_parameter", MEDIUM, "conversation",
    "a parameter asks for the conversation, the system prompt or the list of tools",
    "HiddenLayer, exploiting MCP tool parameters, 2025",
)  # fmt: skip
FILE_PARAMETER = define_rule(
    "secret_file_parameter", HIGH, "exfiltration",
    "a parameter asks for the content of a file that usually holds secrets", TPA,
)  # fmt: skip
LOOT_PARAMETER = define_rule(
    "secrets_parameter", HIGH, "exfiltration",
    "a parameter asks for secrets of the user or of the host that are none of the tool's", TPA,
)  # fmt: skip
CREDENTIAL = define_rule(
    "credential_parameter", LOW, "credential",
    "a parameter asks for a secret, which then passes through the model",
    "OWASP MCP Top 10 2025, MCP01 token mismanagement and secret exposure",
)  # fmt: skip
KEY_PARAMETER = define_rule(
    "private_key_parameter", MEDIUM, "credential",
    "a parameter asks for a private key, a recovery phrase, a card or a one-time code",
    "OWASP MCP Top 10 2025, MCP01",
)  # fmt: skip

# Tools whose own subject is conversations may well ask for one.
_ABOUT_TALK = collect_words(
    "conversation conversations chat chats message messages thread threads transcript"
    " transcripts dialogue dialog memory memories summarize summarise history prompt prompts"
    " agent agents assistant llm completion completions session sessions context call calls"
    " meeting think thinking reasoning eval evaluate recall handoff bot chatbot slack telegram"
    " discord"
)
_SECRETS_OWN = collect_words(
    "cookie cookies password passwords browser vault secret secrets env environment history"
    " token credential credentials key keys wallet keychain clipboard auth login scan audit"
)
_TALK_NAMES = frozenset(
    ("system prompt", "conversation history", "chat history", "tool call history",
     "message history",
     "full conversation", "previous messages", "conversation context", "available tools",
     "tool names", "conversation", "chain of thought", "chat log", "full context", "system message")
)  # fmt: skip
_KEY_NAMES = (
    "private key", "privatekey", "seed phrase", "mnemonic", "recovery phrase", "secret phrase",
    "ssh key", "id rsa", "card number", "cvv", "cvc", "credit card", "ssn", "social security",
    "otp", "two factor code", "2fa code", "mfa code", "pin code", "wallet key", "master password",
)  # fmt: skip
_SECRET_NAMES = (
    "password", "passwd", "passphrase", "api key", "apikey", "access token", "auth token",
    "bearer token", "secret key", "client secret", "access key", "credentials", "api token",
    "refresh token", "session cookie", "cookies",
)  # fmt: skip


_WHERE_IT_MATTERS = frozenset(
    ("HARDPATH", "KEYISH", "LOOT", "CONVERSATION", "CONVERSATION_OWN", "YOURS")
)
_NAMES_FILE = Judged(FILE_PARAMETER, parse_patterns("READ|CONTENT|CONTENT_OF 4 HARDPATH"))
# What a parameter's description asks for: (rule, patterns, words of tools whose own subject it is).
_ASKS = (
    (FILE_PARAMETER, parse_patterns("CONTENT_OF 6 HARDPATH"), frozenset[str]()),
    (
        LOOT_PARAMETER,
        parse_patterns("LOOT", "KEYISH|SECRETISH 4 HOSTED", "SECRETISH 14 OTHER_TOOL"),
        _SECRETS_OWN,
    ),
    (
        TALK,
        parse_patterns("YOURS", "VERBATIM 2 CONVERSATION_OWN", "CONVERSATION_OWN 3 VERBATIM"),
        _ABOUT_TALK,
    ),
    (TALK_PARAMETER, parse_patterns("CONVERSATION_OWN"), _ABOUT_TALK),
)


def mark_own_parameters(text: Text, within: Ideas, own: Set[str]) -> None:
    """Enters the names of the tool's own parameters as the idea OWN_PARAMETER, where it matters."""
    if within.found.keys().isdisjoint(_WHERE_IT_MATTERS):
        return
    spans = []
    for found in PLAIN.finditer(text.text):
        if found[0] in own and found[0] != text.parameter:
            first, last = within.words.at(found.start()), within.words.at(found.end() - 1)
            if first >= 0:
                spans.append((first, last))
    if spans:
        within.found["OWN_PARAMETER"] = spans


def judge_parameter(text: Text, about: Sequence[str], within: Ideas) -> Iterator[Hit]:
    """What a parameter's name or description asks for. about: words of the tool's own name."""
    if not text.parameter or not text.field.startswith(("/inputSchema", "/parameters")):
        return
    if text.role == "name":
        yield from _judge_name(text, about)
        yield from judge_text(_NAMES_FILE, text.text, within, text.role)
    elif text.role == "prose":
        # A parameter that says by its name that it is a secret hides nothing.
        declared = not _SECRETS_OWN.isdisjoint(split_words(text.parameter, name=True).words)
        for by, asks, subject in _ASKS:
            if subject.isdisjoint(about) and not (declared and by is LOOT_PARAMETER):
                # The first rule of a kind that fires says it best.
                found = next(
                    judge_text(
                        Judged(by, asks, mentioned=LOW, eased=("PUBLIC",)),
                        text.text,
                        within,
                        text.role,
                    ),
                    None,
                )
                if found:
                    yield found
                    break


def _judge_name(text: Text, about: Sequence[str]) -> Iterator[Hit]:
    spelled = f" {' '.join(split_words(text.text, name=True).words)} "
    end = len(text.text)
    if spelled.strip() in _TALK_NAMES and _ABOUT_TALK.isdisjoint(about):
        yield build_hit(TALK_PARAMETER, 0, end)
    if any(f" {name} " in spelled for name in _KEY_NAMES):
        yield build_hit(KEY_PARAMETER, 0, end)
    elif any(f" {name} " in spelled for name in _SECRET_NAMES):
        yield build_hit(CREDENTIAL, 0, end)
