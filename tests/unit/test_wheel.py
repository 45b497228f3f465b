"""What users install."""

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

MODULES = """
    __init__ __main__ adapters aio backend cli clock errors event exporters follow importers index log
    maintenance message observe prices py.typed session session_reader state store stream transfer viewer
    workspace
""".split()  # noqa: SIM905 - a table


def test_the_wheel_holds_the_product_only(tmp_path: Path) -> None:
    """The wheel has the package and its metadata, no tests; the page and MCP add at most 150 KB to it."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = [Path(name) for name in archive.namelist()]
        sizes = {one.filename: one.compress_size for one in archive.infolist()}
    assert {name.parts[0] for name in names} == {"hansard", "hansard-0.1.0.dist-info"}
    modules = {name.parts[1].removesuffix(".py") for name in names if name.parts[0] == "hansard"}
    assert sorted(modules) == MODULES
    assert Path("hansard/event/vendor_keys.txt") in names
    served = ("hansard/viewer/", "hansard/cli/commands/serve.py")
    assert 0 < sum(size for name, size in sizes.items() if name.startswith(served)) <= 150_000


def test_only_the_page_and_mcp_import_their_packages() -> None:
    """Opening a store, and every command but `serve` and `mcp`, import nothing of the extras web and mcp."""
    code = """
import sys
import hansard, hansard.aio, hansard.cli.app, hansard.cli.commands.serve
with hansard.open("memory:") as store:
    store.session("a").add_message({"role": "user", "content": "x"})
    b"".join(store.session("a").export("html"))
    store.search("x")
wanted = {"starlette", "uvicorn", "jinja2", "mcp", "anyio"}
print(sorted(wanted & {name.partition(".")[0] for name in sys.modules}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout == "[]\n"
