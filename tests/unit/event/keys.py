"""Invalid keys of many vendors, built when the tests run: a scanner finds none in this repository."""

import base64
import json

_MIXED = "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8S9t0U1v2W3x4Y5z6"
_HEX = "0123456789abcdef"


def _base64url(data: dict[str, str]) -> str:
    return base64.urlsafe_b64encode(json.dumps(data).encode()).decode().rstrip("=")


JWT = ".".join([_base64url({"alg": "HS256"}), _base64url({"sub": "user-1"}), _MIXED[:43]])
_LINES = "\n".join([_MIXED] * 4 + ["ab=="])
PEM = f"-----BEGIN RSA {'PRIVATE'} KEY-----\n{_LINES}\n-----END RSA {'PRIVATE'} KEY-----"

#: The name under which a key is redacted, and the key.
KEYS: dict[str, tuple[str, str]] = {
    "openai project": ("OpenAI key", "sk-" + "proj-" + "A" * 40),
    "openai": ("OpenAI key", "sk-" + _MIXED[:48]),
    "anthropic": ("Anthropic key", "sk-" + "ant-api03-" + _MIXED + "-" + _MIXED[:40] + "AA"),
    "aws": ("AWS key", "AK" + "IA" + "IOSFODNN7ABCDEFG"),
    "aws pair": ("AWS key", "AK" + "IA" + "IOSFODNN7ABCDEFG, " + _MIXED[:40]),
    "github": ("GitHub token", "gh" + "p_" + _MIXED[:36]),
    "github server, as a JWT": ("GitHub token", "gh" + "s_12345_" + JWT),
    "gitlab routable": ("GitLab token", "gl" + "pat-" + _MIXED[:27] + ".01.0a1b2c3d4"),
    "slack bot": ("Slack token", "xo" + "xb-123456789012-" + _MIXED[:24]),
    "slack webhook": ("webhook", "hooks." + "slack.com/services/T00000000/B0000/" + _MIXED[:24]),
    "discord webhook": ("webhook", "discord" + ".com/api/webhooks/12345678/" + _MIXED + "a" * 16),
    "google, bound to an account": ("Google key", "A" + "Q.Ab" + _MIXED[:48]),
    "google refresh": ("Google token", "1/" + "/0" + _MIXED[:40]),
    "google oauth": ("Google token", "ya" + "29.a0" + _MIXED),
    "stripe": ("Stripe key", "sk" + "_live_" + _MIXED[:24]),
    "azure storage": ("Azure key", "AccountName=a;Account" + "Key=" + _MIXED + "a" * 34 + "=="),
    "azure bus": ("Azure key", "SharedAccessKeyName=a;Shared" + "AccessKey=" + _MIXED[:43] + "="),
    "azure sas": ("signature", "?sv=2024-01-01&sr=c&sig" + "=" + _MIXED[:40] + "%3D"),
    "aws presigned": ("signature", "?X-Amz-Date=1&X-Amz-" + "Signature=" + _HEX * 4),
    "jwt": ("JWT", JWT),
    "pem": ("private key", PEM),
    "pem on one line": ("private key", PEM.replace("\n", "\\n")),
    "pem cut off": ("private key", PEM[: PEM.index("-----END") - 6]),
    "bearer": ("token", "Bearer " + _MIXED[:24]),
    "bearer header": ("authorization", "Authorization: Bearer " + "abcdef123"),
    "bare header": ("authorization", "Authorization: " + _MIXED[:24]),
    "basic header": ("authorization", "authorization: Basic " + "dXNlcjpwYXNzd29yZA=="),
    "basic": ("authorization", "Basic " + "dXNlcjpwYXNzd29yZA=="),
    "url": ("userinfo", "https://user:" + "hunter2@example.com/v1"),
    "url with a token": ("userinfo", "https://" + _MIXED[:20] + "@example.com/x.git"),
    "postgres": ("password", "postgresql+asyncpg://user:" + "hunter2@db:5432/app"),
    "an @ in a password": ("password", "mysql://user:" + "hun@ter2@db/app"),
    "a / in a password": ("password", "postgres://user:" + "hun/ter2@db/app"),
    "redis": ("password", "redis://:" + "hunter2@cache:6379/0"),
    "cookie header": ("cookie", "Cookie: sid=" + "hunter2; theme=dark"),
    "xml": ("secret", "<db:password>" + "hunter2</db:password>"),
    "curl": ("password", "curl -u user:" + "hunter2 example.com"),
}

#: Secret parts of keys that begin with something else.
_SEEN = ("hunter2", "hun@ter2", "hun/ter2", "dXNlcjpwYXNzd29yZA", "abcdef123")


def telltale(key: str) -> str:
    """Return the part of a key that redaction must remove."""
    return next((part for part in _SEEN if part in key), _longest(key))


def _longest(key: str) -> str:
    pieces = [_MIXED, _HEX * 2, "A" * 40, _MIXED[:40], _MIXED[:34], _MIXED[:24], _MIXED[:20], _HEX]
    return next((piece for piece in pieces if piece in key), key)
