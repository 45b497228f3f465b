"""The docs are true: their examples run, their links have targets, and the reference is current."""

import importlib
import inspect
import re
from pathlib import Path

import pytest

from hansard.event import kinds
from hansard.event.kinds import KINDS
from tests.programs import python
from tools import architecture, reference

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_OPTIONAL = re.compile(r"^```py\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")
_SENTENCE = re.compile(r"^- \*\*F-(\d+)\*\*", re.MULTILINE)
_END = re.compile(r"[.:]$", re.MULTILINE)


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize(
    "page", [page for page in PAGES if _BLOCK.search(page.read_text("utf-8"))], ids=_name
)
def test_examples_run(page: Path, tmp_path: Path) -> None:
    """The Python blocks of a page run from top to bottom, in an empty directory."""
    code = "\n".join(_BLOCK.findall(page.read_text("utf-8")))
    assert "assert" in code
    done = python("-W", "error", "-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("observe", "prometheus_client"),
        ("observe", "opentelemetry.sdk"),
        ("move", "duckdb"),
        ("move", "pandas"),
    ],
)
def test_examples_with_other_packages_run(name: str, package: str, tmp_path: Path) -> None:
    """The blocks of a guide that need another package run where it is installed."""
    pytest.importorskip(package)
    page = (ROOT / "docs" / "guides" / f"{name}.md").read_text("utf-8")
    (code,) = (block for block in _OPTIONAL.findall(page) if package in block)
    assert "assert" in code
    done = python("-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "name", ["claude-agent", "google-adk", "langgraph", "openai-agents", "pydantic-ai", "strands"]
)
def test_the_guide_of_a_framework_shows_usage_windows_and_streams(name: str) -> None:
    """Its headings name them, and its code, which runs, cuts a window."""
    text = (ROOT / "docs" / "guides" / f"{name}.md").read_text("utf-8")
    headings = " ".join(re.findall(r"^## .*", text, re.MULTILINE)).lower()
    assert all(word in headings for word in ("usage", "window", "stream"))
    assert any(".window(" in block for block in _BLOCK.findall(text))


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_have_targets(page: Path) -> None:
    """A link to a file of this repository names one that exists."""
    links = [link for link in _LINK.findall(page.read_text("utf-8")) if "://" not in link]
    missing = [link for link in links if not (page.parent / link).exists()]
    assert not missing


@pytest.mark.parametrize("name", ["README.md", "CHANGELOG.md"])
def test_headings_that_are_linked_exist(name: str) -> None:
    """A link from README or changelog to a heading names one that exists; the site checks the other pages."""
    linked = re.findall(r"\]\(([^)#:]*)#([^)]*)\)", (ROOT / name).read_text("utf-8"))
    missing = []
    for target, anchor in linked:
        headings = re.findall(
            r"^#+ (.*)$", (ROOT / (target or name)).read_text("utf-8"), re.MULTILINE
        )
        slugs = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
        if anchor not in slugs:
            missing.append(f"{target}#{anchor}")
    assert not missing


def test_cited_tests_exist() -> None:
    """Each test that a page of docs/ names is a file or a function under tests/."""
    files = list((ROOT / "tests").rglob("test_*.py"))
    known = {file.stem for file in files}
    for file in files:
        known |= set(re.findall(r"def (test_\w+)", file.read_text("utf-8")))
    pages = [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "reports").glob("*.md")]
    cited = {name for page in pages for name in re.findall(r"\btest_\w+", page.read_text("utf-8"))}
    assert sorted(cited - known) == []


@pytest.mark.parametrize("page", reference.PAGES)
def test_the_reference_is_fresh(page: str) -> None:
    """A page of the reference is what tools/reference.py generates from the docstrings."""
    written = (ROOT / "docs" / "reference" / page).read_text("utf-8")
    assert reference.page(page) == written, "run: python tools/reference.py --write"


@pytest.mark.parametrize(
    ("page", "module"), [(page, path) for page, paths in reference.PAGES.items() for path in paths]
)
def test_every_public_name_is_in_the_reference(page: str, module: str) -> None:
    """Each public name, and each public member that `dir()` shows of it, has an entry."""
    written = (ROOT / "docs" / "reference" / page).read_text("utf-8")
    assert not re.findall(r"^#+ `[^\n]*(?=\s*(?:^#|\Z))", written, re.MULTILINE), "no description"
    loaded = importlib.import_module(module)
    for name in reference.exported(loaded):
        thing = getattr(loaded, name)
        assert re.search(rf"`([a-z_.]+\.)?{name}[`(]", written), name
        if not inspect.isclass(thing) or issubclass(thing, Exception):
            continue
        assert thing.__doc__, name
        entries = written.partition(f"`{name}`" if module == "hansard" else f"`{module}.{name}`")[2]
        entries = entries.partition("\n## ")[0]
        foreign = {m for base in thing.__mro__ if not _ours(base) for m in dir(base)}
        for member in set(dir(thing)) - foreign:
            if not member.startswith("_"):
                assert re.search(rf"`([\w.]+\.)?{member}[`(]", entries), f"{name}.{member}"


def test_a_guide_names_every_public_name() -> None:
    """No name is public, and no member of a public class, that no guide mentions."""
    guides = " ".join(page.read_text("utf-8") for page in (ROOT / "docs/guides").glob("*.md"))
    listed = (ROOT / "tests/unit/public_names.txt").read_text("utf-8")
    names = re.findall(r"^[\w.]*?(\w+)(?=[(:]|$)", listed, re.MULTILINE)
    assert len(names) > 300
    assert sorted(set(names) - set(re.findall(r"\w+", guides))) == []


def _ours(thing: type) -> bool:
    return thing.__module__.partition(".")[0] == "hansard"


def test_every_kind_of_the_adapters_and_importers_is_documented() -> None:
    """docs/events.md names each kind that our adapters, importers and exporters append, and no other."""
    said = {
        kind
        for place in ("adapters/*", "importers/*", "message/*", "exporters")
        for module in (ROOT / "src/hansard").glob(f"{place}.py")
        for kind in re.findall(r'"(x\.[a-z_]+\.[a-z_]+)"', module.read_text())
    }
    table = (ROOT / "docs/events.md").read_text().partition("adapters and importers\n")[2]
    assert said == set(re.findall(r"`(x\.[a-z_]+\.[a-z_]+)`", table.partition("\n## ")[0]))
    assert len(said) > 10


def test_every_kind_of_event_is_documented() -> None:
    """docs/events.md has a row for each kind, with each member of its data, and for no other."""
    page = (ROOT / "docs" / "events.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| `([a-z]+\.[a-z]+)` \|([^|]*)\|", page, re.MULTILINE))
    audited = {
        "retention.set": "",
        "session.deleted": "session seq",
        "session.kept": "session record reason",
        "session.pruned": "session older_than max_size seq updated keep_last prefix workspace "
        "all_workspaces",
        "session.purged": "session seq created",
        "session.restored": "session seq",
    }
    prefixes = ("SESSION_", "RETENTION_")
    named = {kind for name, kind in vars(kinds).items() if name.startswith(prefixes)}
    assert audited.keys() == named - KINDS.keys()
    members = {kind: list(shape.__struct_fields__) for kind, shape in KINDS.items()}
    members |= {kind: names.split() for kind, names in audited.items()}
    assert {kind: re.findall(r"`(\w+)`", row) for kind, row in rows.items()} == members


def test_a_requirement_of_the_format_is_one_or_two_sentences() -> None:
    """Each of at most a hundred requirements has its own number and one or two sentences."""
    page = (ROOT / "docs/format.md").read_text("utf-8")
    items = re.findall(r"^- \*\*F-(\d+)\*\* (.*\n(?:  .*\n)*)", page, re.MULTILINE)
    numbers = [number for number, _ in items]
    assert numbers == _SENTENCE.findall(page)
    assert 40 < len(numbers) == len(set(numbers)) <= 100
    assert not [number for number, text in items if len(_END.findall(text)) > 2]


def test_tests_cite_every_requirement_of_the_format() -> None:
    """Each F-number of docs/format.md is cited by a test; source and tests cite no other."""
    known = set(_SENTENCE.findall((ROOT / "docs/format.md").read_text("utf-8")))
    tested: set[str] = set()
    for file in [*(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]:
        cited = set(re.findall(r"\bF-(\d+)\b", file.read_text("utf-8")))
        assert cited <= known, f"{_name(file)}: {sorted(cited - known)}"
        tested |= cited if file.is_relative_to(ROOT / "tests") else set()
    assert sorted(known - tested) == []


def test_the_architecture_lists_every_module() -> None:
    """The table in docs/architecture.md has a row for each module of hansard, and for no other."""
    rows = re.compile(r"^\| `([\w/]+\.py)` \|", re.MULTILINE)
    listed = rows.findall(architecture.PAGE.read_text("utf-8"))
    assert listed == rows.findall(architecture.table()), "run: python tools/architecture.py --write"
