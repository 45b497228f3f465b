"""`hansard tree`: the lineage of a session, drawn."""

from pathlib import Path

import pytest

import hansard as library
from hansard.cli.commands import ls as lineages
from tests.cli import samples
from tests.cli.running import hansard


@pytest.fixture
def family(tmp_path: Path) -> Path:
    """Return a store with a session, two forks, a fork of a fork, and an unrelated session."""
    path = tmp_path / "family"
    with library.open(path, durability="os") as store:
        root = store.create("root", metadata={"title": "The first"})
        root.add_messages([{"role": "user", "content": f"{n}"} for n in range(5)])
        one = root.fork("one", at=2)
        one.add_message({"role": "user", "content": "another way"})
        two = root.fork("two", at=4)
        two.set_metadata(title="The second")
        one.fork("one-and-a-half")
        store.session("stranger").add_message({"role": "user", "content": "hi"})
    return path


def drawn(out: str) -> list[str]:
    """Return the first column of a drawing."""
    width = out.splitlines()[0].index("TITLE")
    return [line[:width].rstrip() for line in out.splitlines()[1:]]


@pytest.mark.parametrize("named", ["root", "one-and-a-half"])
def test_the_complete_lineage_is_drawn(named: str, family: Path) -> None:
    """From any member of a family the same tree is drawn, with fork seqs, titles and message counts."""
    done = hansard("tree", named, store=family)
    assert (done.code, done.err) == (0, "")
    assert drawn(done.out) == ["root", "├─ one", "│  └─ one-and-a-half", "└─ two"]
    two = done.out.splitlines()[4]
    assert two.split()[2:7] == ["The", "second", "4", "3", two.split()[6]]
    lines = hansard("tree", named, "--json", store=family).lines
    assert [(line["depth"], line["id"], line["forked_at"]) for line in lines] == [
        (0, "root", 0),
        (1, "one", 2),
        (2, "one-and-a-half", 4),
        (1, "two", 4),
    ]


def test_forks_of_a_deleted_session_say_so(family: Path) -> None:
    """N-51: a deleted parent is not in the tree; its forks are roots and name it."""
    assert hansard("rm", "root", "--yes", store=family).code == 0
    done = hansard("tree", "--all", store=family)
    assert "root" not in drawn(done.out)
    assert drawn(done.out) == ["one", "└─ one-and-a-half", "stranger", "two"]
    assert done.out.count("fork of root, which is in the trash") == 2


def test_a_damaged_member_is_flagged_or_missed_aloud(family: Path) -> None:
    """N-35: a damaged fork without a readable parent is reported; damage in the root flags all."""
    samples.damage(family, "two")
    done = hansard("tree", "root", store=family)
    assert done.code == 0
    assert drawn(done.out) == ["root", "└─ one", "   └─ one-and-a-half"]
    assert done.err.startswith("hansard: 1 damaged session is not shown")
    log = family / "sessions" / "root" / "log.jsonl"
    log.write_bytes(log.read_bytes().replace(b'"content":"0"', b'"content":"9"'))
    flagged = hansard("tree", "one", store=family)
    assert flagged.code == 1
    assert drawn(flagged.out) == ["root", "└─ one", "   └─ one-and-a-half"]
    assert flagged.out.count("damaged") == 3
    assert "hansard: root is damaged: " in flagged.err


def info(id: str, parent: str | None = None, created: str = "2026") -> library.SessionInfo:
    """Return a line of a listing."""
    return library.SessionInfo(id=id, parent=parent, created_stamp=created)


def test_a_long_chain_is_drawn_in_bounded_lines() -> None:
    """N-52: a chain of 5,000 forks is drawn without recursion, and no line grows with the depth."""
    chain = [info("0"), *(info(str(n), str(n - 1)) for n in range(1, 5_000))]
    parents = {one.id: one.parent for one in chain if one.parent is not None}
    nodes = lineages.forest(chain, parents, 10)
    assert [node.depth for node in nodes] == list(range(5_000))
    assert max(len(node.drawn) for node in nodes) <= 32
    assert nodes[10].drawn == "   " * 9 + "└─ "
    assert nodes[11].drawn == "… " + "   " * 9 + "└─ "


def test_a_namesake_is_not_a_parent(tmp_path: Path) -> None:
    """N-51: a session that began after a fork is not drawn above it, unless it is its parent."""
    with library.open(tmp_path / "s", durability="os") as store:
        store.session("old").add_message({"role": "user", "content": "hi"})
        store.session("old").fork("fork")
        known = store.sessions().items
        assert lineages.related(store, known) == {"fork": "old"}
        # The clock was set back: the logs know better.
        later = [info("old", created="2027"), info("fork", "old")]
        assert lineages.related(store, later) == {"fork": "old"}
        # Another one under the same name.
        store.session("new").add_message({"role": "user", "content": "hi"})
        assert lineages.related(store, [info("new", created="2027"), info("x", "new")]) == {}
