"""Exfiltration: reading what is not the tool's business and sending it somewhere."""

from assets.contracts.scan.finding import HIGH, MEDIUM, define_rule
from assets.contracts.scan.pattern_rules import Judged
from assets.contracts.scan.text.phrases import parse_patterns

TPA = "Invariant Labs, tool poisoning attacks, April 2025"

FILE = define_rule(
    "secret_file_exfiltration", HIGH, "exfiltration",
    "has a file with secrets read and its content passed on", TPA,
)  # fmt: skip
ORDERED = define_rule(
    "secret_exfiltration", HIGH, "exfiltration",
    "orders the model to collect secrets and to pass them on", TPA,
)  # fmt: skip
FIRST = define_rule(
    "secret_before_call", HIGH, "exfiltration",
    "makes reading or sending secrets a condition of using the tool", TPA,
)  # fmt: skip
PATH = define_rule(
    "secret_path", MEDIUM, "exfiltration",
    "orders that a file be read that usually holds secrets", TPA,
)  # fmt: skip
TALK = define_rule(
    "conversation_exfiltration", HIGH, "conversation",
    "has the conversation, its instructions or other tools' results passed on",
    "HiddenLayer, exploiting MCP tool parameters, 2025",
)  # fmt: skip

_SECRET = "HARDPATH|KEYISH"

JUDGED = (
    Judged(
        FILE,
        parse_patterns(
            "READ 6 HARDPATH 24 SEND 12 PLACE|OWN_PARAMETER",
            "READ 6 HARDPATH 12 PLACE|OWN_PARAMETER 6 SEND",
            "SEND 8 HARDPATH 12 PLACE|OWN_PARAMETER",
            "SEND 8 CONTENT_OF 4 HARDPATH",
            "OWN_PARAMETER 6 CONTENT_OF 3 HARDPATH",
            "CONTENT_OF 4 HARDPATH 12 SEND",
            "HARDPATH 14 SEND 10 PLACE|OWN_PARAMETER",
            "HARDPATH 10 READ 14 PLACE 6 SEND",  # Japanese, Korean, Turkish: the verb comes last
            "HARDPATH 8 READ 20 SEND",
        ),
        eased=("PUBLIC",),
        guarded=("GUARDS",),
    ),
    Judged(
        ORDERED,
        parse_patterns(
            "ORDER 8 READ 8 KEYISH|LOOT 20 SEND 10 PLACE|OWN_PARAMETER",
            "READ 5 KEYISH|LOOT 8 SEND 8 REMOTE",
            "READ~ 5 KEYISH 8 SEND~ 8 PLACE",
            "KEYISH 2 ORDER 6 SEND 10 PLACE|OWN_PARAMETER",
            "KEYISH|LOOT|SECRETISH 3 SEND 3 ADDRESS",
            "SEND 6 LOOT 8 REMOTE|PLACE|OWN_PARAMETER",
            "ORDER 10 KEYISH 10 READ 20 SEND",
            "ORDER 6 SEND 4 KEYISH|LOOT 8 PLACE|OWN_PARAMETER",
            "OWN_PARAMETER 14 SEND 3 LOOT",
            "SEND 3 KEYISH|LOOT 4 ADDRESS",
            "READ 4 KEYISH|LOOT 10 SEND 5 FOREIGN|ADDRESS",
        ),
        eased=("PUBLIC",),
        guarded=("GUARDS",),
    ),
    Judged(
        FIRST,
        parse_patterns(
            f"BEFORE_TOOL 16 READ|SEND 6 {_SECRET}",
            f"READ|SEND 6 {_SECRET} 10 BEFORE_TOOL",
            f"BEFORE_TOOL 12 {_SECRET} 8 READ|SEND",
        ),
        eased=("PUBLIC",),
        guarded=("GUARDS",),
    ),
    Judged(
        PATH,
        parse_patterns("ORDER 8 READ 5 HARDPATH", "CONTENT_OF 6 HARDPATH",
                 f"READ 3 {_SECRET} 6 SEND", "SEND 3 CONTENT_OF 2 KEYISH"),
        eased=("PUBLIC",),
        guarded=("GUARDS",),
    ),
    Judged(
        TALK,
        parse_patterns(
            "ORDER 10 SEND 6 CONVERSATION_OWN 10 PLACE|OWN_PARAMETER",
            "SEND 3 OWN_PARAMETER 8 CONVERSATION_OWN",
            "SEND 4 YOURS 14 PLACE|OWN_PARAMETER",
            "SEND 6 CONVERSATION_OWN 8 REMOTE",
            "CONVERSATION_OWN 8 FIRM 4 SEND 4 PLACE|OWN_PARAMETER",
            "ORDER 8 READ|SEND 6 CONVERSATION 8 SEND 8 PLACE|OWN_PARAMETER",
            "BEFORE_TOOL 10 READ|SEND 6 CONVERSATION_OWN",
            "CONTENT_OF 4 CONVERSATION_OWN 10 SEND 8 PLACE",
            "SEND 3 CONVERSATION_OWN 8 OWN_PARAMETER",
            "SEND|KEEP 5 CONVERSATION_OWN 5 ADDRESS",
        ),
    ),
)  # fmt: skip
