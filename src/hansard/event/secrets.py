"""Find credentials: refuse them in metadata, and redact them in what is shared.

Metadata are configuration: a credential in them is a mistake, and `refuse` raises. Messages are stored
unchanged; `redact` returns a copy for other people. Neither is called when a message is appended.

A credential is known by the name that it is assigned to (`api_key`), or by its shape (`ghp_…`). Ordinary code
and prose must pass: `password: str`, `max_tokens`, `api_key = settings.api_key`, "Password: at least 8
characters". A password that is a word in a sentence is not found. docs/decisions/0026-secrets.md has figures.

Every pattern takes linear time on a hostile text. A quantifier is bounded, or it is the last, or it is
possessive over characters among which the pattern cannot start again. Patterns are compiled on first use.
"""

import re
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from hansard.errors import InvalidEvent, SecretRefused

#: Maximum levels of JSON inside a string inside JSON; deeper levels are searched as text.
_DEEPEST_TEXT: Final = 8
_REDACTED: Final = "[redacted: "
#: Length of `pwd=abc`: a shorter text holds no credential.
_SHORTEST: Final = 7
#: Redacting one credential can uncover the next; texts need far fewer rounds than this.
_ROUNDS: Final = 8


class Named(NamedTuple):
    """What a name says about its value."""

    #: The kind of credential.
    what: str
    #: Only a random-looking value counts: the name alone is not enough.
    loose: bool = False
    #: A number counts too.
    numbers: bool = False
    #: A path counts too. It does not for `PWD`, the directory of a shell.
    paths: bool = True


class Found(NamedTuple):
    """A credential in a text."""

    start: int
    end: int
    what: str


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# -- names ------------------------------------------------------------------------------------------

_PARTS: Final = r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[^A-Za-z0-9]+"
_LONGEST_NAME: Final = 100

#: Every name of a credential contains one of these.
_NAME_HINTS: Final = tuple(
    _words("pass pwd secret key token authoriz bearer cookie cred _pw _pat _auth")
)

#: `use_api_key`, `has_password`, `max_tokens`: about a credential, or about something else.
_ABOUT: Final = _words(
    "is has no use uses used need needs require requires show hide allow allows with without should "
    "enable enabled disable disabled max min num count total public publishable"
)
#: `api_key_2`, `password_plain`: still the credential.
_VARIANT: Final = _words(
    "value plain plaintext text raw string str header new old current primary secondary main backup "
    "prod production dev test staging live b64 base64 base pem"
)
_STRONG_KEYS: Final = _words("api apikey secret private auth")
_LOOSE_KEYS: Final = _words(
    "openai anthropic claude azure google gemini vertex aws bedrock groq mistral cohere openrouter "
    "deepseek perplexity together fireworks replicate xai huggingface hf github gh gitlab slack "
    "discord telegram stripe twilio sendgrid mailgun pinecone tavily serper langsmith langfuse npm "
    "pypi cloudflare datadog sentry supabase vercel netlify notion airtable "
    "access account admin encryption license master service shared signing subscription storage"
)
#: `SORT_KEY`, `CACHE_KEY`: any other `…_KEY` in capitals may be a credential.
_OTHER_KEYS: Final = _words(
    "sort cache primary foreign partition idempotency unique index dict map object row group event "
    "hash range order lookup search session config setting state storage public publishable"
)
_STRONG_TOKENS: Final = _words(
    "access refresh auth bearer api oauth oauth2 secret personal private security session"
)
#: Tokens of texts, of pages and of grammars.
_OTHER_TOKENS: Final = _words(
    "page next previous prev continuation continue pagination cursor sync pad eos bos unk cls sep mask "
    "stop start end begin special first last per each input output prompt completion cached reasoning "
    "image audio"
)
_ACCOUNTS: Final = _words(
    "db database user smtp imap mysql pg postgres redis ftp sftp ssh mail email ldap mongo mongodb "
    "mariadb rabbitmq mqtt proxy root admin"
)

#: Complete names that mean something else as a part of another.
_COMPLETE: Final = {
    Named("authorization"): "authorization proxyauthorization xauthorization httpauthorization",
    Named("cookie"): "cookie cookies setcookie sessioncookie authcookie httpcookie",
    Named("credential"): "credential credentials creds",
    Named("token"): "bearer",
    Named("password", numbers=True, paths=False): "pwd",
}
#: Endings of a name's last word, for `dbPassword` and `dbpassword` alike.
_ENDINGS: Final = {
    Named("password", numbers=True): "password passwords passwd passphrase passcode pwd",
    Named("API key", numbers=True): "apikey apikeys secretkey",
    Named("token"): "accesstoken refreshtoken authtoken apitoken bearertoken",
    Named("credential", loose=True): "credential credentials creds",
    Named("access key", loose=True): "accesskey",
    Named("private key"): "privatekey",
    Named("secret"): "secret secrets",
}


@lru_cache(maxsize=4096)
def named(name: str) -> Named | None:
    """Return the kind of credential that a name means, in any case; None if none."""
    lower = name.lower()
    known = any(hint in lower for hint in _NAME_HINTS) and _REDACTED not in lower
    if not known or len(name) > _LONGEST_NAME:
        return None
    parts = [part.lower() for part in re.split(_PARTS, name) if part]
    while len(parts) > 1 and (parts[-1].isdigit() or parts[-1] in _VARIANT):
        parts.pop()
    if not parts or parts[0] in _ABOUT or parts[-2:-1] == ["public"]:
        return None
    last = parts[-1].rstrip("0123456789")
    before = parts[-2] if len(parts) > 1 else ""
    if last in {"key", "keys"}:
        return _key(parts, before, upper=name.isupper())
    if last in {"token", "tokens"}:
        # A list of tokens is the output of a tokenizer.
        other = last == "tokens" or before in _OTHER_TOKENS
        strong = before in _STRONG_TOKENS
        return None if other and not strong else Named("token", loose=not strong)
    if last in {"pass", "pw"} and before in _ACCOUNTS:
        last = "password"
    if last in {"pat", "auth"} and (name.isupper() or name == "_auth"):
        return Named("token", loose=True)
    joined = "".join(parts)
    complete = (meant for meant, names in _COMPLETE.items() if joined in names.split())
    # `PassWord`, `pass_phrase` and `sEcReT` are one word each, however they are written.
    endings = (
        meant
        for meant, ends in _ENDINGS.items()
        if last.endswith(tuple(ends.split())) or joined in ends.split()
    )
    return next(complete, None) or next(endings, None)


def _key(parts: list[str], before: str, *, upper: bool) -> Named | None:
    if before == "private":
        return Named("private key")
    if before in _STRONG_KEYS or before.endswith("api"):
        return Named("API key", numbers=True)
    if before == "access":
        return Named("access key", loose="secret" not in parts)
    loose = before in _LOOSE_KEYS or (upper and before and before not in _OTHER_KEYS)
    return Named("key", loose=True) if loose else None


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
    | your[-_ ][\w -]{1,60} | placeholder | [\w-]{0,40}not[-_ ]set
    | [^\n]{0,200}?(?:%[sr]|\{\d?\})[^\n]*            # a template
    | https?://(?:[^\s@?&=]|\[redacted:\ [^\[\]]{0,60}\])*  # a link
    | :[a-z]{2,12}:[^\n]*                             # a role of reStructuredText
    | \w{2,6}-?(?:\.{3}|…)
    | redacted | removed | hidden | masked | none | null | nil | undefined | unset | n/?a | not\ set
    | true | false | yes | no | required | optional | str | string | text | bool | boolean | int | integer
    | number | object | any | same-origin | include | omit | oauth2? | base64
    | (?:test|fake|dummy|example|sample|mock|my|some|placeholder)[-_ ](?:[a-z]{1,20}[-_ ]){0,2}
      (?:key|token|secret|password|credentials?)
"""
_VARIABLE: Final = r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+"
_PATHS: Final = ("/", "./", "../", "~", "\\")
_RANDOM_LENGTH: Final = 16
#: In one piece; letters and digits, or a long run of either.
_RANDOM: Final = (
    r"(?![^\s\"'<>(){}]*+[\s\"'<>(){}])"
    r"(?:[^A-Za-z]*+[A-Za-z][^0-9]*+[0-9]|[^0-9]*+[0-9][^A-Za-z]*+[A-Za-z]"
    r"|(?:[^A-Za-z0-9]*+[A-Za-z0-9]{1,31}(?![A-Za-z0-9]))*+[^A-Za-z0-9]*+[A-Za-z0-9]{32})"
)
#: The second of two items is the value of the first if it has letters and digits and is not a short word. It
#: has spaces only as the value of a header: `Bearer …`, `theme=dark; sid=…`.
_PAIRED: Final = (
    r"(?=[^0-9]{0,200}[0-9])(?=[^A-Za-z]{0,200}[A-Za-z])"
    r"(?:\S{6,}|(?i:bearer|basic|token|api-?key|negotiate)\s{1,4}\S{6,}|(?i:digest)\s.{6,}"
    r"|[\w.-]{1,100}=[^\s;]{1,8192};.*)"
)


def is_literal(text: str) -> bool:
    """Return whether a text may be a credential itself: not a mask, a variable or a name of one."""
    text = text.strip()
    if re.fullmatch(_PLACEHOLDER, text):
        return False
    return not re.fullmatch(_VARIABLE, text) or named(text) is None


def is_random(text: str) -> bool:
    """Return whether a text looks random, as keys do: long, in one piece, not a word, not a path."""
    if len(text) < _RANDOM_LENGTH or text.startswith(_PATHS) or "://" in text:
        return False
    return text.isascii() and re.match(_RANDOM, text) is not None


def _is_credential(name: Named, value: Any) -> bool:
    """Return whether a value with such a name is a credential. Booleans and null never are."""
    if not isinstance(value, str):
        return name.numbers and isinstance(value, int | float) and not isinstance(value, bool)
    if name.loose and not is_random(value.strip()):
        return False
    if not name.paths and value.startswith(_PATHS):
        return False
    return is_literal(value)


# -- shapes -----------------------------------------------------------------------------------------

_SETS: Final = {
    "d": "0-9", "h": "0-9a-f", "H": "0-9A-F", "a": "0-9a-z", "A": "0-9A-Z", "l": "A-Za-z",
    "w": "A-Za-z0-9", "b": "A-Za-z0-9_-", "B": "A-Za-z0-9+/", "q": "A-Za-z0-9_~.-",
}  # fmt: skip

#: Most vendors now use a word and then random characters; a word in lower case, not the name of a hash.
_PREFIXED: Final = (
    r"(?<![_.-])(?!sha[0-9]|sk-)[a-z][a-z0-9]{1,15}(?:[_-][a-z0-9]{1,12}){0,3}[_-][A-Za-z0-9]{30,}+"
)
#: A text without such a run, which is at least this long, has no vendor's key.
_SHORTEST_KEY: Final = 20
_RUN: Final = r"[A-Za-z0-9_.~+/=$!:-]{20,}+"
#: An image or a file in base64: in enough of it, any short prefix occurs by chance.
_BLOB: Final = r"[A-Za-z0-9+/]{4096,}+={0,2}"
#: Where a key may begin: not inside a longer word.
_B: Final = r"(?<![A-Za-z0-9])"


def vendor_keys() -> list[str]:
    """Return the lines of the table of vendors' keys."""
    import pkgutil

    table = pkgutil.get_data("hansard.event", "vendor_keys.txt")
    assert table is not None  # it is part of the package
    return [line for line in table.decode().splitlines() if not line.startswith("#")]


@cache
def _keys() -> tuple[re.Pattern[str], tuple[str, ...]]:
    """Return one pattern for all vendors' keys, with a group for each shape, and the groups' names."""
    # By their first characters: of some hundred shapes, only a few are tried at a place.
    first: dict[str, list[tuple[str, str]]] = {}
    for entry in vendor_keys():
        name, _, shapes = entry.replace("%", "").partition(": ")
        for shape in shapes.split():
            first.setdefault(shape[0], []).append((name, shape[shape[0] != "<" :]))
    patterns, names = [], []
    for start in sorted(first, key=lambda start: start == "<"):
        shapes = "|".join(f"({_pattern(shape)})" for _, shape in first[start])
        patterns.append(shapes if start == "<" else f"{start}(?:{shapes})")
        names += [name for name, _ in first[start]]
    pattern = f"{_B}(?=[A-Za-z0-9])(?:{'|'.join(patterns)}|({_PREFIXED}))"
    return re.compile(pattern), (*names, "key")


def _pattern(shape: str) -> str:
    def piece(match: re.Match[str]) -> str:
        kind, length, more, literal = match.groups()
        if literal:
            return str(literal if literal[0] == "[" else re.escape(literal))
        return f"[{_SETS[kind]}]{{{length}{',}+' if more else '}'}"

    shape = shape.replace("<u>", "<h8>-<h4>-<h4>-<h4>-<h12>")
    pattern = re.sub(r"<(\w)([\d,]+)(\+?)>|(\[\w+\]|[^<[]+)", piece, shape)
    return pattern + ("" if shape.endswith("+>") else r"(?![A-Za-z0-9])")


def _is_prefixed(text: str) -> bool:
    """Return whether the end of a text with a prefix is random: capitals, small letters, digits."""
    random = re.split("[^A-Za-z0-9]", text)[-1]
    return all(re.search(kind, random) for kind in ("[A-Z]", "[a-z]", "[0-9][^0-9]+[0-9]"))


def _is_basic(text: str) -> bool:
    """Return whether it is a user and a password in base64, and not a word after "Basic"."""
    import binascii

    try:
        plain = binascii.a2b_base64(text + "=" * (-len(text) % 4), strict_mode=True)
    except binascii.Error:
        return False
    return b":" in plain and plain.isascii() and plain.decode().isprintable()


def _is_token(text: str) -> bool:
    return is_literal(text) and is_random(text)


def _is_header(text: str) -> bool:
    """Return whether it can be what follows `Authorization: Bearer`."""
    return is_literal(text) and not re.fullmatch(r"(?i)auth\w+|tokens?|scheme|header", text)


def _is_password(text: str) -> bool:
    """Return whether it can be the password of a URL: `https://user:password@host` is an example."""
    return is_literal(text) and not re.fullmatch(r"(?i).{0,3}|pass(?:wd|word)?", text)


def _is_userinfo(text: str) -> bool:
    """Return whether the part before the host of a web address holds a credential."""
    user, _, password = text.partition(":")
    return is_random(user) or (password != "" and _is_password(password))


#: Shapes that the text around them shows: what, hints in lower case of which the text contains one, a
#: function or a pattern that confirms a match, and a pattern. Its group `secret`, if any, is the credential.
SHAPES: Final[tuple[tuple[str, tuple[str, ...], Callable[[str], bool] | str, str], ...]] = (
    ("private key", ("private key",), r"[A-Za-z0-9+/=]{24}",
     (r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----"
     r"(?:(?s:(?!-----).){0,20000}+-----END [A-Z0-9 ]{0,60}-----"
     # Cut off: lines of base64 and what may be between them.
     r"|(?:(?:[\s\\\"'+,>|]|(?<=\\)[nrt]){0,40}[A-Za-z0-9+/=]{16,}+){0,2000}+"
     r"(?:(?:\s|\\[nrt]){0,4}[A-Za-z0-9+/=]{1,15}\Z)?)")),
    # Not the name of a style, such as `sk-folding-cube-container`.
    ("OpenAI key", ("sk-",), r"[A-Za-z0-9]{16}|(?=[A-Za-z]{0,7}[0-9])[A-Za-z0-9]{8}",
     _B + r"sk-(?!ecdsa|ssh)[A-Za-z0-9_-]{16,}"),
    # The id and, if it follows directly, the secret.
    ("AWS key", ("akia", "asia", "abia", "acca", "a3t"), "",
     _B + r"(?:AKIA|ASIA|ABIA|ACCA|A3T[A-Z0-9])[A-Z0-9]{16}(?![A-Za-z0-9])"
     r"(?:[^A-Za-z0-9/+]{1,10}(?:[A-Za-z_ -]{1,40}[^A-Za-z0-9/+]{1,10})?"
     r"[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=]))?"),
    ("webhook", ("hooks.slack.com/", "/api/webhooks/", "webhook.office.com/", "hooks.zapier.com/"), "",
     (r"(?:hooks\.slack\.com/[a-z]{5,12}|discord(?:app)?\.com/api/webhooks|webhook\.office\.com/webhookb2"
     r"|hooks\.zapier\.com/hooks/catch)/(?P<secret>[A-Za-z0-9/_@-]{12,})")),
    ("Google token", ("ya29.",), "", _B + r"ya29\.(?:[A-Za-z]\.){0,2}[A-Za-z0-9_-]{20,}"),
    ("Google token", ("1//0",), "", r"(?<![A-Za-z0-9/:])1//0[A-Za-z0-9_-]{30,}"),
    ("Azure key", ("accountkey=", "sharedaccesskey=", "sharedaccesssignature="), is_literal,
     r"(?i)(?:AccountKey|SharedAccessKey|SharedAccessSignature)=(?P<secret>[A-Za-z0-9+/%=&._-]{20,})"),
    ("signature", ("sig=", "x-amz-s"), "",
     r"(?i)[?&;](?:amp;)?(?:sig|X-Amz-Signature|X-Amz-Security-Token)=(?P<secret>[A-Za-z0-9%+/=_-]{30,})"),
    ("JWT", ("eyj",), "",
     (r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}+\.eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]*"
     r"|(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}+(?:\.[A-Za-z0-9_-]{4,}+){4}")),
    # A token is the user here as often as the password.
    ("userinfo", ("://",), _is_userinfo,
     _B + r"(?i:https?|wss?)://(?P<secret>[^\s/?#\"'<>\\]{1,1024})@(?=[^\s@/?#])"),
    # Elsewhere a user alone is not a secret: `ssh://git@…`. A password may hold an @. In addresses of
    # databases, it may also hold characters that should have been escaped.
    ("password", ("://",), _is_password,
     _B + r"[A-Za-z][A-Za-z0-9+.-]{1,30}://[^\s/?#@:\"'<>\\]{0,256}:"
     r"(?P<secret>[^\s/?#\"'<>\\]{1,1024})@(?=[^\s@/?#])"),
    ("password", ("://",), _is_password,
     _B + r"(?:postgres(?:ql)?|mysql|mariadb|mongodb|rediss?|amqps?|mssql|clickhouse|cockroachdb)"
     r"(?:\+[a-z0-9]{1,20})?://[^\s/?#@:\"'<>\\]{0,256}:(?!\d{1,5}/)"
     r"(?P<secret>[^\s@\"'<>\\]{1,1024})@(?=[^\s@/?#])"),
    ("authorization", ("authorization",), _is_header,
     (r"(?i)authorization[\\\"']{0,8}\s{0,8}[:=,]\s{0,8}[\\\"'`]{0,8}"
     r"(?:bearer|basic|token|apikey|api-key|digest|negotiate)\s{1,4}"
     r"(?P<secret>[^\s\"'`,;\\<>(){}\[\]]{6,})")),
    ("authorization", ("authorization",), _is_token,
     (r"(?i)authorization[\\\"']{0,8}\s{0,8}[:=]\s{0,8}[\\\"'`]{0,8}"
     r"(?P<secret>[^\s\"'`,;\\<>(){}\[\]]{8,}+)(?!\()")),
    ("token", ("bearer",), _is_token, _B + r"(?i:bearer)\s{1,4}(?P<secret>[A-Za-z0-9._~+/=-]{16,})"),
    ("authorization", ("basic",), _is_basic, _B + r"(?i:basic) (?P<secret>[A-Za-z0-9+/]{6,}={0,2})"),
    ("cookie", ("cookie",), is_literal,
     r"(?i)" + _B + r"(?:set-)?cookie[\\\"']{0,8}\s{0,4}:\s{0,4}[\\\"']{0,8}"
     r"(?P<secret>[A-Za-z0-9_.-]{1,100}=[^\r\n\"'\\]{1,8192})"),
    ("secret", ("</",), is_literal,
     (r"(?i)<[\w:.-]{0,40}(?:password|passwd|secret|api[_-]?key|access[_-]?token|private[_-]?key)>"
     r"(?P<secret>[^<]{1,1024})</")),
    # Not `docker run -u 1000:1000`.
    ("password", ("curl",), is_literal,
     (r"(?<=\s)(?:-u|--user)[ =]{0,2}[\"']?[^\s:\"'/]{1,256}:"
     r"(?P<secret>(?![0-9]{1,256}(?![^\s\"']))[^\s\"']{1,256})")),
)  # fmt: skip


def _by_shape(text: str, lower: str) -> Iterator[Found]:
    """Yield the credentials in a text by their shape; `lower` is the text in lower case."""
    for run in re.finditer(_RUN, text) if len(text) >= _SHORTEST_KEY else ():
        if re.fullmatch(_BLOB, run[0]):
            continue
        pattern, names = _keys()
        for match in pattern.finditer(text, *run.span()):
            index = match.lastindex or 0
            # Not `ghp_xxxxxxxxxxxx…`, and not the versions of LangGraph, which begin with many zeros.
            if len(set(match[0][-12:])) == 1 or match[0].startswith("0" * 12):
                continue
            if index < len(names) or _is_prefixed(match[0]):
                yield Found(*match.span(), names[index - 1])
    for what, hints, confirm, source in SHAPES:
        for match in re.finditer(source, text) if any(h in lower for h in hints) else ():
            group = "secret" if "secret" in match.re.groupindex else 0
            found = match[group]
            if confirm(found) if callable(confirm) else re.search(confirm, found):
                yield Found(*match.span(group), what)


# -- assignments ------------------------------------------------------------------------------------

#: A name and what separates it from its value: `"password": `, `--api-key=`, `self.secret = `, or
#: `"X-Api-Key", "` in a pair.
_ASSIGNED: Final = (
    r"(?<![A-Za-z0-9_.-])(?P<name>[A-Za-z0-9_.-]{3,100}+)"
    r"(?:(?P<between>\\{0,8}[\"'`]?\s{0,4}(?::=|=>|==?|:)\s{0,4})|(?P<gap>[ \t]{1,4})"
    r"|(?P<pair>\\{0,8}[\"']\s{0,4},\s{0,4}(?=\\{0,8}[\"'])))"
)
#: A text in quotes, which may be escaped, as in JSON inside JSON.
_QUOTED: Final = (
    r"(?s)(?P<quote>\"{3}|'{3})(?P<secret>.{1,8192}?)(?P=quote)"
    r"|\"(?P<double>(?:[^\"\\]|\\.){1,8192}+)\""
    r"|'(?P<single>(?:[^'\\]|\\.){1,8192}+)'"
    r"|`(?P<back>[^`]{1,8192}+)`"
    r"|(?P<escaped>\\{1,8}[\"'])(?P<inner>.{1,8192}?)(?P=escaped)"
)
#: This much of a value is enough to decide by; the rest of a longer one is taken with it.
_BARE: Final = r"(?P<secret>[^\s\"'`,;&<>(){}\[\]|\\]{1,256}+)(?P<call>[(\[{])?"
_OPEN: Final = r"\\{0,8}[\"'`](?P<secret>[^\s\"'`\\]{1,256}+)"
_MORE: Final = r"[^\s\"'`,;&<>(){}\[\]|\\]*+"
#: A line of an env file: nothing in its value has a meaning but the end of the line.
_ENV_VALUE: Final = r"(?P<secret>[^\s\"'`][^\s]{2,8191}+)[ \t]{0,20}(?:#[^\n]{0,1000})?(?=\r?\n|\Z)"
_NUMBER: Final = r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_IDENTIFIER: Final = r"[A-Za-z_]\w*(?:\.\w+)*"
#: An identifier that can be words: each part is a word, maybe with digits after it, or is short.
_WORD_LIKE: Final = r"(?:[A-Za-z]*[0-9]{0,3}|\w{0,12})(?:[_.](?:[A-Za-z]*[0-9]{0,3}|\w{0,12}))*"
#: What code writes in place of a value.
_CODE: Final = _words(
    "arg args body config ctx data default env event field form input kwargs opts options os "
    "param params payload process props pw req request self settings this token user val value values var"
)
#: `{"name": "DB_PASSWORD", "value": …}`: the members that hold a name, and those that hold its value.
_NAMING: Final = _words("name key header variable var env field param parameter")
_VALUES: Final = _words("value val secret content data text")
#: What separates the name from the value there, in JSON, YAML, HTML and code.
_VALUE_OF: Final = (
    r"[\\\"'`]{0,9}\s{0,4}[,;]?\s{0,40}[\\\"'`]{0,9}(?i:value|val)[\\\"'`]{0,9}\s{0,4}[:=]\s{0,4}"
)


def _by_name(text: str, lower: str, *, strict: bool = False) -> Iterator[Found]:
    """Yield what a text assigns to the name of a credential. `lower`: the text in lower case.

    `strict`: only as `name=value`, which no sentence contains by chance.
    """
    if not any(hint in lower for hint in _NAME_HINTS):
        return
    at = 0
    assigned = re.compile(_ASSIGNED)
    while (match := assigned.search(text, at)) is not None:
        # After the name, not after the value: "Note: password=…" has two names.
        at = match.end()
        between = match["between"]
        name = named(match["name"].strip("-."))
        if _closes(text, match):
            continue
        if name is None:
            found = None if strict or between is None else _value_of_name(text, match)
        elif (strict and between != "=") or (match["gap"] and not match["name"].startswith("--")):
            continue
        else:
            found = _env_value(text, match, name) if between == "=" else None
            found = found or _value(text, at, name, between, pair=match["pair"] is not None)
        if found is not None:
            yield found
            at = found.end


def _closes(text: str, match: re.Match[str]) -> bool:
    """Return whether the quote after a name ends the text that it is in: `prompt="Password: "`."""
    quote = text[match.start() - 1 : match.start()]
    if quote not in {'"', "'", "`"} or quote in text[match.end("name") : match.end()]:
        return False
    return text.startswith(quote, match.end())


def _value_of_name(text: str, match: re.Match[str]) -> Found | None:
    """Return the value that goes with the name of a credential: `name: DB_PASSWORD, value: …`."""
    if match["name"].strip("-.").lower() not in _NAMING:
        return None
    held = re.compile(r"\\{0,8}[\"'`]?(?P<name>[A-Za-z0-9_.-]{3,100}+)").match(text, match.end())
    name = held and named(held["name"])
    if not held or not name:
        return None
    value = re.compile(_VALUE_OF).match(text, held.end())
    # As in an env file: a name in a list of names and values is followed by a value.
    return _value(text, value.end(), name, "=", env=True) if value else None


def _env_value(text: str, match: re.Match[str], name: Named) -> Found | None:
    """Return a value in an env file: alone on its line with its name, in capitals or not."""
    start = text.rfind("\n", 0, match.start()) + 1
    before = text[max(start, match.start() - 20) : match.start()].strip()
    value = re.compile(_ENV_VALUE).match(text, match.end())
    if value is None or before not in {"", "export", "set", "-", "ENV", "ARG"}:
        return None
    secret = value["secret"]
    # Code looks like this too: `    password=self.password`, `password=ask()`.
    upper = re.fullmatch(r"[A-Z][A-Z0-9_]*", match["name"])
    if not upper and (text[start : start + 1].isspace() or re.search(r"[([{]", secret)):
        return None
    if not _is_credential(name, secret) or (re.fullmatch(_NUMBER, secret) and not name.numbers):
        return None
    return Found(*value.span("secret"), name.what)


def _value(
    text: str, at: int, name: Named, between: str | None, *, pair: bool = False, env: bool = False
) -> Found | None:
    """Return the value at a place, if it is a credential."""
    quoted = re.compile(_QUOTED).match(text, at)
    if quoted is not None:
        group = next(g for g in ("secret", "double", "single", "back", "inner") if quoted[g])
        value = quoted[group]
        # `API_KEY = "api_key"` and `("password", "token")` name credentials.
        good = named(value) is None and (not pair or re.fullmatch(_PAIRED, value))
        span = quoted.span(group)
        return Found(*span, name.what) if good and _is_credential(name, value) else None
    # A text that was cut off has no second quote.
    bare = re.compile(_OPEN).match(text, at)
    if bare is None:
        bare = re.compile(_BARE).match(text, at)
        if bare is None or not (
            env or (not bare["call"] and _is_bare(bare["secret"], name, between))
        ):
            return None
    if pair or not _is_credential(name, bare["secret"]):
        return None
    more = re.compile(_MORE).match(text, bare.end("secret"))
    return Found(bare.start("secret"), more.end() if more else bare.end("secret"), name.what)


def _is_bare(value: str, name: Named, between: str | None) -> bool:
    """Return whether a value without quotes is meant literally: not a variable, a type or a word."""
    if len(value) < 4:  # noqa: PLR2004 - punctuation, "Password: 12 characters"
        return False
    if re.fullmatch(_NUMBER, value):
        return name.numbers
    identifier, words = re.fullmatch(_IDENTIFIER, value), re.fullmatch(_WORD_LIKE, value)
    variable = "_" in value or "." in value or any(hint in value.lower() for hint in _NAME_HINTS)
    if between == "=":
        # Env files, queries and connection strings; and the keyword arguments of a call.
        first = value.lower().replace(".", "_").split("_")[0]
        return not (identifier and words and (variable or first in _CODE))
    if between is not None and "=" in between and identifier and variable:
        return not words
    # Types and variables: `key: ed25519.PrivateKey`, `{"token": session_token2}`.
    quoted = between is not None and between[0] in "\"'"
    if identifier and (re.search(r"\.[A-Z]\w*\Z", value) or (quoted and words)):
        return False
    # `password: correct` is prose, `password: hunter2` is not.
    return not re.sub("[-_.]", "", value.strip(".!?:")).isalpha()


# -- values of JSON ---------------------------------------------------------------------------------

#: Under the name of a credential, these say which one it is, and not what it is.
_HARMLESS: Final = _words(
    "type kind source name user username email provider scheme scope scopes method description title env "
    "variable path domain id expires expires_at created created_at updated updated_at version"
)
_SCHEMA_TYPES: Final = ("string", "number", "integer", "boolean", "object", "array", "null")
_SCHEMA_KEYS: Final = frozenset({"$ref", "anyOf", "oneOf", "allOf", "enum"})


def _names_in_dict(value: dict[str, Any], name: Named | None) -> Iterator[Named | None]:
    """Yield the name that counts for each item of an object that has a name."""
    holder = next((value[key] for key in value if key.lower() in _NAMING), None)
    for_value = named(holder) if isinstance(holder, str) else None
    kind = value.get("type")
    schema = isinstance(kind, list) or kind in _SCHEMA_TYPES or not _SCHEMA_KEYS.isdisjoint(value)
    # `credentials: {"value": …}`, but not the schema of a tool's argument of that name.
    inherited = None if schema else name
    for key in value:
        lower = key.lower()
        other = None if lower in _HARMLESS else inherited
        yield named(key) or (for_value if lower in _VALUES else None) or other


def _names_in_list(
    value: list[Any] | tuple[Any, ...], name: Named | None
) -> Iterator[Named | None]:
    """Yield the name that counts for each item: that of the list, or that of the item before it."""
    before: Any = None
    for item in value:
        pair = isinstance(before, str) and (len(value) == 2 or before.startswith("--"))  # noqa: PLR2004
        valued = pair and isinstance(item, str) and re.fullmatch(_PAIRED, item) and not named(item)
        own = named(before.strip("-:")) if valued else None
        yield own or name
        before = item


def read_json(text: str) -> dict[str, Any] | list[Any] | str | None:
    """Return the JSON value that a text is, if it can contain something; None if it is not JSON."""
    if text.lstrip()[:1] not in {"{", "[", '"'}:
        return None
    try:
        value = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return value if isinstance(value, dict | list | str) else None


class _Search:
    """One search of a JSON value; `strict` as in `_by_name`.

    Attributes:
        found: place and kind of each credential.
    """

    def __init__(self, *, strict: bool = False) -> None:
        self._strict = strict
        self.found: list[tuple[str, str]] = []

    def value(self, value: Any, place: str, name: Named | None = None, texts: int = 0) -> Any:
        """Return a value with a mark for each credential; the value itself if it has none.

        `name` is the name that counts for it, `texts` the number of strings around it.
        """
        before = len(self.found)
        done: Any = value
        if isinstance(value, dict):
            done = {}
            for key, below in zip(value, _names_in_dict(value, name), strict=True):
                keys = _Search()
                shown = keys.text(key, "", texts)
                inside = f"{place}[{shown!r:.60}]"
                self.found += [(inside, "in the key itself") for _ in keys.found]
                shown = unused(shown, value, done) if keys.found else shown
                done[shown] = self.value(value[key], inside, below, texts)
        elif isinstance(value, list | tuple):
            names = enumerate(_names_in_list(value, name))
            done = [self.value(value[n], f"{place}[{n}]", below, texts) for n, below in names]
        elif name is not None and _is_credential(name, value):
            self.found.append((place, name.what))
            done = _mark(name.what)
        elif isinstance(value, str):
            done = self.text(value, place, texts)
        return done if len(self.found) > before else value

    def text(self, text: str, place: str, texts: int = 0) -> str:
        """Do as `value` does with one text."""
        for _ in range(_ROUNDS if len(text) >= _SHORTEST else 0):
            before = len(self.found)
            # JSON can name one key twice: its text is searched too.
            inner = read_json(text) if texts < _DEEPEST_TEXT else None
            if inner is not None:
                try:
                    inner = self.value(inner, place, None, texts + 1)
                except RecursionError:
                    if self._strict:
                        raise
                    del self.found[before:]  # deeper than any stored data: search it as text
                if len(self.found) > before:
                    text = msgspec.json.encode(inner).decode()
            spans = find(text, strict=self._strict)
            text = _replace(text, spans)
            self.found += [(place, span.what) for span in spans]
            if self._strict or len(self.found) == before:
                break
        return text


def find(text: str, *, strict: bool = False) -> list[Found]:
    """Return the credentials in a text in order; those that overlap become one."""
    spans: list[Found] = []
    lower = text.lower()
    # Sorting is stable: of two that begin at one place, the shape gives the name.
    every = (*_by_shape(text, lower), *_by_name(text, lower, strict=strict))
    for found in sorted(every, key=lambda found: found.start):
        if text.startswith(_REDACTED, found.start):
            continue
        if spans and found.start < spans[-1].end:
            spans[-1] = spans[-1]._replace(end=max(spans[-1].end, found.end))
        else:
            spans.append(found)
    return spans


def _replace(text: str, spans: list[Found]) -> str:
    pieces = []
    after = 0
    for start, end, what in spans:
        pieces += [text[after:start], _mark(what)]
        after = end
    return "".join([*pieces, text[after:]])


def _mark(what: str) -> str:
    return f"{_REDACTED}{what}]"


def unused(key: str, *taken: dict[str, Any]) -> str:
    """Return a key that is not taken, in place of another."""
    number, free = 1, key
    while any(free in some for some in taken):
        number += 1
        free = f"{key} ({number})"
    return free


def refuse(data: dict[str, Any], what: str) -> None:
    """Raise `SecretRefused` if JSON holds a credential; `what` names the JSON in the error.

    The data must have passed `codec.encode`, which bounds their depth.
    """
    search = _Search(strict=True)
    try:
        search.value(data, what)
    except RecursionError:
        # Not the data, but JSON in a string in them, and in a string in that.
        raise InvalidEvent(f"{what}: nested too deep to search for credentials") from None
    if search.found:
        place, kind = search.found[0]
        raise SecretRefused(
            f"{place}: looks like a credential ({kind}); nothing was stored. Store a name: "
            "'env:OPENAI_API_KEY'",
            place=place,
        )


def redact(value: Any) -> tuple[Any, int]:
    """Return a JSON value with `[redacted: …]` for each credential, and how many there were.

    The value itself is not changed, and is returned if there were none.
    """
    search = _Search()
    try:
        done = search.value(value, "")
    except RecursionError:
        # Stored data are never so deep. What cannot be searched must not be shown.
        raise InvalidEvent("nested too deep to search for credentials; nothing was shown") from None
    return done, len(search.found)
