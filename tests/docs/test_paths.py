"""docs/architecture.md lists the modules that an append and a read pass."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

import hansard

PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"
SOURCE = str(Path(hansard.__file__).parent) + "/"
MESSAGE = {"role": "user", "content": "hello"}


def passed(call: Callable[[], object]) -> list[str]:
    """Return the modules of hansard whose functions a call runs, in the order of their first call."""
    found: dict[str, None] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(SOURCE):
            found[path.removeprefix(SOURCE).removesuffix(".py")] = None

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return list(found)


@pytest.mark.parametrize("name", ["append", "key", "read"])
def test_a_real_call_passes_the_listed_modules(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list on the page is what a trace of a warm call shows."""
    # As if the directory had been created long before: until then, each append checks its names (F-165).
    monkeypatch.setattr("hansard.log.store_directory._TICK", 0)
    with hansard.open(tmp_path / "store") as store:
        session = store.session("a")
        for number in range(2):
            session.add_message(MESSAGE, key=str(number))
            session.add_message(MESSAGE)
            session.messages()
        append = passed(lambda: session.add_message(MESSAGE))
        keyed = passed(lambda: session.add_message(MESSAGE, key="new"))
        read = passed(session.messages)
    real = {"append": append, "key": [m for m in keyed if m not in append], "read": read}[name]
    after = PAGE.read_text("utf-8").partition(f"<!-- path: {name} -->\n\n")[2]
    listed = re.findall(r"`([\w/]+)`", after.partition("\n\n")[0])
    assert listed == real
