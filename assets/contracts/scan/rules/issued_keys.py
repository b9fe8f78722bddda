"""Keys in a tool's text that open something: not the samples that issuers print in their manuals,
and not ids that have the form of a key. Those are redacted elsewhere as any other."""

import re
from base64 import b64encode
from collections.abc import Iterator

from warehouse.sanitize.credential_patterns import Span, find_issued_keys

# In two pieces each, so that no one who looks for keys takes them for some.
_SAMPLES = frozenset(
    (
        "sk_test_" + "4eC39HqLyjWDarjtT1zdp7dc",  # docs.stripe.com
        "sk_test_" + "BQokikJOvBiI2HlWgH4olfQ2",  # docs.stripe.com, the older one
    )
)
_JOHN = b64encode(b'{"sub":"1234567890","name":"John Doe"').decode()  # whom jwt.io's tokens name
_JOHN_DOE = "." + _JOHN[:49]  # what follows him decides the last letter
_ID = re.compile(
    r"pk_(?!\d{1,20}_[A-Z0-9]{16})"  # a publishable key; ClickUp's secret ones have a number there
    r"|AC[0-9a-f]{32}\Z"  # the id of an account at Twilio
    r"|re_[A-Za-z0-9]{24}\Z"  # the id of a refund at Stripe; Resend's keys have a second _
)


def find_secret_keys(text: str) -> Iterator[Span]:
    """Where keys stand that are one for certain and somebody's own."""
    for start, end in find_issued_keys(text):
        key = text[start:end]
        if not _is_sample(key) and not _ID.match(key):
            yield start, end


def _is_sample(key: str) -> bool:
    """AWS ends all its samples in EXAMPLE (docs.aws.amazon.com)."""
    john = key.startswith("eyJ") and _JOHN_DOE in key
    return john or key in _SAMPLES or key.endswith("EXAMPLE")
