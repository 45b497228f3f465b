"""The pictures in the README show what the command shows today."""

import html
import re
from pathlib import Path
from xml.etree import ElementTree as ET

from tools import record

ROOT = Path(__file__).parents[2]


def words(picture: str) -> str:
    """Return what can be read in a picture: how it is drawn is for each version of Rich to decide."""
    said = "\n".join(re.findall(r"<text[^>]*>(.*?)</text>", picture, re.DOTALL))
    return html.unescape(said).replace("\N{NO-BREAK SPACE}", " ")


def test_the_pictures_are_fresh() -> None:
    """Each picture is what tools/record.py makes of the command today, and a page shows it."""
    shown = (ROOT / "README.md").read_text("utf-8") + (ROOT / "docs/guides/mcp.md").read_text(
        "utf-8"
    )
    recorded = record.record()
    assert sorted(recorded) == ["ls-tree", "mcp", "replay", "stats"]
    for name, (sent, drawn) in recorded.items():
        kept = (ROOT / "docs" / "images" / f"{name}.svg").read_text("utf-8")
        assert words(drawn) == words(kept), "run: python tools/record.py --write"
        assert f"images/{name}.svg" in shown
        assert name == "mcp" or "\x1b[" in sent, "it was recorded in a terminal"
        ET.fromstring(kept)  # noqa: S314 - our own
        # Nothing is fetched from elsewhere: the one address in it is the name of SVG itself.
        assert re.findall(r"https?://[^\s\"']+", kept) == ["http://www.w3.org/2000/svg"]
