"""Credentials are refused in metadata and found in texts; what only looks like one is unchanged."""

import copy
import json
import re
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from hansard.errors import InvalidEvent, SecretRefused
from hansard.event import secrets
from tests.unit.event.keys import KEYS, telltale
from tests.unit.event.vendor_keys import vendor_keys
from tools import secret_finds

VALUE = "hunter" + "2"
MEGABYTE = 1_000_000


def changed(text: str) -> bool:
    """Return whether redacting changes a text; if not, the same object must be returned."""
    found, count = secrets.redact(text)
    assert (count == 0) == (found is text)
    return count > 0


# -- refusing ---------------------------------------------------------------------------------------

NAMES = """
    api_key apikey api-key apiKey APIKey API_KEY x-api-key X-API-KEY xApiKey openai_api_key OPENAI_API_KEY
    openaiApiKey api_keys api_key_2 apiKeyProd authorization Authorization AUTHORIZATION proxy-authorization
    password Password PASSWORD passwd passphrase pwd db_password dbPassword DB_PASSWORD dbpassword passwords
    password_plain user.password db_pass secret clientSecret client_secret client-secret CLIENT_SECRET
    webhook_secret secrets access_token accessToken ACCESS_TOKEN access-token refresh_token auth_token
    authToken bearer_token session_token private_key privateKey aws_secret_access_key secret_key bearer Bearer
    cookie Cookie set-cookie credentials credential PassWord passPhrase pass_code pAsSwOrD aPiKeY sEcReT
""".split()  # noqa: SIM905 - a table

OTHER_NAMES = """
    token_count input_tokens output_tokens max_tokens tokens total_tokens tokenizer token_ids secretary
    password_reset_requested author authorization_required authorization_url key keys monkey keyboard
    public_key publicKey publishable_key cookie_banner cookies_accepted passwordless password_policy
    idempotency_key cache_key sort_key primary_key key_id secret_name secret_arn api_key_env
    api_key_name access_key_id is_secret has_password use_api_key next_page_token pad_token stop_token
    compass bypass passenger pass
    credentials_provider bearer_format forbearer
""".split()  # noqa: SIM905 - a table


@pytest.mark.parametrize("name", NAMES)
def test_a_credential_is_refused_by_its_name(name: str) -> None:
    """N-65: a string under the name of a credential is refused, at any depth and in any case."""
    for data in ({name: VALUE}, {"model": {"settings": [{name: VALUE}]}}):
        with pytest.raises(SecretRefused) as caught:
            secrets.refuse(data, "metadata")
        assert isinstance(caught.value, InvalidEvent)


@pytest.mark.parametrize("name", OTHER_NAMES)
def test_other_names_pass(name: str) -> None:
    """N-65: a name that only shares a word with a credential's name is not refused."""
    for value in (VALUE, "yes", True, 7, None, ["Hel", "lo"], {"a": 1}):
        secrets.refuse({name: value}, "metadata")
        assert secrets.redact({name: value}) == ({name: value}, 0)


@pytest.mark.parametrize("name", ["api_key", "password", "authorization", "secret", "cookie"])
@pytest.mark.parametrize(
    "value",
    [
        "", "  ", None, True, False, [], {}, "***", "********", "•••••", "xxxx", "...", "…", "-",
        "env:OPENAI_API_KEY", "OPENAI_API_KEY", "$OPENAI_API_KEY", "${OPENAI_API_KEY}", "{{ api_key }}",
        "${{ secrets.API_KEY }}", "%API_KEY%", "<redacted>", "<your key>", "[redacted]",
        "[redacted: API key]", "REDACTED", "None", "null", "n/a", "required", "string", "your-api-key",
        "vault:kv/app#key", "op://vault/item/field", "sk-...wxyz", "sk-***wxyz",
        "os.environ['API_KEY']", "process.env.API_KEY", "arn:aws:secretsmanager:eu-west-1:1:secret:x",
    ],
)  # fmt: skip
def test_a_placeholder_passes(name: str, value: Any) -> None:
    """N-65: a placeholder for a credential is stored: a mask, a variable, nothing."""
    secrets.refuse({name: value}, "metadata")
    assert secrets.redact({name: value}) == ({name: value}, 0)


def test_numbers_are_refused_only_under_unmistakable_names() -> None:
    """N-65: a password may be a number; most numbers under a secret's name are counts."""
    for name in ("password", "api_key"):
        with pytest.raises(SecretRefused):
            secrets.refuse({name: 12345678}, "metadata")
        assert secrets.redact({name: 12345678})[1] == 1
    for name in ("secret", "cookie", "authorization", "access_token"):
        secrets.refuse({name: 3, "more": {name: 0.5}}, "metadata")


@pytest.mark.parametrize("name", ["token", "access_key", "service_key", "openai_key", "push_token"])
def test_an_ambiguous_name_needs_a_random_value(name: str) -> None:
    """N-65: under an ambiguous name, only a random-looking value is a credential."""
    for value in ("Hello", "s", "a sentence of words, and 1 number", "/etc/keys/1", "a/b:c"):
        secrets.refuse({name: value}, "metadata")
    with pytest.raises(SecretRefused):
        secrets.refuse({name: "9f8e7d6c5b4a39281706"}, "metadata")


@pytest.mark.parametrize("key", KEYS)
def test_a_known_shape_is_refused_everywhere(key: str) -> None:
    """N-65: a key of a known shape is refused under any name, in a longer string, and as a name."""
    _, text = KEYS[key]
    for data in ({"a": text}, {"a": [{"b": f"see {text} there"}]}, {f"{text}": 1}):
        with pytest.raises(SecretRefused) as caught:
            secrets.refuse(data, "metadata")
        assert telltale(text) not in str(caught.value)


def test_the_error_has_the_place_and_not_the_value() -> None:
    """N-65: the error names the place of the credential, but does not repeat the value."""
    with pytest.raises(SecretRefused) as caught:
        secrets.refuse({"model": {"options": [{}, {"api_key": VALUE}]}}, "metadata")
    assert caught.value.place == "metadata['model']['options'][1]['api_key']"
    assert str(caught.value).startswith(caught.value.place + ": ")
    assert "'env:OPENAI_API_KEY'" in str(caught.value)
    assert VALUE not in str(caught.value) + repr(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com/v1", "http://localhost:8000/@user", "https://medium.com/@user/post",
        "https://example.com/?mail=a@example.com", "https://example.com/#a@b", "ssh://git@example.com/a.git",
        "git@example.com:a/b.git", "postgresql://user@db/app", "postgres://localhost:5432/a@b",
        "mailto:user@example.com", "postgresql://user:${PASSWORD}@db/app", "https://user:***@example.com",
        "https://<token>@example.com", "s3://bucket/key", "redis://cache:6379/0", "a@example.com",
    ],
)  # fmt: skip
def test_a_url_without_a_password_passes(url: str) -> None:
    """N-65: an address, an @ in a path, and a user without a password are not refused."""
    secrets.refuse({"base_url": url}, "metadata")
    assert not changed(f"go to {url} and see")


@pytest.mark.parametrize(
    "data",
    [
        {"settings": '{"api_key": "hunter2"}'},
        {"dsn": "host=db user=app password=hunter2"},
        {"dsn": "Server=db;User=app;Password=hunter2;"},
        {"credentials": {"username": "u", "value": "hunter2"}},
        {"credentials": '{"username": "u", "value": "hunter2"}'},
        {"api_key": '["hunter2"]'},
        {"password": "HELLO_WORLD"},
        {"cookies": [{"name": "sid", "value": "hunter2"}]},
        {"headers": {"Authorization": "Bearer hunter2"}},
        {"headers": [["x", {"X-Api-Key": "hunter2"}]]},
        {"headers": [["Host", "a"], ["Authorization", "Bearer hunter2"]]},
        {"headers": [["Authorization", "Token 9944b09199c62bcf"]]},
        {"headers": [["Cookie", "theme=dark; sid=9944b09199c62bcf"]]},
        {"headers": '[["Set-Cookie", "sid=9944b09199c62bcf; Path=/"]]'},
        {"pwd": "hunter2"},
    ],
)
def test_a_wrapped_credential_is_refused(data: dict[str, Any]) -> None:
    """N-65: JSON in a string, connection strings and objects under a credential's name are searched."""
    with pytest.raises(SecretRefused):
        secrets.refuse(data, "metadata")


@pytest.mark.parametrize(
    "data",
    [
        {"title": "Reset my password"},
        {"title": "Password: what makes a good one?"},
        {"title": "Fix api_key=None in the client"},
        {"title": "Add Authorization header: how?"},
        {"model": "gpt-4o", "temperature": 0.2, "max_tokens": 100, "stop": ["\n"], "user": "u7"},
        {"workspace": "/home/user/secret-project", "pwd": "/home/user", "commit": "a" * 40},
        {"tools": [{"parameters": {"properties": {"api_key": {"type": "string"}}}}]},
        {"properties": {"password": {"type": "string", "description": "The password"}}},
        {"password": {"type": "string", "format": "password", "pattern": "^.{8,}$"}},
        {"credentials": {"source": "env", "name": "OPENAI_API_KEY"}},
        {"fetch": {"credentials": "same-origin"}},
        {"logprobs": [{"token": "Hello", "logprob": -0.1, "bytes": [72]}]},
    ],
)
def test_ordinary_metadata_pass(data: dict[str, Any]) -> None:
    """N-65: titles about passwords, schemas of tools and settings of models are stored."""
    secrets.refuse(data, "metadata")
    assert secrets.redact(data) == (data, 0)


# -- redacting --------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", KEYS)
def test_a_key_is_redacted_in_a_text(key: str) -> None:
    """N-67: each shape is found in prose, in quotes and in JSON, and replaced by its name."""
    what, text = KEYS[key]
    for before, after in (("", ""), ("it is ", " I think"), ('a "', '".'), ("\n(", ")\n")):
        found, count = secrets.redact(before + text + after)
        assert f"[redacted: {what}]" in found
        assert count >= 1
        assert telltale(text) not in found
        assert found.startswith(before)
        assert "cookie" in key or found.endswith(after)


ASSIGNED = [
    'password="hunter2"', "password='hunter2'", "password=hunter2", "password: hunter2",
    "password = hunter2", "PASSWORD=hunter2", "DB_PASSWORD=hunter2", 'db.password = "hunter2"',
    '{"password": "hunter2"', "{'password': 'hunter2'}", 'x {\\"password\\": \\"hunter2\\"}',
    'x {\\\\\\"password\\\\\\": \\\\\\"hunter2\\\\\\"}', '"password":"a\\"hunter2"', "password := `hunter2`",
    "'password' => 'hunter2'", "password='''a\nhunter2'''", "--password hunter2", "--password=hunter2",
    "?password=hunter2&a=1", "Note: password=hunter2", "a: b, api_key: hunter2", "x-api-key: hunter2",
    'api_key="hunter2', "export OPENAI_API_KEY=hunter2", "client_secret: 'hunter2'", 'cookie = "hunter2"',
    "User=u;Password=hunter2;Timeout=3", 'Authorization="Bearer hunter2"',
    '("Authorization", "Bearer hunter2")',
    '{"credentials": {"value": "hunter2"}}', '["x", {"cookies": [{"value": "hunter2"}]}]',
    '{"password": "\\u0068unter2"}', '{"a": "pass\\u0077ord=hunter2"}', '{"pass\\u0077ord": "hunter2"}',
    '{"password": "x", "password": "hunter2"}', '{"password": "hunter2", "password": null}',
    "aws_secret_access_key = hunter2", "secret=hunter2",
]  # fmt: skip


@pytest.mark.parametrize("text", ASSIGNED)
def test_what_is_assigned_to_a_credential_is_redacted(text: str) -> None:
    """N-67: a value assigned to a credential's name is redacted, in code, configuration and cut-off JSON."""
    found, count = secrets.redact(text)
    assert count >= 1
    assert "hunter2" not in found
    assert secrets.redact(found) == (found, 0)


CLEAN = [
    "The quick brown fox jumps over the lazy dog; it took 12 tokens, 3 keys and no password.",
    "Password: at least 8 characters, one of them a digit.",
    "Your password must be changed. The secret: be patient. Token: a unit of text.",
    "Authorization: required for all routes. Authorization is a header; Bearer authentication is common.",
    "Basic understanding of basic arithmetic helps. The bearer of this letter is responsible.",
    "Send `Authorization: Bearer <token>`, `Authorization: Bearer $TOKEN` or Bearer ${token}.",
    "Use --password to set one. The --api-key flag is required.",
    "Cookies: a small file; cookie: a biscuit.",
    "def login(user: str, password: str, token: Optional[str] = None) -> bool:",
    "client = OpenAI(api_key=os.environ['OPENAI_API_KEY'], password=password, secret=settings.SECRET)",
    "self.password = password; api_key = config.api_key; token = get_token(user); key = keys[0]",
    "password = getpass.getpass(); secret = hash(value); api_key = load('x'); password: required",
    "const { apiKey, password } = props; if (password === confirm) { token = next(); }",
    '<input type="password" name="password" placeholder="Password"> <label for="password">',
    '{"type": "object", "properties": {"password": {"type": "string"}, "token": {"type": "integer"}}}',
    '{"password": null, "api_key": "", "secret": true, "max_tokens": 4096, "logprobs": {"token": "Hi"}}',
    "for key, value in data.items(): print(f'{key}: {value}')",
    "sk-folding-cube-container, sk-spinner-double-bounce, task-management-system-2000, risk-averse-1999",
    "npm_config_registry hf_hub_download ghp_short xoxo-hugs-and-kisses-xoxo SGML SG.x.y gl-pattern AIza",
    "AKIA AKIAxxxx ASIATIC SKU12345 SKELETON 12:34:56 1234567890:AB eyJ eyJhbGciOi.x ya29 py" + "pi-server",
    "-----BEGIN PUBLIC KEY-----\nMIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEA\n-----END PUBLIC KEY-----",
    "Look for -----BEGIN RSA PRIVATE KEY----- in the file and remove it.",
    "-----BEGIN CERTIFICATE-----\nMIIDdzCCAl+gAwIBAgIEAgAAuTANBgkqhkiG9w0BAQUFA\n-----END CERTIFICATE-----",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ2tYq0Xk2l3m4n5o6p7q8r9s0t1u2v3w4x5y6z7 user@host",
    "commit 8f14e45fceea167a5a36dedd4bea2543aa1b2c3d, tree 6512bd43d9caa6e02c990b0a82652dca00000000",
    "id 3fa85f64-5717-4562-b3fc-2c963f66afa6 at 2024-01-01T00:00:00.000000Z, sha256:" + "ab" * 32,
    "call_abc123DEF456ghi789JKL012 toolu_01A09q90qw90lq917835lq9 msg_01XFDUDYJgAACzvnptvVoYEL chatcmpl-123",
    "https://example.com/a/b?page=2&key=value&sort=-updated#top and http://127.0.0.1:8080/x@y",
    "docker run -u 1000:1000 image; git log --author=token; ls --sort=key",
    "LangGraph's version 00000000000000000000000000000002.0532066119746316 of a value",
    "next_page_token=CAUQAA12345678901234567890 continuation_token: abc123abc123abc123abc123",
    "secretary=Jane1 monkey: see1 keyboard=qwerty1 passenger: 12A author=Bob1 tokens: 1234 token_count=55",
    "数据库密码不能公开。 Пароль нужен. كلمة المرور 🙂 clé : valeur",
    "x = {'a': [1, 2, 3], 'b': {'c': None}}\n\treturn x['a'][0] == 1 and not x.get('b')",
    "SELECT key, token FROM secrets WHERE password IS NOT NULL AND name = 'x1';",
    "usage: prog [-h] [--token TOKEN] [--password PASSWORD]",
]  # fmt: skip


@pytest.mark.parametrize("text", CLEAN)
def test_a_text_without_credentials_is_unchanged(text: str) -> None:
    """N-67: prose, code, schemas, hashes, ids and near misses of every shape are unchanged."""
    assert secrets.redact(text)[0] == text
    assert not changed(text)
    value = {"role": "user", "content": [{"type": "text", "text": text}]}
    assert secrets.redact(value)[0] is value


WORDS = """
    the a of and to in is you that it he was for on are with as his they be at one have this from or had by
    user assistant tool call result model agent file line error test function return class def import async
    await key keys token tokens author cookie secret password login reset required policy 1 2 42 3.14 2024
    hello, world. Why? yes! (see) [1] {x} "quoted" 'single' `code` a/b c:\\d x_y z-w 100% #tag @user && || ->
""".split()  # noqa: SIM905 - a table


@given(st.lists(st.sampled_from(WORDS), max_size=40))
def test_sentences_are_not_changed(said: list[str]) -> None:
    """N-67: no sequence of ordinary words is a credential."""
    assert not changed(" ".join(said))


PIECES = [
    *(text for _, text in KEYS.values()),
    *("password", "api_key", "token", "Authorization", "Bearer ", "Basic ", "Cookie: a=", "hunter2", "abc"),
    *("=", ": ", ":", " = ", '"', "'", "`", "\\", '\\"', "{", "}", "[", "]", ",", " ", "\n", "://", "@", "/"),
    *("[redacted: ", "[redacted: password]", "redacted", "curl -u ", "--password ", "a", "1", ".", "-", "_"),
]  # fmt: skip
SOUP = st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=12).map("".join)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | SOUP,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(SOUP | st.sampled_from(NAMES), inner, max_size=3)
        | inner.map(lambda value: msgspec.json.encode(value).decode())
    ),
    max_leaves=8,
)


@given(JSON)
@example({"api_key": "https://hooks.slack.com/services/T00000000/B00000000/" + "A1b2C3d4E5f6" * 2})
def test_redaction_is_idempotent(value: Any) -> None:
    """N-67: redacting twice equals redacting once, and does not change its argument."""
    before = copy.deepcopy(value)
    once, count = secrets.redact(value)
    assert value == before
    assert (once is value) == (count == 0)
    assert secrets.redact(once) == (once, 0)


@given(SOUP, st.sampled_from(sorted(KEYS)), SOUP)
def test_a_key_is_redacted_in_any_context(left: str, key: str, right: str) -> None:
    """N-67: a key that is separate from the text around it is redacted, in any text."""
    _, text = KEYS[key]
    # Next to a letter it may be something else.
    assume(text not in left + right)
    found, _ = secrets.redact(f"{left}\n {text} \n{right}")
    assert text not in found


UNITS = [
    "sk-", "sk-a", "-----BEGIN PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----\nAAAA", "eyJ", "eyJaaaaaaaaa.",
    "_eyJaaaaaaaa", "a://", "a://b:", "http://a", "http://a:b@", "password=", 'password="', "password='\"`",
    '\\"password\\":', "\\", '"', "token=", "AccountKey=", "a.", "Authorization: ", "Authorization: Bearer ",
    "Basic ", "cookie: a=", "cookie:", "AKIAAAAAAAAAAAAAAAAA-a_", "ghs_1_eyJ", "SG.aaaaaaaaaaaaaaaaaaaa.",
    "MTaaaaaaaaaaaaaaaaaaaaaaaaaa.", "1234567890:A", "[", '{"a":', '{"password":', "[redacted: ", " ",
    "api-aaa_", "name: DB_PASSWORD ", '"password", ', "A_KEY=a\n", "A_KEY=a_",
    "&sig=a", "aaa1Q~", "curl -u a:", "a", "--password ", "hooks.slack.com/services/", "password:\\",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("unit", UNITS)
def test_hostile_texts_take_linear_time(unit: str) -> None:
    """N-74: 256 KB that begin a pattern again and again are searched before the test times out."""
    # Quadratic time would be 60 billion steps.
    text = (unit * (MEGABYTE // 4 // len(unit) + 1))[: MEGABYTE // 4]
    found, count = secrets.redact(text)
    assert (found == text) == (count == 0)


def test_deep_json_is_searched_as_text() -> None:
    """N-74: a key in JSON that is too deep to decode is still found."""
    _, key = KEYS["openai"]
    for depth in (100, 300, 450, 700, 900, 5_000, 100_000):
        found, count = secrets.redact("[" * depth + json.dumps(key) + "]" * depth)
        assert key not in found
        assert count == 1


def test_every_shape_has_a_sample() -> None:
    """N-67: every shape and every vendor has a key in the corpus."""
    texts = [text for _, text in KEYS.values()]
    for what, hints, _, pattern in secrets.SHAPES:
        hinted = [text for text in texts if any(hint in text.lower() for hint in hints)]
        assert any(re.compile(pattern).search(text) for text in hinted), (what, pattern)
    found = {secrets.redact(text)[0] for text in (*texts, *vendor_keys(1).values())}
    vendors = {entry.partition(":")[0] for entry in secrets.vendor_keys()}
    unproven = {name for name in vendors if not any(f": {name}]" in text for text in found)}
    assert unproven == set()


# -- vendors' keys ----------------------------------------------------------------------------------

#: How keys are assigned in texts.
FORMS = [
    "SERVICE_API_KEY={}", "A=1\nSERVICE_API_KEY={}\nB=2\n", "SERVICE_API_KEY='{}'", 'SERVICE_API_KEY="{}"',
    "export SERVICE_API_KEY={}", "SERVICE_TOKEN={}", "CLIENT_SECRET={}", "SERVICE_KEY={}", "api_key = {}",
    'client = Client(api_key="{}")', "service:\n  api_key: {}\n  x: 1", "service:\n  api_key: '{}'\n",
    'x = {{"apiKey": "{}"}}', "X-Api-Key: {}", 'curl -H "X-Api-Key: {}" https://a.example',
    "Authorization: Bearer {}", "docker run -e SERVICE_API_KEY={} image",
    "https://a.example/v1?api_key={}&page=2", "env:\n  - name: DB_PASSWORD\n    value: {}\n",
    'env: [{{"name": "DB_PASSWORD", "value": "{}"}}]', 'headers = [("X-Api-Key", "{}")]',
]  # fmt: skip

#: How keys are assigned in JSON.
STRUCTURES: list[Callable[[str], Any]] = [
    lambda key: {"api_key": key},
    lambda key: [{"name": "DB_PASSWORD", "value": key}],
    lambda key: [{"value": key, "name": "DB_PASSWORD"}],
    lambda key: {"env": [{"key": "SERVICE_API_KEY", "value": key}]},
    lambda key: {"headers": [["X-Api-Key", key]]},
    lambda key: {"args": ["--verbose", "--api-key", key]},
    lambda key: {"arguments": json.dumps({"env": [{"name": "DB_PASSWORD", "value": key}]})},
    lambda key: {"arguments": json.dumps({"file": f"A=1\nSERVICE_API_KEY={key}\n"})},
]


def missed(shown: list[tuple[str, str]]) -> float:
    """Return the share of keys whose longest piece is still in its text."""
    pieces = [(max(re.split("[^A-Za-z0-9]+", key), key=len), text) for key, text in shown]
    return sum(piece in text for piece, text in pieces) / len(pieces)


@pytest.mark.parametrize("seed", [1, 2])
def test_vendors_keys_are_found(seed: int) -> None:
    """N-67: of 218 vendors' keys, all are found as assignments and in structures, 94 % bare."""
    keys = list(vendor_keys(seed).values())
    assert len(keys) == 218
    for form in FORMS:
        texts = [(key, secrets.redact(form.format(key))[0]) for key in keys]
        assert missed(texts) == 0, form
    for number, structure in enumerate(STRUCTURES):
        texts = [(key, json.dumps(secrets.redact(structure(key))[0])) for key in keys]
        assert missed(texts) == 0, number
    for form in ("{}", "my key is {}, why?", "({})"):
        texts = [(key, secrets.redact(form.format(key))[0]) for key in keys]
        assert missed(texts) <= 0.06, form


@pytest.mark.parametrize(
    "value",
    ["correct_horse_battery", "my.dotted.value", "abc&def;ghi(jkl)", "settings_value", "a_b.c", "p#ss,word"],
)  # fmt: skip
@pytest.mark.parametrize(
    "form", ["DB_PASSWORD={}", "A=1\n  export DB_PASSWORD={}\n", "db.password={}\nb=2"]
)
def test_a_value_in_an_env_file_is_not_a_variable(form: str, value: str) -> None:
    """N-67: alone on its line, a value with `_`, `.` or punctuation is redacted completely."""
    if "db." in form and "(" in value:
        value = value.replace("(", "").replace(")", "")
    shown, count = secrets.redact(form.format(value))
    assert count == 1
    assert shown == form.format("[redacted: password]")


def found_in(texts: Iterable[str], size: int) -> tuple[int, int]:
    """Return how many credentials `size` characters of texts hold, and how many characters were read."""
    count = read = 0
    for text in texts:
        count += len(secrets.find(text[: size - read]))
        read = min(size, read + len(text))
    return count, read


def test_python_source_is_unchanged() -> None:
    """N-67: the standard library has at most one find per MB."""
    library = Path(sysconfig.get_path("stdlib"))
    files = [path for pattern in ("*.py", "[a-z]*/*.py") for path in sorted(library.glob(pattern))]
    count, read = found_in((path.read_text(errors="replace") for path in files), 4 * MEGABYTE)
    assert read == 4 * MEGABYTE
    assert count <= 4


def test_the_tool_counts_finds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """N-67: the tool that measures false finds fails if they are too many."""
    source = tmp_path / "a.py"
    source.write_text("password: str\nkey = settings.api_key\nurl = 'https://example.com'\n")
    assert secret_finds.main([str(tmp_path)]) == 0
    source.write_text("password = 'hunter22'\napi_key = 'ghp_" + "xY7" * 12 + "'\n")
    assert secret_finds.main([str(tmp_path), "--list"]) == 1
    shown = capsys.readouterr().out
    assert "2 finds, 1 not shaped like a key" in shown
    assert "a.py:1: password: 'hunter22'" in shown


@pytest.mark.slow
def test_hostile_keys_take_linear_time() -> None:
    """N-74: the beginnings of all vendors' keys, repeated with every separator, take linear time."""
    keys = " ".join(entry.partition(": ")[2] for entry in secrets.vendor_keys())
    begun = re.sub(r"<[^>]*>[^ ]*|\[(\w)\w*\]", r"\1", keys).split()
    for separator in ("", "-", "_", ".", "-a", "_A1", ".eyJ", "=", "/"):
        unit = separator.join(begun)
        text = (unit * (MEGABYTE // 16 // len(unit) + 1))[: MEGABYTE // 16]
        found, count = secrets.redact(text)
        assert (found == text) == (count == 0)
    for start in begun:
        secrets.redact(f"-{start}" * (10_000 // len(start)))


def test_nothing_is_compiled_at_import() -> None:
    """Patterns are compiled on first use, not at import."""
    code = (
        "from hansard.event import secrets\n"
        "assert secrets._keys.cache_info().currsize == 0\n"
        "secrets.refuse({'model': 'm', 'temperature': 1}, 'metadata')\n"
        "assert secrets._keys.cache_info().currsize == 0\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
