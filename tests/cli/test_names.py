"""A session can be named by a beginning of its id, as the newest, and as the last used one."""

from pathlib import Path
from typing import Any

import hansard as library
from tests.cli.running import hansard


def _store(path: Path) -> Path:
    with library.open(path / "s", durability="os") as store:
        for name in ("support/41", "support/42", "triage/7"):
            store.session(name).add_message({"role": "user", "content": f"in {name}"})
    return path / "s"


def _shown(store: Path, name: str, **variables: Any) -> str:
    done = hansard("show", name, "--json", store=store, **variables)
    assert done.code == 0, done.err
    found = done.json["session"]
    assert isinstance(found, str)
    return found


def test_a_unique_beginning_is_enough(tmp_path: Path) -> None:
    """A beginning names the only session that has it; with several, the error lists them."""
    store = _store(tmp_path)
    assert _shown(store, "tri") == "triage/7"
    assert hansard("diff", "tri@1", "triage/7", store=store).code == 0
    assert hansard("fork", "tri", "b", store=store).out == "b: forked from triage/7 at seq 1\n"
    several = hansard("show", "support/4", store=store)
    assert several.code == 1
    assert "'support/41', 'support/42'; pass more of it" in several.err
    with library.open(store) as opened:
        opened.session("support/4").add_message({"role": "user", "content": "hi"})
    assert _shown(store, "support/4") == "support/4"


def test_what_cannot_be_undone_needs_the_complete_id(tmp_path: Path) -> None:
    """`rm` and `redact` refuse a prefix, @latest and -; `add` creates a session of that name."""
    store = _store(tmp_path)
    for name in ("tri", "@latest", "-"):
        for words in (("rm", name), ("redact", name, "1", "--yes")):
            refused = hansard(*words, store=store)
            assert (refused.code, "no session" in refused.err) == (1, True)
    assert hansard("add", "tri", "new", store=store).out.startswith("tri: 1 event")


def test_the_newest_and_the_last_used(tmp_path: Path) -> None:
    """@latest is the session with the newest event; - is the one that this user named last, by store."""
    store, state = _store(tmp_path), str(tmp_path / "state")
    none = hansard("show", "-", store=store, XDG_STATE_HOME=state)
    assert (none.code, "not used a session of this store yet" in none.err) == (1, True)
    assert _shown(store, "@latest", XDG_STATE_HOME=state) == "triage/7"
    assert _shown(store, "support/41", XDG_STATE_HOME=state) == "support/41"
    assert _shown(store, "-", XDG_STATE_HOME=state) == "support/41"
    hansard("add", "-", "more", store=store, XDG_STATE_HOME=state)
    assert _shown(store, "@latest", XDG_STATE_HOME=state) == "support/41"
    assert not [path for path in store.rglob("*") if path.name == "last"]
    other = str(tmp_path / "other")
    assert hansard("show", "-", store=store, XDG_STATE_HOME=other).code == 1
    (tmp_path / "file").touch()
    assert _shown(store, "triage/7", XDG_STATE_HOME=str(tmp_path / "file")) == "triage/7"
