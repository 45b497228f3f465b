"""`hansard serve` in Chromium: every screen, wide and narrow, light and dark, and what scripts add to it.

Skipped without Debian's `chromium`. With HANSARD_TEST_SCREENSHOTS, pictures of all screens are written there.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

import hansard
from tests.cli.running import hansard as command
from tests.viewer.stores import IDS, SECRET, fill
from tests.viewer.test_guard import TOKEN, Running

CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.skipif(
        CHROMIUM is None, reason="needs Debian's chromium: apt-get install chromium"
    ),
    pytest.mark.timeout(600),
]

#: Without a sandbox, since tests may run as root; and without the browser's own requests.
FLAGS = """--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync""".split()  # noqa: SIM905 - as in a shell

SCREENS = {
    "sessions": "/",
    "none-found": "/?title=nothing",
    "tree": "/?tree=on&since=2026-01-01",
    "session": "/session?id=support/42",
    "focus": "/session?id=support/42&focus=on",
    "raw": "/session?id=support/42&raw=on&role=assistant",
    "model-saw": "/session?id=support/42&view=model&at=8",
    "long": "/session?id=plans/launch&around=60",
    "attack": "/session?id=attack",
    "words": "/session?id=words",
    "time": "/time?id=support/42&at=9",
    "compare": "/compare?a=support/42&b=support/42-b",
    "compare-empty": "/compare",
    "search": "/search?q=refund",
    "search-empty": "/search",
    "stats": "/stats",
    "health": "/health?verify=1",
    "error": "/session?id=missing",
}

#: Collects what the policy of the page stopped.
_WATCH = """
window.stopped = [];
addEventListener("securitypolicyviolation", (event) => window.stopped.push(event.blockedURI));
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a filled store, with one session of 100,000 messages."""
    path = tmp_path_factory.mktemp("page") / "data"
    with hansard.open(path, durability="os") as opened:
        fill(opened)
        long = opened.session("long")
        for first in range(0, 100_000, 5_000):
            long.add_messages(
                [{"role": "user", "content": f"message {n}"} for n in range(first, first + 5_000)]
            )
    return path


@pytest.fixture
def opened(store: Path) -> Iterator[hansard.Store]:
    """Return the store that is served, for other writers."""
    with hansard.open(store, durability="os") as made:
        yield made


@pytest.fixture(scope="module")
def served(store: Path) -> Iterator[Running]:
    """Return a server of the store."""
    one = Running(store, f"--token={TOKEN}")
    yield one
    one.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Return Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield started
        started.close()


class Tab:
    """A page of a browser that has logged in, and its errors."""

    def __init__(self, browser: Any, served: Running | Path, **how: Any) -> None:
        files = isinstance(served, Path)
        self.origin = f"file://{served}/" if isinstance(served, Path) else f"http://{served.host}/"
        context = browser.new_context(base_url=self.origin, **how)
        context.add_init_script(_WATCH)
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        self.context = context
        self.page = context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda said: self.complaints.append(f"{said.type}: {said.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        if not files:
            self.page.goto(f"{self.origin}?token={TOKEN}")

    def axe(self, name: str = "") -> None:
        """Assert that axe finds nothing."""
        from axe_playwright_python.sync_playwright import Axe

        # It would fetch style sheets, which the policy of a file forbids. The order of headings is that of
        # the messages.
        options = {"preload": False, "rules": {"heading-order": {"enabled": False}}}
        done = Axe().run(self.page, options=options)
        found = cast("dict[str, Any]", done.response)["violations"]
        assert [(one["id"], [node["html"] for node in one["nodes"]]) for one in found] == [], name

    def check(self) -> None:
        """Assert that nothing failed, nothing was stopped, and nothing was requested from elsewhere."""
        assert self.complaints == []
        assert self.page.evaluate("window.stopped") == []
        assert self.page.evaluate("window.broken") is None
        assert all(url.startswith(self.origin) for url in self.requests), self.requests


@pytest.fixture
def tab(browser: Any, served: Running) -> Iterator[Tab]:
    """Return a wide, light tab."""
    made = Tab(browser, served, viewport={"width": 1280, "height": 900}, color_scheme="light")
    yield made
    made.context.close()


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_every_screen(browser: Any, served: Running, width: int, scheme: str) -> None:
    """No screen has an error, a stopped request, a finding of axe, too wide a line, or a tall head."""
    tab = Tab(browser, served, viewport={"width": width, "height": 900}, color_scheme=scheme)
    pictures = os.environ.get("HANSARD_TEST_SCREENSHOTS")
    for name, path in SCREENS.items():
        tab.page.goto(path)
        if name == "words":
            tab.page.keyboard.press("f")
            tab.page.wait_for_selector("pre[tabindex]:visible")
        tab.axe(name)
        assert tab.page.evaluate("document.documentElement.scrollWidth") <= width, name
        assert _box(tab, "h1")["height"] <= 120, name
        assert _box(tab, ".bar")["height"] <= 90, name
        if pictures:
            tab.page.evaluate("scrollTo(0, 0)")
            tab.page.screenshot(path=f"{pictures}/{name}-{width}-{scheme}.png")
        if name == "error":
            assert tab.complaints.pop().startswith(
                "error: Failed to load resource: the server responded"
            )
        tab.check()
    tab.context.close()


def test_an_append_of_another_process_appears(tab: Tab, store: Path) -> None:
    """A message of another process is added to the open page, and its text stays a text."""
    tab.page.goto("/session?id=plans/launch")
    text = "from elsewhere <img src=x onerror='window.broken=1'>"
    assert command("add", "plans/launch", text, store=store).code == 0
    tab.page.wait_for_selector("text=from elsewhere", timeout=60_000)
    assert tab.page.locator("#stream .item").last.inner_text().count("<img src=x") == 1
    tab.check()


def test_a_streamed_message_grows_and_is_shown_once(tab: Tab, opened: hansard.Store) -> None:
    """Parts appear while a message is streamed; when it is finished, it is there once."""
    session = opened.session("streamed")
    session.add_message({"role": "user", "content": "say it"})
    tab.page.goto("/session?id=streamed")
    with session.stream(role="assistant") as stream:
        stream.write("first words")
        stream.flush()
        tab.page.wait_for_selector(".unfinished >> text=first words", timeout=60_000)
    tab.page.wait_for_selector(".assistant:not(.unfinished)", timeout=60_000)
    assert tab.page.locator(".assistant").count() == 1
    assert tab.page.locator(".unfinished").count() == 0
    tab.check()


def test_focus_folds_what_comes_while_it_is_shown(tab: Tab, opened: hansard.Store) -> None:
    """Steps that come are folded with those before, once each, and an open fold stays open."""
    session = opened.session("focused")
    session.add_message({"role": "user", "content": "do it"})
    session.add_message({"role": "assistant", "content": "first step"})
    tab.page.goto("/session?id=focused&focus=on")
    assert tab.page.locator(".run").count() == 0
    session.add_message({"role": "assistant", "content": "second step"})
    tab.page.wait_for_selector("#e3", timeout=60_000)
    assert tab.page.inner_text(".run summary") == "1 step"
    tab.page.click(".run summary")
    session.add_message({"role": "assistant", "content": "the answer"})
    tab.page.wait_for_selector("#e4", timeout=60_000)
    assert tab.page.inner_text(".run summary") == "2 steps"
    assert tab.page.locator("#e2").is_visible()
    assert tab.page.locator("#stream .item").count() == 4
    tab.check()


def test_a_reader_who_scrolled_up_stays_there(tab: Tab, opened: hansard.Store) -> None:
    """New messages do not move the page of a reader; a button leads to them."""
    tab.page.goto("/session?id=plans/launch")
    tab.page.evaluate("scrollTo({top: 300, behavior: 'instant'})")
    assert tab.page.evaluate("scrollY") == 300
    opened.session("plans/launch").add_message({"role": "assistant", "content": "one more"})
    tab.page.wait_for_selector("#pill:visible", timeout=60_000)
    assert tab.page.evaluate("scrollY") == 300
    tab.page.click("#pill")
    tab.page.wait_for_selector("#pill", state="hidden")
    tab.check()


def _box(tab: Tab, query: str) -> dict[str, float]:
    return cast("dict[str, float]", tab.page.locator(query).bounding_box())


def _burst(session: hansard.Session, first: int, number: int) -> None:
    said = [{"role": "user", "content": f"burst {n}."} for n in range(first, first + number)]
    session.add_messages(said)


def test_more_than_a_page_at_once_leaves_nothing_out(tab: Tab, opened: hansard.Store) -> None:
    """A reader at the end sees the newest page, with a link to what is before; another one gets a button."""
    session = opened.session("burst")
    _burst(session, 1, 20)
    tab.page.goto("/session?id=burst")
    _burst(session, 21, 130)
    tab.page.wait_for_selector("text=burst 150.", timeout=60_000)
    assert tab.page.locator("#stream .item").count() == 50
    assert tab.page.locator("#e101").count() == 1
    tab.page.click("text=Earlier")
    tab.page.wait_for_selector("text=burst 100.")
    tab.page.goto("/session?id=burst")
    tab.page.evaluate("scrollTo({top: 300, behavior: 'instant'})")
    _burst(session, 151, 60)
    tab.page.wait_for_selector("#pill:visible", timeout=60_000)
    assert tab.page.locator("#e101").count() == 1
    tab.page.click("#pill")
    tab.page.wait_for_selector("text=burst 210.")
    assert tab.page.locator("#e161").count() == 1
    tab.check()


def test_a_page_that_follows_for_long_stays_small(tab: Tab, opened: hansard.Store) -> None:
    """Old entries leave a page that is always at its end, and its sums grow with the session."""
    session = opened.session("followed")
    _burst(session, 1, 40)
    tab.page.goto("/session?id=followed")
    for first in range(41, 400, 40):
        _burst(session, first, 40)
        tab.page.wait_for_selector(f"text=burst {first + 39}.", timeout=60_000)
        assert 40 < tab.page.locator("#stream .item").count() <= 300
    assert tab.page.locator("#e1").count() == 0
    session.record_usage(model="m", input_tokens=70, output_tokens=7, cost=0.5)
    tab.page.wait_for_selector("#about .rail >> text=0.5", timeout=60_000)
    assert "401 events" in tab.page.inner_text(".head .facts")
    tab.check()


def test_what_is_open_stays_open_while_a_session_grows(tab: Tab, opened: hansard.Store) -> None:
    """A fold, a fork in place and the chosen message stay; a note appears at its message."""
    page = tab.page
    session = opened.session("growing")
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    session.add_message({"role": "user", "content": "go"})
    session.add_message({"role": "assistant", "content": None, "tool_calls": [call]})
    session.fork("growing-b").add_message({"role": "user", "content": "other way"})
    page.goto("/session?id=growing")
    page.click(".branch summary")
    page.wait_for_selector(".branch article >> text=other way")
    page.click(".call summary")
    page.keyboard.press("g")
    session.add_message({"role": "tool", "tool_call_id": "c", "content": "its result"})
    page.wait_for_selector("#e3 >> text=result", timeout=60_000)
    session.append("x.note", {"text": "look here", "seq": 1})
    page.wait_for_selector("#e1 .note >> text=look here", timeout=60_000)
    assert page.locator(".call").first.get_attribute("open") is not None
    assert page.locator(".branch article >> text=other way").is_visible()
    assert page.locator("#e1.here").count() == 1
    assert page.locator("#stream .item").count() == 2
    tab.check()


def test_keys_move_fold_copy_and_explain(tab: Tab) -> None:
    """Each key of the guide has its documented effect."""
    page, keyboard = tab.page, tab.page.keyboard

    def here() -> str:
        return str(page.evaluate("document.querySelector('.here')?.id ?? ''"))

    page.goto("/session?id=support/42")
    for key, place in zip("gjnnpj", ("e1", "e2", "e3", "e11", "e3", "e4"), strict=True):
        keyboard.press(key)
        assert here() == place
    assert not page.locator("#e5").is_visible()
    keyboard.press("f")
    assert page.locator("#e5").is_visible()
    for key in "vjjc":
        keyboard.press(key)
    page.wait_for_selector("text=Copied a link to #e4-e9")
    link = page.evaluate("navigator.clipboard.readText()")
    assert link.endswith("/session?id=support%2F42&around=4#e4-e9")
    page.goto(link)
    page.wait_for_selector("#e9.picked")
    assert not page.locator("#e3.picked").count()
    keyboard.press("/")
    assert page.evaluate("document.activeElement.name") == "q"
    keyboard.press("j")  # a letter, in a field
    keyboard.press("Escape")
    keyboard.press("?")
    assert page.locator("#help").is_visible()
    keyboard.press("Escape")
    keyboard.press("k")
    keyboard.press("t")
    page.wait_for_url("**/time?**")
    tab.check()


def test_a_link_to_an_event_of_another_page_finds_it(tab: Tab) -> None:
    """`#e500` on the newest page of a long session loads the page that has event 500."""
    tab.page.goto("/session?id=long#e500-e502")
    tab.page.wait_for_selector("#e500.picked")
    assert tab.page.locator(".picked").count() == 3
    assert tab.page.locator(".item").count() <= 50
    tab.check()


def test_the_line_of_the_last_visit(tab: Tab, opened: hansard.Store) -> None:
    """What came since the last visit of this browser is below a line."""
    tab.page.goto("/session?id=support/42-b")
    assert tab.page.locator(".unread").count() == 0
    tab.page.goto("/")
    opened.session("support/42-b").add_message({"role": "user", "content": "since then"})
    tab.page.goto("/session?id=support/42-b")
    assert "since then" in tab.page.locator(".unread + .item").inner_text()
    tab.page.goto("/session?id=support/42-b")
    assert tab.page.locator(".unread").count() == 0
    tab.check()


def test_time_moves_and_plays(tab: Tab) -> None:
    """The slider leads to an event, and Play steps to the end and stops there."""
    page = tab.page
    page.goto("/time?id=support/42&at=2")
    page.locator("#scrub input[name=at]").press("ArrowRight")
    page.wait_for_url("**at=3")
    page.goto("/time?id=support/42&at=12")
    page.click("#play")
    page.wait_for_url("**at=14")
    page.wait_for_selector("#play:text-is('Play')")
    sliders = [_box(tab, query) for query in ("#scrub input[name=at]", "#clock")]
    assert len({(box["x"], box["width"]) for box in sliders}) == 1  # one is below the other
    page.select_option("#speed", "100")
    page.locator("#clock").press("Home")
    page.wait_for_url("**at=2026-09-21T14*")
    assert page.locator("output b").inner_text() == "1"
    assert page.locator("#speed").input_value() == "100"
    tab.check()


def test_forks_open_in_place_and_the_list_is_live(tab: Tab, store: Path) -> None:
    """A fork unfolds where it began, with its own messages; a new session appears in the open list."""
    page = tab.page
    page.goto("/session?id=support/42")
    page.click(".branch summary >> nth=0")
    page.wait_for_selector(".branch article >> text=I have asked the warehouse")
    assert page.locator("#e13").count() == 1
    page.goto("/compare?a=support/42&b=support/42-b")
    page.click("text=7 shared messages")
    assert page.locator(".shared article").count() == 5
    page.goto("/?prefix=new/")
    with page.expect_response("**/live"), hansard.open(store) as opened:
        page.wait_for_selector("text=No session matches")
        opened.session("new/1").add_message({"role": "user", "content": "hello"})
    page.wait_for_selector("text=new/1", timeout=60_000)
    tab.check()


def test_reading_and_searching_without_scripts(browser: Any, served: Running) -> None:
    """A browser without JavaScript lists, pages, filters, unfolds, searches and steps through time."""
    tab = Tab(browser, served, java_script_enabled=False)
    page = tab.page
    page.fill("[aria-label='Search all sessions']", "refund")
    page.press("[aria-label='Search all sessions']", "Enter")
    page.click(".hits a >> nth=0")
    page.wait_for_selector(".item")
    page.goto("/session?id=support/42")
    page.click(".call summary >> nth=0")
    assert "returned" in page.locator(".call >> nth=0").inner_text()
    page.select_option("select[name=role]", "user")
    page.click("form[data-auto] button")
    page.wait_for_url("**role=user**")
    assert page.locator(".item").count() == 2
    page.goto("/session?id=plans/launch")
    page.click("text=Earlier")
    page.wait_for_url("**before=**")
    page.click("text=Later")
    page.wait_for_url("**after=**")
    page.goto("/time?id=support/42&at=3")
    page.click("text=Forward")
    page.wait_for_url("**at=4**")
    assert "event 4 of" in page.locator("output").inner_text()
    tab.context.close()


def test_a_public_address_below_a_path_works_in_a_browser(
    browser: Any, store: Path, opened: hansard.Store
) -> None:
    """Links, scripts, live updates and forks in place stay below the path of the proxy."""
    one = Running(store, f"--token={TOKEN}", "--public=http://pages.localhost/hansard")
    rules = f"--host-resolver-rules=MAP pages.localhost 127.0.0.1:{one.port}"
    started = browser.browser_type.launch(executable_path=CHROMIUM, args=[*FLAGS, rules])
    one.host = "pages.localhost/hansard"
    tab = Tab(started, one)
    session = opened.session("proxied")
    session.add_message({"role": "user", "content": "over there"})
    session.fork("proxied-b").add_message({"role": "user", "content": "other way"})
    tab.page.goto("/hansard/?order=id&prefix=proxied")
    tab.page.click('.title >> text="proxied"')
    session.add_message({"role": "user", "content": "over here"})
    tab.page.wait_for_selector("text=over here", timeout=60_000)
    tab.page.click(".branch summary")
    tab.page.wait_for_selector(".branch article >> text=other way")
    tab.page.keyboard.press("G")
    tab.page.keyboard.press("t")
    tab.page.wait_for_url("http://pages.localhost/hansard/time?**")
    tab.page.click("text=Back")
    tab.check()
    started.close()
    one.stop()


def test_a_damaged_session_says_so_on_the_open_page(browser: Any, tmp_path: Path) -> None:
    """A page that is open when its session is damaged shows the reason, and keeps what it has."""
    path = tmp_path / "data"
    with hansard.open(path) as opened:
        opened.session("a").add_messages(
            [{"role": "user", "content": f"message {n}"} for n in range(20)]
        )
    one = Running(path, f"--token={TOKEN}")
    tab = Tab(browser, one)
    tab.page.goto("/session?id=a")
    (log,) = [path for path in tmp_path.rglob("*.jsonl") if b"message 10" in path.read_bytes()]
    log.write_bytes(log.read_bytes().replace(b"message 1", b"massage 1") + b"x\n")
    tab.page.wait_for_selector("#problem:visible", timeout=60_000)
    assert tab.page.locator(".item").count() == 20
    tab.context.close()
    one.stop()


def test_exported_pages_need_no_server(
    browser: Any, store: Path, opened: hansard.Store, tmp_path: Path
) -> None:
    """`export --as site` writes pages that link to each other, without credentials or what was not chosen."""
    said = [{"role": "user", "content": f"message {n}"} for n in range(700)]
    opened.session("middle").add_messages(said)
    ids = ["support/42", "attack", "middle", *(id for id in IDS if id.startswith("a"))]
    site = tmp_path / "pages"
    assert command("export", "--as=site", "-o", site, *ids, store=store).code == 0
    again = command("export", "--as=site", "-o", site, *ids, store=store)
    assert (again.code, "not an empty directory" in again.err) == (1, True)
    assert len([*site.glob("middle*.html")]) == 4
    assert not [
        path for path in site.iterdir() if path.is_file() and SECRET in path.read_text("latin-1")
    ]
    tab = Tab(browser, site, viewport={"width": 1280, "height": 900})
    page = tab.page
    page.goto(f"{tab.origin}index.html")
    assert page.locator(".list tbody tr").count() == len(ids)
    tab.axe()
    page.click("text=Refund for order 1042")
    assert page.locator("img.picture").evaluate("image => image.naturalWidth") == 40
    assert page.locator("text=support/42-b").count() == 0
    tab.axe()
    page.keyboard.press("f")
    assert page.locator("#e5").is_visible()
    for key in "/tc?":  # nothing to search or to step through
        page.keyboard.press(key)
    assert "search" not in page.locator("#help").inner_text()
    page.goto(f"{tab.origin}attack.html")
    page.goto(f"{tab.origin}middle.html#e500-e502")
    page.wait_for_selector("#e500.picked")
    assert page.locator(".picked").count() == 3
    page.click("text=Later >> nth=0")
    assert page.locator(".item >> nth=0").get_attribute("id") == "e601"
    page.click("text=Beginning >> nth=0")
    page.wait_for_selector("#e1")
    tab.check()
    tab.context.close()


def test_scripts_and_styles_are_small() -> None:
    """Scripts and styles take at most 60 KB in all."""
    static = Path(hansard.__file__).parent / "viewer" / "static"
    assert sum(path.stat().st_size for path in static.iterdir()) <= 60_000
