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
    """The wheel has the package and its metadata: no tests, no test tools."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = [Path(name) for name in archive.namelist()]
    assert {name.parts[0] for name in names} == {"hansard", "hansard-0.1.0.dist-info"}
    modules = {name.parts[1].removesuffix(".py") for name in names if name.parts[0] == "hansard"}
    assert sorted(modules) == MODULES
    assert Path("hansard/event/vendor_keys.txt") in names
