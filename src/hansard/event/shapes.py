"""Find credentials in a text: by their own shape, or by the name that the text assigns them to.

Above: `secrets`.  Below: `credentials`.
A shape such as `ghp_…` makes a text a credential wherever it stands; `password = "…"` makes one of what
follows. The shapes are those that the vendors' keys have; the rest err on the side of finding, but for what
code and prose are full of: `password: str`, `api_key = settings.api_key`, "Password: at least 8 characters".

No pattern may be made slow by a hostile text. A quantifier is bounded, or it is the last, or possessive, over
characters among which the pattern cannot begin anew; and a pattern is tried only on a text that holds one of
its hints.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from hansard.event.credentials import (
    NAME_HINTS,
    Named,
    compiled,
    holds,
    is_made,
    is_placeholder,
    named,
    words,
)


class Found(NamedTuple):
    """A credential in a text."""

    start: int
    end: int
    what: str


class Shape(NamedTuple):
    """How credentials of one kind are written."""

    what: str
    #: Lower case; one of them is in every text that holds such a credential.
    hints: tuple[str, ...]
    #: The group `secret`, if there is one, is the credential; what stands around it may stay.
    pattern: str
    #: Has the last word on what the pattern has found.
    confirm: Callable[[str], bool] | None = None


def _is_openai(text: str) -> bool:
    """Say whether it is a key and not the name of a style: `sk-folding-cube-container` is one."""
    return (
        compiled(r"[A-Za-z0-9]{16}|(?=[A-Za-z]{0,7}[0-9])[A-Za-z0-9]{8}").search(text) is not None
    )


def _is_pem(text: str) -> bool:
    return compiled(r"[A-Za-z0-9+/=]{24}").search(text) is not None


def _is_basic(text: str) -> bool:
    """Say whether it is a user and a password in base64, and not a word after "Basic"."""
    import binascii

    try:
        plain = binascii.a2b_base64(text + "=" * (-len(text) % 4), strict_mode=True)
    except binascii.Error:
        return False
    return b":" in plain and plain.isascii() and plain.decode().isprintable()


def _is_token(text: str) -> bool:
    return not is_placeholder(text) and is_made(text)


def _is_header(text: str) -> bool:
    """Say whether it can be what follows `Authorization: Bearer`."""
    return not is_placeholder(text) and not compiled(
        "(?i)auth\\w+|tokens?|scheme|header"
    ).fullmatch(text)


def _is_literal(text: str) -> bool:
    return not is_placeholder(text)


def _is_userinfo(text: str) -> bool:
    """Say whether it is what stands before the host of a web address and is nobody's business."""
    user, _, password = text.partition(":")
    return is_made(user) or not is_placeholder(password or user)


#: Where a key may begin: not inside of a longer word.
_B: Final = r"(?<![A-Za-z0-9])"

#: The more special come first: of two that begin at one place, the first gives the name.
SHAPES: Final = (
    Shape(
        "private key",
        ("private key",),
        r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----"
        r"(?:(?s:(?!-----).){0,20000}+-----END [A-Z0-9 ]{0,60}-----"
        # Cut off: lines of base64 and what may stand between them.
        r"|(?:(?:[\s\\\"'+,>|]|(?<=\\)[nrt]){0,40}[A-Za-z0-9+/=]{16,}+){0,2000}+"
        r"(?:(?:\s|\\[nrt]){0,4}[A-Za-z0-9+/=]{1,15}\Z)?)",
        _is_pem,
    ),
    Shape("Anthropic key", ("sk-ant-",), _B + r"sk-ant-[A-Za-z0-9_-]{16,}"),
    Shape("OpenAI key", ("sk-",), _B + r"sk-[A-Za-z0-9_-]{16,}", _is_openai),
    Shape(
        # The id and, if it stands right behind, the secret.
        "AWS key",
        ("akia", "asia", "abia", "acca", "a3t"),
        _B + r"(?:AKIA|ASIA|ABIA|ACCA|A3T[A-Z0-9])[A-Z0-9]{16}(?![A-Za-z0-9])"
        r"(?:[^A-Za-z0-9/+]{1,10}(?:[A-Za-z_ -]{1,40}[^A-Za-z0-9/+]{1,10})?"
        r"[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=]))?",
    ),
    Shape(
        "GitHub token",
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
        _B + r"(?:gh[pousr]_(?:[0-9]{1,20}_eyJ[A-Za-z0-9_.-]{30,}|[A-Za-z0-9_]{30,})"
        r"|github_pat_[A-Za-z0-9_]{22,})",
    ),
    Shape(
        "GitLab token",
        ("gl",),
        _B + r"gl(?:pat|oas|dt|rt|rtr|cbt|ptt|ft|imt|agent|soat|ffct)-[A-Za-z0-9_-]{20,}+"
        r"(?:\.[0-9a-z]{2}\.[0-9a-z]{7,12})?",
    ),
    Shape(
        "Slack token",
        ("xox", "xapp-", "xwfp-"),
        _B + r"(?:(?:xoxe\.)?xox[abeprs]-[A-Za-z0-9-]{10,}|x(?:app|wfp)-[0-9][A-Za-z0-9-]{16,})",
    ),
    Shape(
        "webhook",
        ("hooks.slack.com/", "/api/webhooks/", "webhook.office.com/"),
        r"(?:hooks\.slack\.com/[a-z]{5,12}|discord(?:app)?\.com/api/webhooks"
        r"|webhook\.office\.com/webhookb2)/(?P<secret>[A-Za-z0-9/_@-]{20,})",
    ),
    Shape("Google key", ("aiza",), _B + r"AIza[A-Za-z0-9_-]{35,}"),
    Shape("Google key", ("aq.ab",), _B + r"AQ\.Ab[A-Za-z0-9_-]{20,}"),
    Shape("Google token", ("ya29.",), _B + r"ya29\.(?:[A-Za-z]\.){0,2}[A-Za-z0-9_-]{20,}"),
    Shape("Google token", ("1//0",), r"(?<![A-Za-z0-9/:])1//0[A-Za-z0-9_-]{30,}"),
    Shape("Google secret", ("gocspx-",), _B + r"GOCSPX-[A-Za-z0-9_-]{20,}"),
    Shape(
        "Stripe key",
        ("_live_", "_test_", "whsec_"),
        _B + r"(?:[sr]k_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9+/=]{24,})",
    ),
    Shape("Twilio key", ("sk",), _B + r"SK[0-9a-f]{32}(?![A-Za-z0-9])"),
    Shape(
        "SendGrid key",
        ("sg.",),
        _B + r"SG\.[A-Za-z0-9_-]{16,64}+\.[A-Za-z0-9_-]{16,}",
    ),
    Shape("npm token", ("npm_",), _B + r"npm_[A-Za-z0-9]{36,}"),
    # In pieces: the name alone looks like a host that packages come from.
    Shape("PyPI token", ("py" + "pi-a",), _B + r"pyp[i]-A[A-Za-z0-9_-]{40,}"),
    Shape("Hugging Face token", ("hf_", "api_org_"), _B + r"(?:hf|api_org)_[A-Za-z0-9]{30,}"),
    Shape("Groq key", ("gsk_",), _B + r"gsk_[A-Za-z0-9]{40,}"),
    Shape("xAI key", ("xai-",), _B + r"xai-[A-Za-z0-9]{40,}"),
    Shape("Replicate token", ("r8_",), _B + r"r8_[A-Za-z0-9]{36,}"),
    Shape("Perplexity key", ("pplx-",), _B + r"pplx-[A-Za-z0-9]{32,}"),
    Shape("DigitalOcean token", ("_v1_",), _B + r"do[opr]_v1_[0-9a-f]{64}"),
    Shape("Databricks token", ("dapi",), _B + r"dapi[0-9a-f]{32}(?![A-Za-z0-9])"),
    Shape("Telegram token", (":a",), r"(?<![0-9])[0-9]{8,10}:A[A-Za-z0-9_-]{34}(?![A-Za-z0-9_-])"),
    Shape(
        "Discord token",
        (".",),
        r"(?<![A-Za-z0-9_.-])[MNO][DTjz][A-Za-z0-9_-]{22,26}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,40}"
        r"(?![A-Za-z0-9_.-])",
    ),
    Shape(
        "Azure key",
        ("accountkey=", "sharedaccesskey=", "sharedaccesssignature="),
        r"(?i)(?:AccountKey|SharedAccessKey|SharedAccessSignature)=(?P<secret>[A-Za-z0-9+/%=&._-]{20,})",
        _is_literal,
    ),
    Shape(
        "Azure secret",
        ("q~",),
        _B + r"[A-Za-z0-9_~.]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,34}(?![A-Za-z0-9])",
    ),
    Shape(
        "signature",
        ("sig=", "x-amz-s"),
        r"(?i)[?&;](?:amp;)?(?:sig|X-Amz-Signature|X-Amz-Security-Token)=(?P<secret>[A-Za-z0-9%+/=_-]{30,})",
    ),
    Shape(
        "JWT",
        ("eyj",),
        r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}+\.eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]*"
        r"|(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}+(?:\.[A-Za-z0-9_-]{4,}+){4}",
    ),
    # A token stands here as a user as often as a password does.
    Shape(
        "userinfo",
        ("://",),
        _B + r"(?i:https?|wss?)://(?P<secret>[^\s/?#\"'<>\\]{1,1024})@(?=[^\s@/?#])",
        _is_userinfo,
    ),
    # Elsewhere a user alone is no secret: `ssh://git@…`. A password may hold an @; what it may not
    # hold unescaped, and often does, is let pass for databases.
    Shape(
        "password",
        ("://",),
        _B + r"[A-Za-z][A-Za-z0-9+.-]{1,30}://[^\s/?#@:\"'<>\\]{0,256}:"
        r"(?P<secret>[^\s/?#\"'<>\\]{1,1024})@(?=[^\s@/?#])",
        _is_literal,
    ),
    Shape(
        "password",
        ("://",),
        _B
        + r"(?:postgres(?:ql)?|mysql|mariadb|mongodb|rediss?|amqps?|mssql|clickhouse|cockroachdb)"
        r"(?:\+[a-z0-9]{1,20})?://[^\s/?#@:\"'<>\\]{0,256}:(?!\d{1,5}/)"
        r"(?P<secret>[^\s@\"'<>\\]{1,1024})@(?=[^\s@/?#])",
        _is_literal,
    ),
    Shape(
        "authorization",
        ("authorization",),
        r"(?i)authorization[\\\"']{0,8}\s{0,8}[:=,]\s{0,8}[\\\"'`]{0,8}"
        r"(?:bearer|basic|token|apikey|api-key|digest|negotiate)\s{1,4}"
        r"(?P<secret>[^\s\"'`,;\\<>(){}\[\]]{6,})",
        _is_header,
    ),
    Shape(
        "authorization",
        ("authorization",),
        r"(?i)authorization[\\\"']{0,8}\s{0,8}[:=]\s{0,8}[\\\"'`]{0,8}"
        r"(?P<secret>[^\s\"'`,;\\<>(){}\[\]]{8,})",
        _is_token,
    ),
    Shape(
        "token",
        ("bearer",),
        _B + r"(?i:bearer)\s{1,4}(?P<secret>[A-Za-z0-9._~+/=-]{16,})",
        _is_token,
    ),
    Shape(
        "authorization",
        ("basic",),
        _B + r"(?i:basic) (?P<secret>[A-Za-z0-9+/]{6,}={0,2})",
        _is_basic,
    ),
    Shape(
        "cookie",
        ("cookie",),
        r"(?i)" + _B + r"(?:set-)?cookie[\\\"']{0,8}\s{0,4}:\s{0,4}[\\\"']{0,8}"
        r"(?P<secret>[A-Za-z0-9_.-]{1,100}=[^\r\n\"'\\]{1,8192})",
    ),
    Shape(
        "secret",
        ("</",),
        r"(?i)<[\w:.-]{0,40}(?:password|passwd|secret|api[_-]?key|access[_-]?token|private[_-]?key)>"
        r"(?P<secret>[^<]{1,1024})</",
        _is_literal,
    ),
    Shape(
        "password",
        ("curl",),
        r"(?<=\s)(?:-u|--user)[ =]{0,2}[\"']?[^\s:\"'/]{1,256}:(?P<secret>[^\s\"']{1,256})",
        lambda text: _is_literal(text) and not text.isdigit(),
    ),
)


def by_shape(text: str) -> Iterator[Found]:
    """Yield the credentials that a text holds by their shape, kind by kind."""
    lower = text.lower()
    for shape in SHAPES:
        if not any(hint in lower for hint in shape.hints):
            continue
        for match in compiled(shape.pattern).finditer(text):
            group = "secret" if "secret" in match.re.groupindex else 0
            if shape.confirm is None or shape.confirm(match[group]):
                yield Found(*match.span(group), shape.what)


# -- assignments ------------------------------------------------------------------------------------

#: A name and what stands between it and its value: `"password": `, `--api-key=`, `self.secret = `.
_NAMED: Final = (
    r"(?<![A-Za-z0-9_.-])(?P<name>[A-Za-z0-9_.-]{3,100}+)"
    r"(?:(?P<between>\\{0,8}[\"'`]?\s{0,4}(?::=|=>|==?|:)\s{0,4})|(?P<gap>[ \t]{1,4}))"
)
#: A text in quotes, which may themselves be escaped, as in JSON inside of JSON.
_QUOTED: Final = (
    r"(?s)(?P<quote>\"{3}|'{3})(?P<secret>.{1,8192}?)(?P=quote)"
    r"|\"(?P<double>(?:[^\"\\]|\\.){1,8192}+)\""
    r"|'(?P<single>(?:[^'\\]|\\.){1,8192}+)'"
    r"|`(?P<back>[^`]{1,8192}+)`"
    r"|(?P<escaped>\\{1,8}[\"'])(?P<inner>.{1,8192}?)(?P=escaped)"
)
#: So much of a value is enough to decide by; a longer one goes on as long as its characters do.
_BARE: Final = r"(?P<secret>[^\s\"'`,;&<>(){}\[\]|\\]{1,256}+)(?P<call>[(\[{])?"
_OPEN: Final = r"\\{0,8}[\"'`](?P<secret>[^\s\"'`\\]{1,256}+)"
_MORE: Final = r"[^\s\"'`,;&<>(){}\[\]|\\]*+"
_NUMBER: Final = r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_IDENTIFIER: Final = r"[A-Za-z_]\w*(?:\.\w+)*"
#: What code says in the place of a value.
_CODE: Final = words(
    "arg args body config ctx data default env event field form input kwargs opts options os "
    "param params payload process props pw req request self settings this token user val value values var"
)


def by_name(text: str, *, strict: bool = False) -> Iterator[Found]:
    """Yield what a text assigns to the name of a credential.

    `strict`: only as `name=value`, which no sentence says by chance.
    """
    lower = text.lower()
    if not any(hint in lower for hint in NAME_HINTS):
        return
    search = compiled(_NAMED).search
    at = 0
    while (match := search(text, at)) is not None:
        # Behind the name, not behind the value: "Note: password=…" has two names.
        at = match.end()
        what = named(match["name"].strip("-."))
        between = match["between"]
        if what is None or (strict and between != "="):
            continue
        if between is None and not match["name"].startswith("--"):
            continue
        found = _value(text, at, what, between)
        if found is not None:
            yield Found(*found, what.what)
            at = found[1]


def _value(text: str, at: int, name: Named, between: str | None) -> tuple[int, int] | None:
    """Return where the value stands that begins at a place, if it is a credential."""
    quoted = compiled(_QUOTED).match(text, at)
    if quoted is not None:
        group = next(g for g in ("secret", "double", "single", "back", "inner") if quoted[g])
        return quoted.span(group) if holds(name, quoted[group]) else None
    # A text that was cut off has no second quote.
    bare = compiled(_OPEN).match(text, at)
    if bare is None:
        bare = compiled(_BARE).match(text, at)
        if bare is None or bare["call"] or not _is_bare(bare["secret"], name, between):
            return None
    if not holds(name, bare["secret"]):
        return None
    more = compiled(_MORE).match(text, bare.end("secret"))
    return bare.start("secret"), more.end() if more else bare.end("secret")


def _is_bare(value: str, name: Named, between: str | None) -> bool:
    """Say whether a value without quotes is meant as it stands, and is no variable, type or word."""
    if compiled(_NUMBER).fullmatch(value):
        return name.numbers and len(value) > 3  # noqa: PLR2004 - "Password: 12 characters"
    if len(value) < 3:  # noqa: PLR2004 - less is punctuation
        return False
    identifier = compiled(_IDENTIFIER).fullmatch(value) is not None
    if between == "=":
        # So say .env files, queries and connection strings; and the keywords of a call.
        first = value.lower().replace(".", "_").split("_")[0]
        return not identifier or (first not in _CODE and not _is_variable(value))
    if between is not None and "=" in between and identifier and _is_variable(value):
        return False
    # `password: correct` is prose or a type, `password: hunter2` is not.
    return not value.strip(".!?:").replace("-", "").replace("_", "").replace(".", "").isalpha()


def _is_variable(value: str) -> bool:
    return "_" in value or "." in value or any(hint in value.lower() for hint in NAME_HINTS)
