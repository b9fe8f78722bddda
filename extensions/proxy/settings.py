"""Settings of the proxy: where it listens, where it sends to, and how much it takes."""

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from assets.contracts.history.moves import ContractHistory
from serving.meta.policy import HttpSettings, TokenError
from warehouse.errors import UnusableInput


class ProxyError(UnusableInput):
    """An option of the proxy that cannot be used, with the fix."""


def make_listening(host: str, port: int, token: str, max_body: int) -> HttpSettings:
    """Where the proxy listens. token: the secret that clients send, "" for none.

    Raises ProxyError for a host beyond loopback without a token.
    """
    from serving.meta.access_control import build_token
    from serving.meta.policy import is_loopback

    if not token and not is_loopback(host):
        raise ProxyError(
            f"--host {host!r} is reached by others and no token is asked for; give --token, or"
            " listen on 127.0.0.1"
        )
    try:
        tokens = (build_token(token, "proxy"),) if token else ()
        return HttpSettings(host=host, port=port, path="/v1", tokens=tokens, max_body=max_body)
    except TokenError as error:
        raise ProxyError(str(error)) from None


@dataclass(frozen=True)
class ProxySettings:
    """What the proxy does with a request.

    upstream: base address of an OpenAI-compatible API; without a path, `/v1` is added; "" where a
    local model stands in its place. key: sent to
    it in the place of the client's, "" sends the client's. timeout_s: without a byte of the
    upstream's; total_s: of one request. max_held: bytes of an answer that are held back to be
    judged; what is longer passes unjudged. history: of the contracts, for tools and parameters that
    were renamed.
    """

    upstream: str = ""
    key: str = field(default="", repr=False)
    timeout_s: float = 120.0
    total_s: float = 900.0
    max_tools: int = 10_000
    max_open: int = 128
    max_held: int = 16_000_000
    history: ContractHistory | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.upstream:
            return
        parts = urlsplit(self.upstream)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ProxyError(
                f"--upstream {self.upstream[:80]!r}: expected an address like"
                " https://api.openai.com/v1"
            )
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ProxyError(
                "--upstream holds a user, a query or a fragment; give the address alone and the key"
                " in the variable of --key-env"
            )

    def find_base(self) -> str:
        """The address that stands for the proxy's `/v1`."""
        base = self.upstream.rstrip("/")
        return base if urlsplit(base).path else f"{base}/v1"
