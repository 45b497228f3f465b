"""Measure the page: `hansard serve` with long and short sessions, and in Debian's Chromium.

The figures in seconds and bytes are divided by what they may be at most.
"""

import gzip
import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from time import perf_counter, time
from typing import Any, Final

import hansard
from tools.bench.result import Result, claim_of
from tools.bench.workload import alternate

LONG: Final = 100_000
SHORT: Final = 100
SESSIONS: Final = 10
TOKEN: Final = "the-token-of-a-benchmark"  # noqa: S105 - of this server


class _Server:
    """A server of a store, and a client of it."""

    def __init__(self, root: Path) -> None:
        command = [sys.executable, "-m", "hansard", "-s", str(root), "serve", "--port=0", "--json"]
        self.process = subprocess.Popen([*command, f"--token={TOKEN}"], stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        self.host = f"127.0.0.1:{json.loads(self.process.stdout.readline())['port']}"
        self._cookie = self._answer(f"/?token={TOKEN}").getheader("Set-Cookie", "").split(";")[0]

    def _answer(self, path: str, **headers: str) -> Any:
        client = HTTPConnection(self.host)
        client.request("GET", path, headers={"Connection": "close", **headers})
        answer = client.getresponse()
        answer.peek(1)
        self.first_byte = perf_counter()
        answer.read()
        return answer

    def first(self, path: str) -> float:
        """Return the seconds until the first byte of a page."""
        begin = perf_counter()
        answer = self._answer(path, Cookie=self._cookie)
        assert answer.status == 200, (path, answer.status)  # noqa: PLR2004 - it was found
        return self.first_byte - begin

    def memory(self) -> int:
        """Return the resident memory in bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return 1024 * int(line.split()[1])


@contextmanager
def _serving(root: Path) -> Iterator[_Server]:
    server = _Server(root)
    try:
        yield server
    finally:
        server.process.terminate()
        server.process.wait()


def _fill(root: Path, sessions: dict[str, int]) -> Path:
    """Create sessions with a number of messages each."""
    with hansard.open(root, durability="os") as store:
        for id, count in sessions.items():
            for first in range(0, count, 5_000):
                said = [
                    {
                        "role": ("user", "assistant")[n % 2],
                        "content": f"message {n} " + "words " * 40,
                    }
                    for n in range(first, min(first + 5_000, count))
                ]
                store.session(id).add_messages(said)
    return root


def newest_page(directory: Path) -> Result:
    """First byte of the newest page of a session of 100,000 messages, and of one of 100."""
    with _serving(_fill(directory / "store", {"long": LONG, "short": SHORT, "other": 1})) as server:
        server.first("/")
        server.first("/session?id=other")
        short_cold, long_cold = (server.first(f"/session?id={id}") for id in ("short", "long"))
        ours, theirs, ratio = alternate(
            lambda: server.first("/session?id=long"), lambda: server.first("/session?id=short"), 40
        )
    note = f"the first time {1000 * long_cold:.0f} and {1000 * short_cold:.0f} ms"
    return _result(
        newest_page, f"{1000 * ours:.1f} ms", f"{1000 * theirs:.1f} ms", ratio, 1.5, note
    )


def page_memory(directory: Path) -> Result:
    """Memory of the server after ten sessions of 100,000 messages were browsed, and ten of 100."""

    def browsed(name: str, count: int) -> int:
        root = _fill(directory / name, {f"s{n}": count for n in range(SESSIONS)})
        with _serving(root) as server:
            for n in range(SESSIONS):
                for place in (
                    "",
                    f"&around={count // 2}",
                    "&after=0&around=1",
                    f"&at={count // 2}",
                ):
                    server.first(f"/session?id=s{n}{place}")
                server.first(f"/time?id=s{n}&at={count // 2}")
            server.first("/")
            return server.memory()

    long, short = browsed("long", LONG), browsed("short", SHORT)
    shown = [f"{size / 2**20:.0f} MiB" for size in (long, short)]
    return _result(page_memory, shown[0], shown[1], long / short, 1.5)


@contextmanager
def _tab(server: _Server) -> Iterator[Any]:
    """Open a tab of Chromium that has logged in."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu"]
        found = shutil.which("chromium")
        page = playwright.chromium.launch(executable_path=found, args=flags).new_page()
        page.goto(f"http://{server.host}/?token={TOKEN}")
        yield page


def append_on_screen(directory: Path) -> Result:
    """Seconds from an append of another process until it is on the screen, and 0.5 s."""
    root = _fill(directory / "store", {"s": SHORT})
    watch = """said => new Promise(done => {
        const look = () => document.body.textContent.includes(said) && done(Date.now());
        new MutationObserver(look).observe(document.body, {childList: true, subtree: true});
    })"""
    took = []
    with _serving(root) as server, _tab(server) as page, hansard.open(root) as store:
        page.goto(f"http://{server.host}/session?id=s")
        for n in range(20):
            page.evaluate(f"void (window.found = ({watch})('appended {n}.'))")
            begin = time()
            store.session("s").add_message({"role": "user", "content": f"appended {n}."})
            took.append(page.evaluate("window.found") / 1000 - begin)
    longest = max(took)
    note = f"the longest of 20; the median is {statistics.median(took):.2f} s"
    return _result(append_on_screen, f"{longest:.2f} s", "0.5 s", longest / 0.5, 1, note)


def open_thousand(directory: Path) -> Result:
    """Opening a session of 1,000 messages in Chromium until it is loaded, and 150 ms."""
    loaded = "performance.getEntriesByType('navigation')[0].loadEventEnd"
    took = []
    with _serving(_fill(directory / "store", {"s": 1_000})) as server, _tab(server) as page:
        for _ in range(20):
            page.goto(f"http://{server.host}/session?id=s")
            page.wait_for_function(f"{loaded} > 0")
            took.append(page.evaluate(loaded))
    median = statistics.median(took)
    note = f"the median; the longest of 20 is {max(took):.0f} ms"
    return _result(open_thousand, f"{median:.0f} ms", "150 ms", median / 150, 1, note)


def page_bytes(_: Path) -> Result:
    """Bytes of script and style in all, and 60 KB."""
    static = Path(hansard.__file__).parent / "viewer" / "static"
    size = sum(path.stat().st_size for path in static.iterdir())
    return _result(page_bytes, f"{size / 1000:.1f} KB", "60 KB", size / 60_000, 1)


def page_in_wheel(_: Path) -> Result:
    """What the page and MCP add to the wheel, and 150 KB."""
    package = Path(hansard.__file__).parent
    files = [
        *package.glob("viewer/**/*.*"),
        *(package / "cli" / "commands" / name for name in ("serve.py", "mcp.py")),
    ]
    size = sum(len(gzip.compress(path.read_bytes())) for path in files if path.suffix != ".pyc")
    return _result(page_in_wheel, f"{size / 1000:.1f} KB", "150 KB", size / 150_000, 1)


def _result(
    function: Callable[..., object],
    ours: str,
    limit: str,
    ratio: float,
    target: float,
    note: str = "",
) -> Result:
    return Result(function.__name__, claim_of(function), ours, limit, ratio, target, note=note)


ALL: Final = [newest_page, page_memory, append_on_screen, open_thousand, page_bytes, page_in_wheel]
