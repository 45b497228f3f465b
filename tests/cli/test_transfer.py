"""Claims about `hansard export`, `import` and `copy`, through the real entry point."""

import os
import stat
from pathlib import Path

import hansard as library
from tests.cli.running import hansard


def messages(store: Path, session_id: str = "agent/1") -> list[dict[str, object]]:
    """Return the messages of a session."""
    with library.open(store, read_only=True) as opened:
        return opened.session(session_id).messages()


def test_what_export_writes_import_takes_in(store: Path, tmp_path: Path) -> None:
    """N-88: from store to store through a pipe; a second import does nothing."""
    out = hansard("export", "agent/1-b", "--unredacted", store=store)
    assert out.code == 0, out.err
    assert out.lines[0]["hansard"] == "export"
    assert out.lines[-1]["events"] == len(out.lines) - 2
    done = hansard("import", "-", "--json", store=tmp_path / "other", input=out.out)
    assert done.code == 0, done.err
    assert done.json["imported"][0] | {"file": ""} == {
        "file": "",
        "session": "agent/1-b",
        "events": 7,
        "already": False,
        "redacted": False,
        "redactions": 0,
    }
    assert messages(tmp_path / "other", "agent/1-b") == messages(store, "agent/1-b")
    again = hansard("import", "-", store=tmp_path / "other", input=out.out)
    assert (again.code, "already imported" in again.out) == (0, True)


def test_a_file_is_complete_and_overwrites_none(store: Path, tmp_path: Path) -> None:
    """N-85, N-88: mode 0600, no leftovers, and another file of the name stays unless --force."""
    path = tmp_path / "out" / "page.html"
    done = hansard("export", "agent/1", "--as", "html", "-o", path, "--json", store=store)
    assert done.code == 0, done.err
    written = done.json["written"][0]
    assert (written["session"], written["bytes"]) == ("agent/1", path.stat().st_size)
    assert path.read_text().startswith("<!DOCTYPE html>")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_text("mine")
    refused = hansard("export", "agent/1", "-o", path, store=store)
    assert refused.code == 1
    assert "--force" in refused.err
    assert len(refused.err.splitlines()) == 1
    assert path.read_text() == "mine"
    told = hansard("export", "agent/1", "--as", "jsonl", "-o", path, "--force", store=store)
    assert told.code == 0
    assert path.read_text().startswith('{"hansard":"export"')
    assert os.listdir(path.parent) == [path.name]


def test_the_ending_of_the_file_decides_the_format(store: Path, tmp_path: Path) -> None:
    """Without --as, .html and .md are transcripts, .parquet a table, and any other ending is JSONL."""
    heads = {
        b"<!DOCTYPE html>": ("a.html", "b.HTML"),
        b"# ": ("a.md", "a.markdown"),
        b"PAR1": ("a.parquet",),
        b'{"hansard":"export"': ("a.jsonl", "a.txt", "a"),
    }
    for head, names in heads.items():
        for name in names:
            assert hansard("export", "agent/1", "-o", tmp_path / name, store=store).code == 0
            assert (tmp_path / name).read_bytes().startswith(head)
    short = hansard("export", "agent/1", "--as", "md", store=store).out
    assert short == (tmp_path / "a.md").read_text()
    (tmp_path / "pages.html").mkdir()
    into = hansard("export", "agent/1", "-o", tmp_path / "pages.html", store=store)
    assert into.code == 0
    assert os.listdir(tmp_path / "pages.html") == ["agent%2F1.jsonl"]


def test_several_sessions_are_several_files(store: Path, tmp_path: Path) -> None:
    """Each session becomes a file in a directory, and one call imports all of them."""
    done = hansard("export", "agent/1", "agent/1-b", "-o", tmp_path / "out", store=store)
    assert done.code == 0, done.err
    files = sorted((tmp_path / "out").iterdir())
    assert [file.name for file in files] == ["agent%2F1-b.jsonl", "agent%2F1.jsonl"]
    page = tmp_path / "both.html"
    done = hansard("export", "agent/1", "agent/1-b", "-o", page, store=store)
    assert (done.code, "-o DIRECTORY/" in done.err, page.exists()) == (2, True, False)
    page.mkdir()
    assert hansard("export", "agent/1", "agent/1-b", "-o", page, store=store).code == 0
    done = hansard("import", *files, store=tmp_path / "other")
    assert (done.code, len(done.out.splitlines())) == (0, 2)
    assert messages(tmp_path / "other") == messages(store)


def test_what_is_exported_is_redacted_unless_told(tmp_path: Path) -> None:
    """N-66: a credential is in no export without --unredacted, whose output has a warning."""
    secret = "sk-ant-" + "api03-" + "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7" * 2
    with library.open(tmp_path / "store", durability="os") as opened:
        opened.session("s").add_message({"role": "user", "content": f"my key is {secret}"})
    for form in ("jsonl", "markdown", "html"):
        out = hansard("export", "s", "--as", form, store=tmp_path / "store")
        assert out.code == 0
        assert secret not in out.out
        assert "[redacted:" in out.out.replace("\\[", "[")
    told = hansard("export", "s", "--unredacted", "-o", tmp_path / "raw", store=tmp_path / "store")
    assert "may contain credentials" in told.err
    assert secret in (tmp_path / "raw").read_text()


def test_import_says_what_is_wrong(store: Path, tmp_path: Path) -> None:
    """N-84, N-88, N-89: a cut file, no file, another session there: the others are in, and the exit is 1."""
    complete, cut = tmp_path / "complete", tmp_path / "cut"
    assert hansard("export", "agent/1", "-o", complete, store=store).code == 0
    cut.write_bytes(complete.read_bytes()[:-200])
    target = tmp_path / "target"
    done = hansard("import", cut, tmp_path / "missing", complete, "--json", store=target)
    assert done.code == 1
    assert [one["session"] for one in done.json["imported"]] == ["agent/1"]
    assert list(done.json["failed"]) == [str(cut), str(tmp_path / "missing")]
    assert len(done.err.splitlines()) == 2
    with library.open(target) as opened:
        opened.session("agent/1-b").add_message({"role": "user", "content": "mine"})
    fork = hansard("export", "agent/1-b", store=store).out
    refused = hansard("import", "-", store=target, input=fork)
    assert refused.code == 1
    assert "exists and differs" in refused.err
    copied = hansard("import", "-", "--id", "copy", store=target, input=fork)
    assert copied.code == 0
    assert len(messages(target, "agent/1-b")) == 1


def test_copy_copies_and_goes_on(store: Path, tmp_path: Path) -> None:
    """N-84, N-88: all, then only new events; a different session is reported, with exit 1."""
    target = tmp_path / "target"
    done = hansard("copy", store, target, "--json")
    assert done.code == 0, done.err
    assert done.json == {"sessions": 2, "copied": 14, "found": 0, "ancestors": [], "failed": {}}
    assert messages(target) == messages(store)
    assert hansard("add", "agent/1", "more", store=store).code == 0
    done = hansard("copy", store, target, "agent/1", "--json")
    assert (done.json["copied"], done.json["found"]) == (1, 12)
    assert hansard("add", "agent/1", "here", store=target).code == 0
    assert hansard("add", "agent/1", "there", store=store).code == 0
    done = hansard("copy", store, target)
    assert done.code == 1
    assert "event 14 differs" in done.err
    assert messages(target)[-1]["content"] == "here"
