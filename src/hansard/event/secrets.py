"""Find credentials: refuse them in metadata, and redact them in what is shared.

Metadata and settings are configuration: a credential in them is a mistake, and `refuse` raises. Messages are
stored unchanged; `redact` returns a copy for other people. Neither is on the path of a message into the log.

A credential is known by the name that it is assigned to (`api_key`), or by its shape (`ghp_…`). Vendors
publish the shapes of their keys; `_KEYS` lists them. What code and prose are full of must not be
found: `password: str`, `max_tokens`, `api_key = settings.api_key`, "Password: at least 8 characters".
docs/decisions/0026-secrets.md has the measurements. A password that is a word in a sentence is not found.

No pattern may take more than linear time on a hostile text. A quantifier is bounded, or it is the last, or it
is possessive over characters among which the pattern cannot start again. Patterns are compiled on first use.
"""

import re
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from hansard.errors import InvalidEvent, SecretRefused

#: JSON inside a string inside JSON …; deeper levels are searched as text.
_DEEPEST_TEXT: Final = 8
_REDACTED: Final = "[redacted: "
#: `pwd=abc`: no shorter text holds a credential.
_SHORTEST: Final = 7
#: Redacting one credential can uncover the next; far fewer rounds than this are needed.
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


class Shape(NamedTuple):
    """How credentials of one kind are written."""

    what: str
    #: Lower case; every text with such a credential contains one of them.
    hints: tuple[str, ...]
    #: The group `secret`, if there is one, is the credential; the rest of the match stays.
    pattern: str
    #: Has the last word on what the pattern has found.
    confirm: Callable[[str], bool] | None = None


@cache
def compiled(source: str) -> re.Pattern[str]:
    """Return a pattern, compiled on first use."""
    return re.compile(source)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# -- names ------------------------------------------------------------------------------------------

_PARTS: Final = r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[^A-Za-z0-9]+"
_LONGEST_NAME: Final = 100

#: Every name of a credential contains one of these.
_NAME_HINTS: Final = (
    *("pass", "pwd", "secret", "key", "token", "authoriz", "bearer", "cookie", "cred"),
    *("_pw", "_pat", "_auth"),
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
_VENDORS: Final = _words(
    "openai anthropic claude azure google gemini vertex aws bedrock groq mistral cohere openrouter "
    "deepseek perplexity together fireworks replicate xai huggingface hf github gh gitlab slack "
    "discord telegram stripe twilio sendgrid mailgun pinecone tavily serper langsmith langfuse npm "
    "pypi cloudflare datadog sentry supabase vercel netlify notion airtable"
)
_STRONG_KEYS: Final = _words("api apikey secret private auth")
_LOOSE_KEYS: Final = _VENDORS | _words(
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
    """Return the kind of credential that a name means, in any case; None if none."""
    lower = name.lower()
    known = any(hint in lower for hint in _NAME_HINTS) and _REDACTED not in lower
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
        return _key(parts, before, upper=name.isupper())
    if last in {"token", "tokens"}:
        return _token(before, plural=last == "tokens")
    if last in {"pass", "pw"} and before in _ACCOUNTS:
        last = "password"
    if last in {"pat", "auth"} and (name.isupper() or name == "_auth"):
        return Named("token", loose=True)
    return _WHOLE.get("".join(parts)) or next(
        (meant for ending, meant in _ENDINGS.items() if last.endswith(ending)), None
    )


def _key(parts: list[str], before: str, *, upper: bool) -> Named | None:
    if before == "private":
        return Named("private key")
    if before in _STRONG_KEYS or before.endswith("api"):
        return Named("API key", numbers=True)
    if before == "access":
        return Named("access key", loose="secret" not in parts)
    loose = before in _LOOSE_KEYS or (upper and before and before not in _OTHER_KEYS)
    return Named("key", loose=True) if loose else None


def _token(before: str, *, plural: bool) -> Named | None:
    if before in _STRONG_TOKENS:
        return Named("token")
    # A list of tokens is the output of a tokenizer.
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
_MADE: Final = 16
#: In one piece; letters and digits, or a long run of either.
_MADE_TEXT: Final = (
    r"(?![^\s\"'<>(){}]*+[\s\"'<>(){}])"
    r"(?:[^A-Za-z]*+[A-Za-z][^0-9]*+[0-9]|[^0-9]*+[0-9][^A-Za-z]*+[A-Za-z]"
    r"|(?:[^A-Za-z0-9]*+[A-Za-z0-9]{1,31}(?![A-Za-z0-9]))*+[^A-Za-z0-9]*+[A-Za-z0-9]{32})"
)
#: An item of a pair is taken for a value if it has letters and digits and is not just a short word.
_PAIRED: Final = r"(?=[^0-9]{0,200}[0-9])(?=[^A-Za-z]{0,200}[A-Za-z])[^\s]{6,}"


def is_placeholder(text: str) -> bool:
    """Return whether a text is not a credential itself: a mask, a variable, the name of one."""
    text = text.strip()
    if compiled(_PLACEHOLDER).fullmatch(text):
        return True
    return compiled(_VARIABLE).fullmatch(text) is not None and named(text) is not None


def is_made(text: str) -> bool:
    """Return whether a text looks random, as keys do: long, in one piece, not a word, not a path."""
    if len(text) < _MADE or text.startswith(_PATHS) or "://" in text:
        return False
    return text.isascii() and compiled(_MADE_TEXT).match(text) is not None


def holds(name: Named, value: Any) -> bool:
    """Return whether a value with such a name is a credential. Booleans and null never are."""
    if not isinstance(value, str):
        return name.numbers and isinstance(value, int | float) and not isinstance(value, bool)
    if (name.loose and not is_made(value.strip())) or (not name.paths and value.startswith(_PATHS)):
        return False
    if name.what == "cookie" and "=" in value and not _is_cookie(value):
        return False
    return not is_placeholder(value)


def _is_paired(value: Any) -> bool:
    """Return whether the second of two items is the value of the first, not the next of two names."""
    return isinstance(value, str) and compiled(_PAIRED).fullmatch(value) is not None


# -- shapes -----------------------------------------------------------------------------------------

_SETS: Final = {
    "d": "0-9", "h": "0-9a-f", "H": "0-9A-F", "a": "0-9a-z", "A": "0-9A-Z", "l": "A-Za-z",
    "w": "A-Za-z0-9", "b": "A-Za-z0-9_-", "B": "A-Za-z0-9+/", "q": "A-Za-z0-9_~.-",
}  # fmt: skip

#: The shapes of vendors' keys, as they publish them: `<w36>` is 36 of a set, `<w36+>` as many or more,
#: `<w22,26>` 22 to 26, `<u>` a UUID, `[bp]` either character. Special ones come first: of two at one place,
#: the first gives the name. What is unbounded before the end must not contain the next character.
_KEYS: Final = """
Anthropic key: sk-ant-<b16+>; GitLab token: glpat-<b20+>.<a2>.<a7+> glpat-<b20+> gldt-<b20+> glrt-<b20+>
glrtr-<b20+> gloas-<b20+> glcbt-<b20+> glptt-<b20+> glft-<b20+> glimt-<b20+> glagent-<b20+> glsoat-<b20+>
glffct-<b20+>; Slack token: xoxe.xox[bp]-<b10+> xox[abeprs]-<b10+> xapp-<d1>-<b16+> xwfp-<d1>-<b16+>; GitHub
token: ghs_<d1+>_eyJ<q30+> gh[pousr]_<w30+> github_pat_<w22+>_<w20+> github_pat_<w22+>; Google key:
AIza<b35+> AQ.Ab<b20+>; Google secret: GOCSPX-<b20+>; Stripe key: sk_live_<w16+> sk_test_<w16+>
rk_live_<w16+> rk_test_<w16+> whsec_<B24+>; Twilio key: SK<h32>; SendGrid key: SG.<b16+>.<b16+>; npm token:
npm_<w36+>; PyPI token: pyp%i-A<b40+>; Hugging Face token: hf_<w30+> api_org_<w30+>; Groq key: gsk_<w40+>;
xAI key: xai-<w40+>; Replicate token: r8_<w36+>; Perplexity key: pplx-<w32+>; DigitalOcean token:
do[opr]_v1_<h64+>; Databricks token: dapi<h32>; Discord token: M[DTjz]<b22,26>.<b6>.<b27,40>
N[DTjz]<b22,26>.<b6>.<b27,40> O[DT]<b22,26>.<b6>.<b27,40>; Azure secret: <q3><d1>Q~<q31,34> <w76>AZDO<w4>;
Alibaba key: LTAI<w17+>; AWS key: ABSK<B100+>; Tencent key: AKID<w32+>; Yandex key: AQVN<b35+>; Scaleway
key: SCW<A17>; Vault token: hv[sbr].<b24+>; Terraform token: <w14>.atlasv1.<b60+>; Pulumi token: pul-<h40>;
Doppler token: dp.st.<b2+>.<w40+> dp.pt.<w40+> dp.ct.<w40+> dp.sa.<w40+> dp.scim.<w40+> dp.audit.<w40+>;
Infisical token: st.<h24>.<h32>.<h32>; 1Password token: ops_eyJ<b100+> A3-<A6>-<A6>-<A5>-<A5>-<A5>-<A5>; age
key: AGE-SECRET-KEY-1<A58>; Grafana token: glsa_<w32>_<h8> eyJrIjoi<w60+>; New Relic key: NRAK-<A27>
NRII-<b32> <h36>NRAL; Sentry token: sntrys_<w40+>_<w30+> sntrys_<w40+> sntryu_<h64>; Dynatrace token:
dt0c01.<A24>.<A64>; Honeycomb key: hcaik_<a50+> hcaic_<a50+> hcxik_<a50+>; Sonar token: sq[pua]_<h40>;
LaunchDarkly key: sdk-<u> api-<u> mob-<u>; Axiom token: xaat-<u> xapt-<u>; Atlassian token:
AT[AC]TT3xFfG<b100+>=<H8> AT[AC]TT3xFfG<b40+> ATBB<w24+> ATTA<h64+>; LangSmith key: lsv2_pt_<h32>_<h10>
lsv2_sk_<h32>_<h10>; Tavily key: tvly-<w32> tvly-dev-<w32> tvly-prod-<w32>; ElevenLabs key: sk_<h48>;
Helicone key: sk-helicone-<b20+>; Cerebras key: csk-<a40+>; Fireworks key: fw_<w24>; NVIDIA key:
nvapi-<b50+>; Voyage key: pa-<b43>; Firecrawl key: fc-<h32>; RunPod key: rpa_<w40+>; E2B key: e2b_<h40>;
Anyscale key: esecret_<a24+>; Together key: tgp_v1_<b43>; Zhipu key: <h32>.<w16>; Browserbase key:
bb_live_<b27> bb_test_<b27>; Heroku key: HRKU-<b36+>; Fly.io token: fo1_<b43> fm1r_<B50+> fm2_<B50+>; Vercel
token: vercel_blob_rw_<w16>_<w30>; Supabase key: sbp_<h40> sb_secret_<b31>; PlanetScale token:
pscale_tkn_<b32+> pscale_pw_<b32+> pscale_oauth_<b32+>; Neon key: napi_<a50+>; Cloudflare key:
v1.0-<h24>-<h146>; RubyGems key: rubygems_<h48>; NuGet key: oy2<a43>; crates.io token: cio<w32>; Docker
token: dckr_pat_<b27> dckr_oat_<b32>; Clojars token: CLOJARS_<a60>; Artifactory key: AKCp<w69>; CircleCI
token: CCIPAT_<w22>_<h40> CCIPRJ_<w22>_<h40>; Buildkite token: bkua_<h40>; Snyk token: snyk_uat.<h8>.<b40+>;
Sourcegraph token: sgp_<h16>_<h40> sgp_<h40>; Segment token: sgp_<w64>; Postman key: PMAK-<h24>-<h34>;
ReadMe key: rdme_<a70>; Figma token: figd_<b40+> figo_<b40+>; Linear key: lin_oauth_<h64>; Airtable token:
pat<w14>.<h64>; Asana token: 1/<d12+>:<h32> 2/<d12+>/<d12+>:<h32>; ClickUp token: pk_<d6+>_<A32>; Contentful
token: CFPAT-<b43>; Prefect key: pnu_<a36> pnb_<a36>; Typeform token: tfp_<b40+>; Mapbox token:
sk.eyJ<w40+>.<b22>; Flutterwave key: FLWSECK-<h32>-X FLWSECK_TEST-<h32>-X; Razorpay key: rzp_live_<w14>
rzp_test_<w14>; Square token: sq0atp-<b22> sq0csp-<b43> EAAA<b60>; Meta token: EAA<w90+>; Braintree token:
access_token$production$<a16>$<h32> access_token$sandbox$<a16>$<h32>; Plaid token: access-sandbox-<u>
access-development-<u> access-production-<u>; Shopify token: shpat_<h32> shpca_<h32> shppa_<h32>
shpss_<h32>; Shippo key: shippo_live_<h40> shippo_test_<h40>; EasyPost key: EZAK<w54> EZTK<w54>; Duffel key:
duffel_live_<b40+> duffel_test_<b40+>; Lob key: live_<h35> test_<h35>; Frame.io token: fio-u-<b64>; Mailgun
key: key-<h32> <h32>-<h8>-<h8>; Mailchimp key: <h32>-us<d1+>; Brevo key: xkeysib-<h64>-<w16>
xsmtpsib-<h64>-<w16>; Resend key: re_<w8>_<w24>; MailerSend key: mlsn.<h64>; Telegram token: <d8+>:A<b34>; X
token: AAAAAAAAAAAAAAAAAAAAA<w60+>; Dropbox token: sl.u.<b60+> sl.<b60+>; Intercom token: dG9rO<w51>=;
HubSpot token: pat-na1-<u> pat-eu1-<u>; Salesforce token: 00D<w12>!<q80+>; Stytch secret: secret-live-<b43>=
secret-test-<b43>=; Tailscale key: tskey-auth-<w8+>-<w20+> tskey-api-<w8+>-<w20+> tskey-client-<w8+>-<w20+>;
ngrok token: 1<w26>_<w21> 2<w26>_<w21> 3<w26>_<w21>; Databento key: db-<w29>; RapidAPI key:
<h10>msh<h15>p1<h6>jsn<h12>; MaxMind key: <w6>_<w29>_mmk; Octopus Deploy key: API-<A26>; OpenShift token:
sha256~<b43>; Defined Networking key: dnkey-<b26>-<b52>; Harness token: pat.<b22>.<h24>.<w20>; Intra 42
secret: s-s4t2ud-<h64> s-s4t2af-<h64>; WakaTime key: waka_<u>; Inngest key: signkey-prod-<h64>
signkey-test-<h64>; Cal.com key: cal_live_<h32> cal_test_<h32>; Trigger.dev key: tr_dev_<w20> tr_prod_<w20>;
Scalingo token: tk-us-<b48>
"""
#: Most vendors now use a word and then random characters; a word in lower case, not the name of a hash.
_PREFIXED: Final = (
    r"(?<![_.-])(?!sha[0-9]|sk-)[a-z][a-z0-9]{1,15}(?:[_-][a-z0-9]{1,12}){0,3}[_-][A-Za-z0-9]{30,}+"
)
#: A text without such a run has no vendor's key.
_SHORTEST_KEY: Final = 20
_RUN: Final = r"[A-Za-z0-9_.~+/=$!:-]{20,}+"
#: An image or a file in base64: in enough of it, any short prefix occurs by chance.
_BLOB: Final = r"[A-Za-z0-9+/]{4096,}+={0,2}"
#: Where a key may begin: not inside a longer word.
_B: Final = r"(?<![A-Za-z0-9])"


@cache
def _keys() -> tuple[re.Pattern[str], tuple[str, ...]]:
    """Return one pattern for all vendors' keys, with a group for each shape, and the groups' names."""
    # By their first characters: of some hundred shapes, only a few are tried at a place.
    first: dict[str, list[tuple[str, str]]] = {}
    for entry in _KEYS.replace("\n", " ").replace("%", "").split(";"):
        name, _, shapes = entry.strip().partition(": ")
        for shape in shapes.split():
            first.setdefault(shape[0], []).append((name, shape[1:] if shape[0] != "<" else shape))
    patterns, names = [], []
    for start in sorted(first, key=lambda start: start == "<"):
        shapes = "|".join(f"({_pattern(shape)})" for _, shape in first[start])
        patterns.append(shapes if start == "<" else f"{start}(?:{shapes})")
        names += [name for name, _ in first[start]]
    pattern = f"{_B}(?=[A-Za-z0-9])(?:{'|'.join(patterns)}|({_PREFIXED}))"
    return compiled(pattern), (*names, "key")


def _pattern(shape: str) -> str:
    def piece(match: re.Match[str]) -> str:
        if match["literal"]:
            return match["literal"] if match["literal"][0] == "[" else re.escape(match["literal"])
        length = match["length"]
        return f"[{_SETS[match['set']]}]" + (
            f"{{{length},}}+" if match["more"] else f"{{{length}}}"
        )

    shape = shape.replace("<u>", "<h8>-<h4>-<h4>-<h4>-<h12>")
    part = r"<(?P<set>\w)(?P<length>[\d,]+)(?P<more>\+?)>|(?P<literal>\[\w+\]|[^<[]+)"
    return re.sub(part, piece, shape) + ("" if shape.endswith("+>") else r"(?![A-Za-z0-9])")


def _is_prefixed(text: str) -> bool:
    """Return whether the end of a text with a prefix is random: capitals, small letters, digits."""
    random = compiled(r"[A-Za-z0-9]+\Z").search(text)
    return random is not None and all(
        compiled(kind).search(random[0]) for kind in ("[A-Z]", "[a-z]", "[0-9][^0-9]+[0-9]")
    )


def _is_openai(text: str) -> bool:
    """Return whether it is a key and not the name of a style: `sk-folding-cube-container` is one."""
    return (
        compiled(r"[A-Za-z0-9]{16}|(?=[A-Za-z]{0,7}[0-9])[A-Za-z0-9]{8}").search(text) is not None
    )


def _is_pem(text: str) -> bool:
    return compiled(r"[A-Za-z0-9+/=]{24}").search(text) is not None


def _is_basic(text: str) -> bool:
    """Return whether it is a user and a password in base64, and not a word after "Basic"."""
    import binascii

    try:
        plain = binascii.a2b_base64(text + "=" * (-len(text) % 4), strict_mode=True)
    except binascii.Error:
        return False
    return b":" in plain and plain.isascii() and plain.decode().isprintable()


def _is_token(text: str) -> bool:
    return not is_placeholder(text) and is_made(text)


def _is_header(text: str) -> bool:
    """Return whether it can be what follows `Authorization: Bearer`."""
    return not is_placeholder(text) and not compiled(
        "(?i)auth\\w+|tokens?|scheme|header"
    ).fullmatch(text)


def _is_literal(text: str) -> bool:
    return not is_placeholder(text)


def _is_password(text: str) -> bool:
    """Return whether it can be the password of a URL: `https://user:password@host` is an example."""
    examples = {"pass", "passwd", "password"}
    return _is_literal(text) and len(text) > 3 and text.lower() not in examples  # noqa: PLR2004


def _is_cookie(text: str) -> bool:
    """Return whether a cookie can be a session's: `theme=dark` is not."""
    return len(text) > 24 or compiled("=.{0,7}[0-9].{3}|=.{3,7}[0-9]").search(text) is not None  # noqa: PLR2004


def _is_userinfo(text: str) -> bool:
    """Return whether the part before the host of a web address holds a credential."""
    user, _, password = text.partition(":")
    return is_made(user) or (password != "" and _is_password(password))


#: What text around it tells.
SHAPES: Final = (
    Shape(
        "private key",
        ("private key",),
        r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----"
        r"(?:(?s:(?!-----).){0,20000}+-----END [A-Z0-9 ]{0,60}-----"
        # Cut off: lines of base64 and what may be between them.
        r"|(?:(?:[\s\\\"'+,>|]|(?<=\\)[nrt]){0,40}[A-Za-z0-9+/=]{16,}+){0,2000}+"
        r"(?:(?:\s|\\[nrt]){0,4}[A-Za-z0-9+/=]{1,15}\Z)?)",
        _is_pem,
    ),
    Shape("OpenAI key", ("sk-",), _B + r"sk-(?!ecdsa|ssh)[A-Za-z0-9_-]{16,}", _is_openai),
    Shape(
        # The id and, if it follows directly, the secret.
        "AWS key",
        ("akia", "asia", "abia", "acca", "a3t"),
        _B + r"(?:AKIA|ASIA|ABIA|ACCA|A3T[A-Z0-9])[A-Z0-9]{16}(?![A-Za-z0-9])"
        r"(?:[^A-Za-z0-9/+]{1,10}(?:[A-Za-z_ -]{1,40}[^A-Za-z0-9/+]{1,10})?"
        r"[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=]))?",
    ),
    Shape(
        "webhook",
        ("hooks.slack.com/", "/api/webhooks/", "webhook.office.com/", "hooks.zapier.com/"),
        r"(?:hooks\.slack\.com/[a-z]{5,12}|discord(?:app)?\.com/api/webhooks"
        r"|webhook\.office\.com/webhookb2|hooks\.zapier\.com/hooks/catch)/"
        r"(?P<secret>[A-Za-z0-9/_@-]{12,})",
    ),
    Shape("Google token", ("ya29.",), _B + r"ya29\.(?:[A-Za-z]\.){0,2}[A-Za-z0-9_-]{20,}"),
    Shape("Google token", ("1//0",), r"(?<![A-Za-z0-9/:])1//0[A-Za-z0-9_-]{30,}"),
    Shape(
        "Azure key",
        ("accountkey=", "sharedaccesskey=", "sharedaccesssignature="),
        r"(?i)(?:AccountKey|SharedAccessKey|SharedAccessSignature)=(?P<secret>[A-Za-z0-9+/%=&._-]{20,})",
        _is_literal,
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
    # A token is the user here as often as the password.
    Shape(
        "userinfo",
        ("://",),
        _B + r"(?i:https?|wss?)://(?P<secret>[^\s/?#\"'<>\\]{1,1024})@(?=[^\s@/?#])",
        _is_userinfo,
    ),
    # Elsewhere a user alone is not a secret: `ssh://git@…`. A password may hold an @; what it may not
    # hold unescaped, and often does, is let pass for databases.
    Shape(
        "password",
        ("://",),
        _B + r"[A-Za-z][A-Za-z0-9+.-]{1,30}://[^\s/?#@:\"'<>\\]{0,256}:"
        r"(?P<secret>[^\s/?#\"'<>\\]{1,1024})@(?=[^\s@/?#])",
        _is_password,
    ),
    Shape(
        "password",
        ("://",),
        _B
        + r"(?:postgres(?:ql)?|mysql|mariadb|mongodb|rediss?|amqps?|mssql|clickhouse|cockroachdb)"
        r"(?:\+[a-z0-9]{1,20})?://[^\s/?#@:\"'<>\\]{0,256}:(?!\d{1,5}/)"
        r"(?P<secret>[^\s@\"'<>\\]{1,1024})@(?=[^\s@/?#])",
        _is_password,
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
        r"(?P<secret>[^\s\"'`,;\\<>(){}\[\]]{8,}+)(?!\()",
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
        _is_cookie,
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


def by_shape(text: str, lower: str) -> Iterator[Found]:
    """Yield the credentials in a text by their shape; `lower` is the text in lower case."""
    for run in compiled(_RUN).finditer(text) if len(text) >= _SHORTEST_KEY else ():
        if compiled(_BLOB).fullmatch(run[0]):
            continue
        pattern, names = _keys()
        for match in pattern.finditer(text, *run.span()):
            index = match.lastindex or 0
            if len(set(match[0][-12:])) == 1:
                continue  # `ghp_xxxxxxxxxxxx…`
            if index < len(names) or _is_prefixed(match[0]):
                yield Found(*match.span(), names[index - 1])
    for shape in SHAPES:
        if not any(hint in lower for hint in shape.hints):
            continue
        for match in compiled(shape.pattern).finditer(text):
            group = "secret" if "secret" in match.re.groupindex else 0
            if shape.confirm is None or shape.confirm(match[group]):
                yield Found(*match.span(group), shape.what)


# -- assignments ------------------------------------------------------------------------------------

#: A name and what separates it from its value: `"password": `, `--api-key=`, `self.secret = `, or
#: `"X-Api-Key", "` in a pair.
_NAMED: Final = (
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
_ENV_VALUE: Final = r"(?P<secret>[^\s\"'`][^\s]{0,8191}+)[ \t]{0,20}(?:#[^\n]{0,1000})?(?=\r?\n|\Z)"
_ENV_NAME: Final = r"[A-Z][A-Z0-9_]*"
_NUMBER: Final = r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_IDENTIFIER: Final = r"[A-Za-z_]\w*(?:\.\w+)*"
#: A part of a variable's name is a word, maybe with digits after it, or is short.
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


def by_name(text: str, lower: str, *, strict: bool = False) -> Iterator[Found]:
    """Yield what a text assigns to the name of a credential. `lower`: the text in lower case.

    `strict`: only as `name=value`, which no sentence contains by chance.
    """
    if not any(hint in lower for hint in _NAME_HINTS):
        return
    search = compiled(_NAMED).search
    at = 0
    while (match := search(text, at)) is not None:
        # After the name, not after the value: "Note: password=…" has two names.
        at = match.end()
        between = match["between"]
        name = match["name"].strip("-.")
        what = named(name)
        if _closes(text, match):
            continue
        if what is None:
            found = None if strict or between is None else _value_of_name(text, at, name)
        elif (strict and between != "=") or (match["gap"] and not match["name"].startswith("--")):
            continue
        elif between == "=" and (env := _env_value(text, match, what)):
            found = Found(*env, what.what)
        else:
            found = _value(text, at, what, between, pair=match["pair"] is not None)
        if found is not None:
            yield found
            at = found.end


def _closes(text: str, match: re.Match[str]) -> bool:
    """Return whether the quote after a name ends the text that it is in: `prompt="Password: "`."""
    quote = text[match.start() - 1 : match.start()]
    if quote not in {'"', "'", "`"} or quote in text[match.end("name") : match.end()]:
        return False
    return text.startswith(quote, match.end())


def _value_of_name(text: str, at: int, name: str) -> Found | None:
    """Return the value that goes with the name of a credential: `name: DB_PASSWORD, value: …`."""
    if name.lower() not in _NAMING:
        return None
    said = compiled(r"\\{0,8}[\"'`]?(?P<name>[A-Za-z0-9_.-]{3,100}+)").match(text, at)
    what = said and named(said["name"])
    if not said or not what:
        return None
    value = compiled(_VALUE_OF).match(text, said.end())
    # As in an env file: a name in a list of names and values is followed by a value.
    return _value(text, value.end(), what, "=", env=True) if value else None


def _env_value(text: str, match: re.Match[str], name: Named) -> tuple[int, int] | None:
    """Return the span of a value in an env file: alone on its line with its name, in capitals or not."""
    start = text.rfind("\n", 0, match.start()) + 1
    before = text[max(start, match.start() - 20) : match.start()].strip()
    if before not in {"", "export", "set", "-", "ENV", "ARG"}:
        return None
    upper = compiled(_ENV_NAME).fullmatch(match["name"]) is not None
    value = compiled(_ENV_VALUE).match(text, match.end())
    if value is None or not holds(name, value["secret"]):
        return None
    # Code looks like this too: `    password=self.password`, `password=ask()`.
    if not upper and (
        text[start : start + 1].isspace() or compiled(r"[([{]").search(value["secret"])
    ):
        return None
    if compiled(_NUMBER).fullmatch(value["secret"]) and not name.numbers:
        return None
    return None if len(value["secret"]) < 3 else value.span("secret")  # noqa: PLR2004 - punctuation


def _value(
    text: str, at: int, name: Named, between: str | None, *, pair: bool = False, env: bool = False
) -> Found | None:
    """Return the value at a place, if it is a credential."""
    quoted = compiled(_QUOTED).match(text, at)
    if quoted is not None:
        group = next(g for g in ("secret", "double", "single", "back", "inner") if quoted[g])
        value = quoted[group]
        # `API_KEY = "api_key"` and `("password", "token")` name credentials.
        good = holds(name, value) and named(value) is None and (not pair or _is_paired(value))
        return Found(*quoted.span(group), name.what) if good else None
    # A text that was cut off has no second quote.
    bare = compiled(_OPEN).match(text, at)
    if bare is None:
        bare = compiled(_BARE).match(text, at)
        if bare is None or (bare["call"] and not env):
            return None
        if not env and not _is_bare(bare["secret"], name, between):
            return None
    if pair or not holds(name, bare["secret"]):
        return None
    more = compiled(_MORE).match(text, bare.end("secret"))
    return Found(bare.start("secret"), more.end() if more else bare.end("secret"), name.what)


def _is_bare(value: str, name: Named, between: str | None) -> bool:
    """Return whether a value without quotes is meant literally: not a variable, a type or a word."""
    if len(value) < 4:  # noqa: PLR2004 - punctuation, "Password: 12 characters"
        return False
    if compiled(_NUMBER).fullmatch(value):
        return name.numbers
    identifier = compiled(_IDENTIFIER).fullmatch(value) is not None
    if between == "=":
        # Env files, queries and connection strings; and the keyword arguments of a call.
        first = value.lower().replace(".", "_").split("_")[0]
        return not identifier or not (first in _CODE or _is_variable(value)) or not _is_word(value)
    if between is not None and "=" in between and identifier and _is_variable(value):
        return not _is_word(value)
    # Types and variables: `key: ed25519.PrivateKey`, `{"token": session_token2}`.
    if identifier and (
        compiled(r"\.[A-Z]\w*\Z").search(value)
        or (between is not None and between[0] in "\"'" and _is_word(value))
    ):
        return False
    # `password: correct` is prose, `password: hunter2` is not.
    return not value.strip(".!?:").replace("-", "").replace("_", "").replace(".", "").isalpha()


def _is_variable(value: str) -> bool:
    return "_" in value or "." in value or any(hint in value.lower() for hint in _NAME_HINTS)


def _is_word(value: str) -> bool:
    """Return whether every part of an identifier can be a word: `get_key2` can, a random text cannot."""
    return compiled(_WORD_LIKE).fullmatch(value) is not None


# -- values of JSON ---------------------------------------------------------------------------------

#: Under the name of a credential, these say which one it is, and not what it is.
_HARMLESS: Final = _words(
    "type kind source name user username email provider scheme scope scopes method description title env "
    "variable path domain id expires expires_at created created_at updated updated_at version"
)
_SCHEMA_TYPES: Final = _words("string number integer boolean object array null")
_SCHEMA_KEYS: Final = frozenset({"$ref", "anyOf", "oneOf", "allOf", "enum"})


def _below_dict(
    value: dict[Any, Any], name: Named | None
) -> Iterator[tuple[Any, Any, Named | None]]:
    """Yield key, item and the name that counts for the item."""
    told = next(
        (value[key] for key in value if isinstance(key, str) and key.lower() in _NAMING), None
    )
    for_value = named(told) if isinstance(told, str) else None
    for key, item in value.items():
        if not isinstance(key, str):
            yield key, item, name
        elif (own := named(key)) is not None:
            yield key, item, own
        elif for_value is not None and key.lower() in _VALUES:
            yield key, item, for_value
        # `credentials: {"value": …}`, but not the schema of a tool's argument of that name.
        elif name is None or key.lower() in _HARMLESS or _is_schema(value):
            yield key, item, None
        else:
            yield key, item, name


def _below_list(value: list[Any] | tuple[Any, ...], name: Named | None) -> Iterator[Named | None]:
    """Yield the name that counts for each item: that of the list, or that of the item before it."""
    before: Any = None
    for item in value:
        own = None
        if isinstance(before, str) and (len(value) == 2 or before.startswith("--")):  # noqa: PLR2004 - a pair
            own = named(before.strip("-:")) if _is_paired(item) and not _is_name(item) else None
        yield name if own is None else own
        before = item


def _is_name(item: Any) -> bool:
    return isinstance(item, str) and named(item) is not None


def _is_schema(value: dict[Any, Any]) -> bool:
    kind = value.get("type")
    if isinstance(kind, list):
        return True
    return (isinstance(kind, str) and kind in _SCHEMA_TYPES) or not _SCHEMA_KEYS.isdisjoint(value)


def read_json(text: str) -> dict[str, Any] | list[Any] | str | None:
    """Return the JSON value that a text is, if it can contain something; None if it is not JSON."""
    if text.lstrip()[:1] not in {"{", "[", '"'}:
        return None
    try:
        value = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return value if isinstance(value, dict | list | str) else None


# -- refusing ---------------------------------------------------------------------------------------


def refuse(data: dict[str, Any], what: str) -> None:
    """Raise `SecretRefused` if JSON holds a credential; `what` names the JSON in the error.

    The data must have passed `codec.encode`, which bounds their depth.
    """
    try:
        found = next(_places(data, what, None, 0), None)
    except RecursionError:
        # Not the data, but JSON in a string in them, and in a string in that.
        raise InvalidEvent(f"{what}: nested too deep to search for credentials") from None
    if found is not None:
        place, kind = found
        raise SecretRefused(
            f"{place}: looks like a credential ({kind}); nothing was stored. Store a name: "
            "'env:OPENAI_API_KEY'",
            place=place,
        )


def _places(value: Any, place: str, name: Named | None, texts: int) -> Iterator[tuple[str, str]]:
    """Yield place and kind of each credential in a JSON value, given the name that counts for it."""
    if isinstance(value, dict):
        for key, item, below in _below_dict(value, name):
            shown, count = redact_text(key) if isinstance(key, str) else (key, 0)
            inside = f"{place}[{shown!r:.60}]"
            if count:
                yield inside, "in the key itself"
            yield from _places(item, inside, below, texts)
    elif isinstance(value, list | tuple):
        for index, below in enumerate(_below_list(value, name)):
            yield from _places(value[index], f"{place}[{index}]", below, texts)
    elif name is not None and holds(name, value):
        yield place, name.what
    elif isinstance(value, str):
        lower = value.lower()
        for found in (*by_shape(value, lower), *by_name(value, lower, strict=True)):
            yield place, found.what
        inner = read_json(value) if texts < _DEEPEST_TEXT else None
        if inner is not None:
            yield from _places(inner, place, None, texts + 1)


# -- redacting --------------------------------------------------------------------------------------


def redact(value: Any) -> tuple[Any, int]:
    """Return a JSON value with `[redacted: …]` for each credential, and how many there were.

    The value itself is not changed, and is returned if there were none.
    """
    try:
        return _redact(value, None, 0)
    except RecursionError:
        # Stored data are never so deep. What cannot be searched must not be given away.
        raise InvalidEvent("nested too deep to search for credentials; nothing was shown") from None


def redact_text(text: str) -> tuple[str, int]:
    """Do as `redact` does with one text."""
    return _redact_text(text, 0)


def _redact(value: Any, name: Named | None, texts: int) -> tuple[Any, int]:
    if isinstance(value, dict):
        return _redact_dict(value, name, texts)
    if isinstance(value, list | tuple):
        names = _below_list(value, name)
        done = [_redact(item, below, texts) for item, below in zip(value, names, strict=True)]
        count = sum(each for _, each in done)
        return ([item for item, _ in done], count) if count else (value, 0)
    if name is not None and holds(name, value):
        return _mark(name.what), 1
    return _redact_text(value, texts) if isinstance(value, str) else (value, 0)


def _redact_dict(
    value: dict[str, Any], name: Named | None, texts: int
) -> tuple[dict[str, Any], int]:
    done: dict[str, Any] = {}
    count = 0
    for key, item, inside in _below_dict(value, name):
        shown, in_key = _redact_text(key, texts)
        if in_key:
            shown = unused(shown, value, done)
        done[shown], below = _redact(item, inside, texts)
        count += in_key + below
    return (done, count) if count else (value, 0)


def unused(key: str, *taken: dict[str, Any]) -> str:
    """Return a key that is not taken, in place of another."""
    number, free = 1, key
    while any(free in some for some in taken):
        number += 1
        free = f"{key} ({number})"
    return free


def _redact_text(text: str, texts: int) -> tuple[str, int]:
    total = 0
    if len(text) < _SHORTEST:
        return text, 0
    for _ in range(_ROUNDS):
        count = 0
        inner = read_json(text) if texts < _DEEPEST_TEXT else None
        if inner is not None:
            try:
                inner, count = _redact(inner, None, texts + 1)
            except RecursionError:
                count = 0  # deeper than any stored data: it is searched as text below
            if count:
                text = msgspec.json.encode(inner).decode()
        # JSON can name one key twice: its text is searched too.
        spans = find(text)
        if spans:
            text = _replace(text, spans)
        count += len(spans)
        if not count:
            break
        total += count
    return text, total


def find(text: str) -> list[Found]:
    """Return the credentials in a text in order; those that overlap become one."""
    spans: list[Found] = []
    lower = text.lower()
    # Sorting is stable: of two that begin at one place, the shape gives the name.
    for found in sorted(
        (*by_shape(text, lower), *by_name(text, lower)), key=lambda found: found.start
    ):
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
