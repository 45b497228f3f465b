"""Know a credential by the name it goes under, and by what is no name of one.

Above: `shapes`, `secrets`.  Below: nothing.
A name such as `api_key` makes almost any text under it a credential, but not a placeholder such as
`env:OPENAI_API_KEY`. The names that are let pass are those that sessions of agents are full of: `max_tokens`,
`next_page_token`, `sort_key`. Nothing is compiled before it is needed.
"""

import re
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple


class Named(NamedTuple):
    """What a name says about the value under it."""

    #: The kind of credential, in words.
    what: str
    #: Only a text that looks made by a machine counts: the name alone is not enough.
    loose: bool = False
    #: A number counts too.
    numbers: bool = False
    #: A path does not: `PWD` is where a shell is.
    paths: bool = True


@cache
def compiled(source: str, flags: int = 0) -> re.Pattern[str]:
    """Return a pattern, compiled when it is first asked for."""
    return re.compile(source, flags)


def words(text: str) -> frozenset[str]:
    """Return a set of words, written as a sentence is."""
    return frozenset(text.split())


# -- names ------------------------------------------------------------------------------------------

_PARTS: Final = r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[^A-Za-z0-9]+"

#: Longer texts are no names.
_LONGEST_NAME: Final = 100

#: One of these is in every name of a credential.
NAME_HINTS: Final = (
    "pass",
    "pwd",
    "secret",
    "key",
    "token",
    "authoriz",
    "bearer",
    "cookie",
    "cred",
)

#: `use_api_key`, `has_password`, `max_tokens`: about a credential, or about nothing of the kind.
_ABOUT: Final = words(
    "is has no use uses used need needs require requires show hide allow allows with without should "
    "enable enabled disable disabled max min num count total public publishable"
)
#: `api_key_2`, `password_plain`: still the credential.
_VARIANT: Final = words(
    "value plain plaintext text raw string str header new old current primary secondary main backup "
    "prod production dev test staging live b64 base64 pem"
)
_VENDORS: Final = words(
    "openai anthropic claude azure google gemini vertex aws bedrock groq mistral cohere openrouter "
    "deepseek perplexity together fireworks replicate xai huggingface hf github gh gitlab slack "
    "discord telegram stripe twilio sendgrid mailgun pinecone tavily serper langsmith langfuse npm "
    "pypi cloudflare datadog sentry supabase vercel netlify notion airtable"
)
_STRONG_KEYS: Final = words("api apikey secret private auth")
_LOOSE_KEYS: Final = _VENDORS | words(
    "access account encryption license master service shared signing subscription storage"
)
_STRONG_TOKENS: Final = words(
    "access refresh auth bearer api oauth oauth2 secret personal private security session"
)
#: Tokens of texts, of pages and of grammars.
_OTHER_TOKENS: Final = words(
    "page next previous prev continuation continue pagination cursor sync pad eos bos unk cls sep mask "
    "stop start end begin special first last per each input output prompt completion cached reasoning "
    "image audio"
)
_ACCOUNTS: Final = words("db database user smtp imap mysql pg postgres redis ftp mail root admin")


#: The end of a name's last word, for `dbPassword` and `dbpassword` alike.
_ENDINGS: Final = {
    **dict.fromkeys(
        ("password", "passwords", "passwd", "passphrase", "passcode", "pwd"),
        Named("password", numbers=True),
    ),
    **dict.fromkeys(("apikey", "apikeys", "secretkey"), Named("API key", numbers=True)),
    **dict.fromkeys(
        ("accesstoken", "refreshtoken", "authtoken", "apitoken", "bearertoken"), Named("token")
    ),
    **dict.fromkeys(("credential", "credentials", "creds"), Named("credential", loose=True)),
    "accesskey": Named("access key", loose=True),
    "privatekey": Named("private key"),
    "secret": Named("secret"),
    "secrets": Named("secret"),
}
#: Names that mean something else as a part of another.
_WHOLE: Final = {
    **dict.fromkeys(
        ("authorization", "proxyauthorization", "xauthorization", "httpauthorization"),
        Named("authorization"),
    ),
    **dict.fromkeys(
        ("cookie", "cookies", "setcookie", "sessioncookie", "authcookie", "httpcookie"),
        Named("cookie"),
    ),
    **dict.fromkeys(("credential", "credentials", "creds"), Named("credential")),
    "bearer": Named("token"),
    "pwd": Named("password", numbers=True, paths=False),
}


@lru_cache(maxsize=4096)
def named(name: str) -> Named | None:
    """Return what credential a name speaks of, in whatever case it is written; None if of none."""
    lower = name.lower()
    # What redaction has left of a name is none.
    known = any(hint in lower for hint in NAME_HINTS) and "[redacted:" not in lower
    if not known or len(name) > _LONGEST_NAME:
        return None
    parts = [part.lower() for part in compiled(_PARTS).split(name) if part]
    while len(parts) > 1 and (parts[-1].isdigit() or parts[-1] in _VARIANT):
        parts.pop()
    if not parts or parts[0] in _ABOUT or parts[-2:-1] == ["public"]:
        return None
    last = parts[-1].rstrip("0123456789")
    before = parts[-2] if len(parts) > 1 else ""
    if last in {"key", "keys"}:
        return _key(parts, before)
    if last in {"token", "tokens"}:
        return _token(before, plural=last == "tokens")
    if last == "pass" and before in _ACCOUNTS:
        last = "password"
    return _WHOLE.get("".join(parts)) or next(
        (meant for ending, meant in _ENDINGS.items() if last.endswith(ending)), None
    )


def _key(parts: list[str], before: str) -> Named | None:
    if before == "private":
        return Named("private key")
    if before in _STRONG_KEYS or before.endswith("api"):
        return Named("API key", numbers=True)
    if before == "access":
        return Named("access key", loose="secret" not in parts)
    return Named("key", loose=True) if before in _LOOSE_KEYS else None


def _token(before: str, *, plural: bool) -> Named | None:
    if before in _STRONG_TOKENS:
        return Named("token")
    # A list of tokens is what a tokenizer makes.
    return None if plural or before in _OTHER_TOKENS else Named("token", loose=True)


# -- values -----------------------------------------------------------------------------------------

_PLACEHOLDER: Final = r"""(?ix)
    [\W_]*                                            # nothing, or a mask
    | x{3,}
    | [^\s*•]{0,10} (?:\*{3,}|•{3,}) [^\s*•]{0,6}      # a mask that shows its ends
    | [^\s.…]{2,10} (?:\.{3}|…) [^\s.…]{2,6}
    | <[^<>]{0,200}> | \[\s?(?:redacted|removed|hidden|masked|filtered|secret|your)\b[^\[\]]{0,200}\]
    | \$?\{{1,2}[\w.\ -]{1,100}\}{1,2} | %\w{1,100}% | @\w{1,100}@ | \$\w{1,100}
    | (?:env|vault|keyring|keychain|file|ref|secret|secrets|ssm|sm|op|aws-sm|gcp-sm|azure-kv)
      :[\w./@\#:-]{1,200}
    | arn:aws[\w-]{0,10}:(?:secretsmanager|ssm):[\w./@\#:+=-]{1,200}
    | (?:os\.environ|process\.env|import\.meta\.env|Deno\.env)\b.{0,200}
    | your[-_ ][\w -]{1,60}
    | redacted | removed | hidden | masked | none | null | nil | undefined | unset | n/?a | not\ set
    | true | false | yes | no | required | optional | str | string | text | bool | boolean | int | integer
    | number | object | any | same-origin | include | omit
"""
_VARIABLE: Final = r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+"
_PATHS: Final = ("/", "./", "../", "~", "\\")
#: Nothing that stands between things; letters and digits, or a long run of either.
_MADE: Final = 16
_MADE_TEXT: Final = (
    r"(?![^\s\"'<>(){}]*+[\s\"'<>(){}])"
    r"(?:[^A-Za-z]*+[A-Za-z][^0-9]*+[0-9]|[^0-9]*+[0-9][^A-Za-z]*+[A-Za-z]"
    r"|(?:[^A-Za-z0-9]*+[A-Za-z0-9]{1,31}(?![A-Za-z0-9]))*+[^A-Za-z0-9]*+[A-Za-z0-9]{32})"
)


def is_placeholder(text: str) -> bool:
    """Say whether a text only stands for a credential: a mask, a variable, the name of one."""
    text = text.strip()
    if compiled(_PLACEHOLDER).fullmatch(text):
        return True
    return compiled(_VARIABLE).fullmatch(text) is not None and named(text) is not None


def is_made(text: str) -> bool:
    """Say whether a text looks made by a machine, as keys are: long, in one piece, no word, no path."""
    if len(text) < _MADE or text.startswith(_PATHS) or "://" in text:
        return False
    return text.isascii() and compiled(_MADE_TEXT).match(text) is not None


def holds(name: Named, value: Any) -> bool:
    """Say whether a value under such a name is a credential. Truth values and null never are."""
    if not isinstance(value, str):
        return name.numbers and isinstance(value, int | float) and not isinstance(value, bool)
    if (name.loose and not is_made(value.strip())) or (not name.paths and value.startswith(_PATHS)):
        return False
    return not is_placeholder(value)
