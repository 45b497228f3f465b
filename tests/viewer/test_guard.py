"""Which requests `hansard serve` answers, asked by raw sockets: a client that keeps no rule."""

import json
import re
import select
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs, quote, urlencode, urlsplit

import pytest

import hansard
from tests.cli.running import start
from tests.viewer.stores import IDS, SECRET, fill

TOKEN = "a-fixed-token-of-a-test"  # noqa: S105 - of this test


class Answer(NamedTuple):
    """An answer, in bytes as they came."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()


class Running:
    """A command that serves a store."""

    def __init__(self, store: Path | str, *options: str) -> None:
        self.process = start("serve", "--port=0", "--json", *options, store=store)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(self.process.communicate()[1])
        printed = json.loads(line)
        self.url: str = printed["url"]
        self.port: int = printed["port"]
        self.host = f"127.0.0.1:{self.port}"
        self.cookie = ""

    def raw(self, request: bytes) -> Answer:
        """Send bytes, and return what comes back until the server closes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as made:
            made.sendall(request)
            got = b"".join(iter(lambda: made.recv(65536), b""))
        head, _, body = got.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {
            name.lower(): value for name, _, value in (line.partition(": ") for line in lines)
        }
        return Answer(int(first.split()[1]), headers, body)

    def get(self, path: str, *headers: str, method: str = "GET", host: str | None = None) -> Answer:
        """Ask for a path with the cookie, if there is one."""
        lines = [
            f"{method} {path} HTTP/1.1",
            f"Host: {host or self.host}",
            "Connection: close",
            *headers,
        ]
        if self.cookie:
            lines.append(f"Cookie: {self.cookie}")
        return self.raw("\r\n".join([*lines, "", ""]).encode())

    def login(self) -> "Running":
        """Exchange the token of the printed address."""
        query = urlsplit(self.url).query
        done = self.get(f"{urlsplit(self.url).path}?{query}")
        assert done.status == 303
        self.cookie = done.headers["set-cookie"].split(";")[0]
        return self

    def page(self, name: str, **query: object) -> Answer:
        """Ask for a page."""
        return self.get(f"/{name}?{urlencode(query)}")

    def stop(self) -> None:
        """Interrupt the server, as Ctrl-C does."""
        if self.process.returncode is not None:
            return
        self.process.send_signal(signal.SIGINT)
        self.process.communicate(timeout=60)


Serve = Callable[..., Running]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store that no test changes."""
    path = tmp_path_factory.mktemp("viewer") / "data"
    with hansard.open(path) as store:
        fill(store)
    return path


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Return a function that starts a server; all are stopped."""
    running: list[Running] = []

    def start(store: Path, *options: str) -> Running:
        running.append(Running(store, *options))
        return running[-1]

    yield start
    for one in running:
        one.stop()


@pytest.fixture(scope="module")
def served(data: Path) -> Iterator[Running]:
    """Return a server with a session of a browser, for tests that only read."""
    one = Running(data, f"--token={TOKEN}").login()
    yield one
    one.stop()


def test_only_the_exact_hosts_are_answered(served: Running) -> None:
    """A name that an attacker lets lead to this machine is refused, with and without our port."""
    for host in (served.host, f"localhost:{served.port}", f"LOCALHOST:{served.port}"):
        assert served.get("/", host=host).status == 200
    names = ("evil.example", "127.0.0.1.evil.example", "localhost.", f"x@{served.host}")
    wrong = [f"{name}:{served.port}" for name in names]
    for host in (*wrong, "evil.example", "127.0.0.1", f"127.0.0.1:{served.port + 1}"):
        assert served.get("/", host=host).status in {400, 421}, host
    start, end = "GET / HTTP/1.1\r\n", f"Cookie: {served.cookie}\r\nConnection: close\r\n\r\n"
    twice = f"Host: {served.host}\r\nHost: evil.example\r\n"
    assert served.raw((start + twice + end).encode()).status == 400
    assert served.raw((start + end).encode()).status == 400
    old = f"GET / HTTP/1.0\r\n{end}"
    assert served.raw(old.encode()).status == 421
    absolute = f"GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n{end}"
    assert served.raw(absolute.encode()).status in {400, 421}


def test_other_sites_are_refused(served: Running) -> None:
    """An Origin that is not ours, or a request that a browser marks as another site's, is refused."""
    own = f"http://{served.host}"
    assert served.get("/", f"Origin: {own}", "Sec-Fetch-Site: same-origin").status == 200
    assert served.get("/", "Sec-Fetch-Site: none").status == 200
    other = ("null", "https://evil.example", "http://127.0.0.1")
    for origin in (*other, f"https://{served.host}", f"{own}/"):
        assert served.get("/", f"Origin: {origin}").status == 403, origin
    for site in ("cross-site", "same-site", "", "same-origin, none"):
        assert served.get("/", f"Sec-Fetch-Site: {site}").status == 403, site
    assert served.get("/", f"Origin: {own}", "Origin: https://evil.example").status == 403


@pytest.mark.parametrize(
    "method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "get", "BREW"]
)
def test_only_reading_methods_are_answered(served: Running, method: str) -> None:
    """Each method but GET and HEAD is refused, with or without the cookie."""
    answer = served.get("/", method=method)
    assert answer.status == 405 or (method == "get" and answer.status == 400)
    if answer.status == 405:
        assert answer.headers["allow"] == "GET, HEAD"


def test_nothing_is_shown_without_the_cookie(data: Path, serve: Serve) -> None:
    """Pages, events, pictures, scripts and updates need it; a wrong, empty or double token sets none."""
    one = serve(data)
    token = parse_qs(urlsplit(one.url).query)["token"][0]
    paths = [
        "/", "/session?id=support/42", "/event?id=support/42&seq=2", "/static/page.js", "/nowhere",
        "/live?id=support/42", "/picture?id=support/42&seq=11&n=0",
    ]  # fmt: skip
    wrong = ("", "x", token[:-1], f"{token}x", f"{token}&token=x", "%00%ff")
    for path in (*paths, *(f"/?token={text}" for text in wrong)):
        answer = one.get(path)
        assert (answer.status, answer.headers.get("set-cookie")) == (401, None), path
        assert b"support" not in answer.body
    for cookie in ("hansard=1", "hansard_00=1; x", "=", '"', "hansard_\xff=\xff"):
        one.cookie = cookie
        assert one.get("/").status == 401


def test_a_token_works_once_and_the_next_is_printed(data: Path, serve: Serve) -> None:
    """The first use sets a strict cookie that scripts cannot read; the second is refused."""
    one = serve(data)
    path = f"/?{urlsplit(one.url).query}"
    assert one.get(path, method="HEAD").status == 303  # a preview of the link uses nothing up
    done = one.get(f"{path.replace('/?', '/session?')}&id=support/42")
    assert (done.status, done.headers["location"]) == (303, "/session?id=support%2F42")
    assert {"HttpOnly", "SameSite=strict", "Path=/"} < {*done.headers["set-cookie"].split("; ")}
    assert one.get(path).status == 401
    assert one.process.stderr is not None
    assert select.select([one.process.stderr], [], [], 60)[0]
    (printed,) = re.findall(r"http://\S+", one.process.stderr.readline())
    assert one.get(f"/?{urlsplit(printed).query}").status == 303


def test_a_redirect_leads_to_this_server_only(served: Running) -> None:
    """A token at a path that looks like a host does not lead to that host."""
    hosts = ("//evil.example", "//evil.example/%2e", "/\\evil.example")
    for path in (*hosts, "/%0d%0aSet-Cookie:x=1"):
        answer = served.get(f"{path}?token={TOKEN}")
        location = answer.headers["location"]
        assert location.startswith("/")
        assert not location.startswith(("//", "/\\"))
        assert "\n" not in location


def test_every_answer_has_the_policy(served: Running) -> None:
    """Pages, files, errors and refusals forbid all but the server's own files, caching and guessing."""
    answers = [served.get(path) for path in ("/static/page.js", "/nowhere")]
    answers += [served.page("session", id=id) for id in ("support/42", "x")]
    answers += [served.get("/", method="POST"), served.get("/", host="evil.example")]
    answers.append(served.page("event", id="support/42", seq=2))
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert policy.startswith(
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'"
        )
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert "server" not in answer.headers


def test_hostile_texts_stay_texts(served: Running) -> None:
    """Scripts, markup, links and control characters in messages, titles and ids are escaped."""
    listed = served.page("").text
    shown = served.page("session", id="attack").text
    raw = served.page("session", id="attack", raw="on").text
    for text in (listed, shown, raw, served.page("search", q="window").text):
        assert "<script>window" not in text
        assert "<svg onload" not in text
        assert not re.search(r"<[^>]*\s(onerror|onload|onclick|style)=", text)
        assert not re.search(r'(href|src)="(javascript|data|//)', text)
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]", text)
        assert "49" not in re.findall(r"{{ (\S+) }}", text)
    assert "\\u202egnp.exe" in shown
    assert "evil.example/a.png" in shown
    assert "<img" not in shown
    for id in IDS:
        assert served.page("session", id=id).status in {200, 404}
    assert served.page("session", id=IDS[2]).status == 200


@pytest.mark.parametrize(
    "id", ["", "..", "../data", "a\0b", "\ud83d", "x" * 5000, "attack/", "~torn"]
)
def test_an_id_that_names_nothing_is_an_error_page(served: Running, id: str) -> None:
    """An id that is a path, empty, too long or malformed gives an error page, on each route."""
    for name in ("session", "time", "live", "event", "picture", "search"):
        query = quote(id.encode(errors="surrogatepass"))
        answer = served.get(f"/{name}?id={query}&seq=1&q=x")
        assert answer.status == 200 if name == "search" and not id else {400, 404}
        assert answer.status < 500
        assert b"Traceback" not in answer.body


def test_wrong_arguments_are_error_pages(served: Running) -> None:
    """Numbers, views, points and orders that cannot be are errors of the request, not of the server."""
    for query in ("before=x", "after=-1", "around=1e9", "view=all", "at=nothing", "before=1&after=1",
                  "before=99999999999999999999", "at=%D9%A1", "at=2026-99-99"):  # fmt: skip
        answer = served.get(f"/session?id=support/42&{query}")
        assert answer.status in {400, 404}, query
    for path in (
        "/?order=x", "/?since=x", "/?where=x", "/?cursor=x", "/event?id=support/42&seq=0",
        "/event?id=support/42&seq=99", "/picture?id=support/42&seq=11&n=9", "/compare?a=nope",
        "/time?id=support/42&at=nope",
    ):  # fmt: skip
        assert served.get(path).status in {400, 404}, path
    for path in ("../web.py", "%2e%2e/web.py", "..%2fweb.py", "/etc/passwd"):
        assert served.get(f"/static/{path}").status == 404, path


def test_credentials_are_replaced(data: Path, served: Running, serve: Serve) -> None:
    """No route shows one, unless the server was started to show them."""
    for path in (
        "/session?id=support/42", "/session?id=support/42&raw=on", "/event?id=support/42&seq=13",
        "/search?q=keep", "/time?id=support/42", "/compare?a=support/42&b=support/42-b",
    ):  # fmt: skip
        assert SECRET not in served.get(path).text, path
    open_server = serve(data, "--unredacted").login()
    assert SECRET in open_server.get("/session?id=support/42").text


def test_a_prefix_confines_every_page(data: Path, serve: Serve) -> None:
    """Sessions outside of the prefix do not exist: not in lists, searches, pages, events or counts."""
    one = serve(data, "--prefix=plans/").login()
    assert "Refund" not in one.page("").text
    assert "Refund" not in one.page("search", q="refund").text
    assert "support" not in one.page("stats").text
    for name in ("session", "time", "live", "event", "picture"):
        assert one.page(name, id="support/42", seq=2, n=0).status == 404
    assert one.page("compare", a="plans/launch", b="support/42").status == 404
    assert one.page("session", id="plans/launch").status == 200


def test_a_public_address_is_the_only_one(data: Path, serve: Serve) -> None:
    """With a proxy, pages and links are below its path, and its host and origin alone are answered."""
    one = serve(data, "--public=https://pages.example/hansard/")
    assert one.url.startswith("https://pages.example/hansard/?token=")
    query = urlsplit(one.url).query
    done = one.get(f"/hansard/?{query}", host="pages.example")
    assert "Secure" in done.headers["set-cookie"]
    assert "Path=/hansard/" in done.headers["set-cookie"]
    assert done.headers["location"] == "/hansard/"
    one.cookie = done.headers["set-cookie"].split(";")[0]
    for path in ("/hansard/", "/"):  # a proxy may keep the path, or remove it
        answer = one.get(path, host="pages.example")
        assert answer.status == 200
        links = re.findall(r'(?:href|src|action)="(/[^"]*)"', answer.text)
        assert links
        assert all(link.startswith("/hansard/") for link in links)
    assert one.get("/hansard/").status == 421
    foreign = f"Origin: http://127.0.0.1:{one.port}"
    assert one.get("/hansard/", foreign, host="pages.example").status == 403


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--host=0.0.0.0",), "--token"),
        (("--host=::",), "--token"),
        (("--token=short",), "16 characters"),
        (("--public=ftp://x",), "--public"),
        (("--host=192.0.2.1", f"--token={TOKEN}"), "cannot listen on 192.0.2.1"),
    ],
)
def test_an_unsafe_start_is_refused(data: Path, options: tuple[str, ...], reason: str) -> None:
    """An address of other machines needs a token, and a token a length; nothing is served otherwise."""
    with pytest.raises(AssertionError, match=re.escape(reason)):
        Running(data, *options)


def test_a_store_that_is_damaged_while_it_is_shown(tmp_path: Path, serve: Serve) -> None:
    """The page of a damaged session has the error; the others, the list and the server work."""
    with hansard.open(tmp_path / "data") as store:
        session = store.session("a")
        for number in range(200):
            session.add_message({"role": "user", "content": f"message {number}"})
        store.session("b").add_message({"role": "user", "content": "sound"})
    one = serve(tmp_path / "data").login()
    assert one.page("session", id="a").status == 200
    (log,) = [path for path in tmp_path.rglob("*.jsonl") if b"message 100" in path.read_bytes()]
    content = log.read_bytes().replace(b"message 100", b"massage 100")
    log.write_bytes(content)
    answer = one.page("session", id="a", around=100)
    assert answer.status == 500
    assert "hansard" in answer.text
    assert "Traceback" not in answer.text
    assert one.page("session", id="b").status == 200
    assert one.page("").status == 200
    assert one.page("health", verify="1").status == 200
    verified = one.page("health", verify="1").text
    assert "checksum" in verified
    assert "Damage in 1 of 2 sessions." in verified


def test_an_interrupt_ends_open_pages_quietly(data: Path, serve: Serve) -> None:
    """Ctrl-C ends a server whose live updates are being read, without a traceback."""
    one = serve(data).login()
    with socket.create_connection(("127.0.0.1", one.port), timeout=60) as made:
        request = (
            f"GET /live?id=attack HTTP/1.1\r\nHost: {one.host}\r\nCookie: {one.cookie}\r\n\r\n"
        )
        made.sendall(request.encode())
        while b"data: " not in made.recv(65536):
            pass
        one.process.send_signal(signal.SIGINT)
        err = one.process.communicate(timeout=60)[1]
    assert "Traceback" not in err
    assert one.process.returncode == 130


def test_a_session_shows_times_notes_and_branches(served: Running) -> None:
    """Turns, calls and pauses are timed; a note is at its message, and a fork where it began."""
    shown = served.page("session", id="support/42").text
    for text in ("turn 16.7 s", "read_file, 4.0 s", "31 min 40 s passed", "Files touched"):
        assert text in shown, text
    message = shown[shown.index('id="e11"') : shown.index("</article>", shown.index('id="e11"'))]
    assert "<strong>polite</strong>" in message
    after = shown[shown.index("</article>", shown.index('id="e11"')) : shown.index('id="e13"')]
    assert re.findall(r'class="tag">(\w+)<', after) == ["fork", "subagent"]
    assert "/session?id=support%2F42-b&amp;part=1&amp;after=12" in after
    saw = served.page("session", id="support/42", view="model", at=8).text
    assert re.search(r"what the model saw · 5 messages · about \d+ tokens", saw)


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ({"title": "refund"}, ["support/42", "support/42-b"]),
        ({"where": "user=u7"}, ["support/42", "support/42-b"]),
        ({"where": 'user="u7"', "prefix": "support/42-"}, ["support/42-b"]),
        ({"until": "2026-09-21T14:45:55"}, ["support/42/agent-1"]),
        ({"since": "2026-09-22"}, []),
        ({"show": "archived"}, []),
        ({"tree": "on", "order": "id", "prefix": "support"},
         ["support/42", "support/42-b", "support/42/agent-1"]),
        ({"parent": "support/42"}, ["support/42-b"]),
    ],
)  # fmt: skip
def test_the_list_is_filtered(served: Running, query: dict[str, str], ids: list[str]) -> None:
    """The list has the filters of `hansard ls`, and a tree of forks."""
    shown = served.page("", **query).text
    assert re.findall(r'class="under"><code>([^<]+)<', shown) == ids
    if "tree" in query:
        assert re.findall(r"what depth-(\d+)", shown) == ["1"]


def test_an_id_is_shown_once(served: Running) -> None:
    """A session without a title is listed by its id, which is not repeated below."""
    shown = served.page("", prefix=IDS[2]).text
    assert shown.count(f">{IDS[2].replace('&', '&amp;')}<") == 1


def test_the_store_is_not_written(data: Path, served: Running) -> None:
    """Every page leaves each log as it was."""
    before = {path: path.read_bytes() for path in data.rglob("*.jsonl")}
    for path in ("/", "/session?id=support/42", "/time?id=support/42&at=4", "/stats", "/health?verify=1",
                 "/search?q=refund", "/compare?a=support/42&b=support/42-b"):  # fmt: skip
        assert served.get(path).status == 200, path
    assert {path: path.read_bytes() for path in data.rglob("*.jsonl")} == before
