"""`fork`, `snapshot`, `revert`, `redact`, `rm`, `restore`, `prune`: each does what the library call does."""

from pathlib import Path

import hansard as library
from tests.cli.conftest import OpenTerminal
from tests.cli.running import hansard


def test_a_fork_begins_where_it_is_told_to(store: Path) -> None:
    """`fork --at` takes a seq, a label or a time, and a fresh id if none is given."""
    made = hansard("fork", "agent/1", "f1", "--at", "3", "--json", store=store).json
    assert made == {"session": "f1", "parent": "agent/1", "forked_at": 3}
    taken = hansard("fork", "agent/1", "f1", store=store)
    assert taken.err.endswith("exists already, at seq 4; nothing was written. Use another id\n")
    fresh = hansard("fork", "agent/1", "--at", "looked", "--json", store=store).json
    assert fresh["forked_at"] == 5
    with library.open(store, read_only=True) as opened:
        assert opened.session(fresh["session"]).parent == "agent/1"
        assert opened.session("f1").seq == 4


def test_snapshot_and_revert_and_back(store: Path) -> None:
    """N-49: a snapshot is listed; a revert to it shortens the view; the undo that it names undoes it."""
    assert hansard("snapshot", "agent/1", "now", store=store).out == "agent/1: seq 12 is 'now'\n"
    known = hansard("snapshot", "agent/1", "--json", store=store).json["snapshots"]
    assert known == {"looked": 5, "now": 12}
    done = hansard("revert", "agent/1", "looked", store=store)
    assert done.code == 0
    assert "agent/1: reverted to seq 5, 4 messages" in done.out
    undo = done.out.split("`")[1].split()[1:]
    assert hansard(*undo, "--json", store=store).json["messages"] == 5


def test_redact_asks_and_hides_the_message(store: Path, terminal: OpenTerminal) -> None:
    """`redact` asks unless told --yes; then no view has the message, and compaction removes the bytes."""
    asked = terminal("redact", "agent/1", "3", store=store)
    asked.wait_for("[y/N]")
    asked.type("\n")
    assert asked.wait() == 1
    done = hansard("redact", "agent/1", "3", "--yes", "--reason", "private", store=store)
    assert done.code == 0
    for view in ("model", "history"):
        assert "refund?" not in hansard("show", "agent/1", "--view", view, store=store).out
    told = hansard("replay", "agent/1", store=store).out
    assert "(redacted message)" in told
    assert "redacted message 3: private" in told
    assert hansard("compact", "agent/1", "--json", store=store).json["blanked"] >= 1
    assert "refund?" not in hansard("dump", "agent/1", store=store).out


def test_rm_and_restore_and_purge(store: Path, terminal: OpenTerminal) -> None:
    """A removed session is in the trash until restored, or purged, which asks; a wrong id removes none."""
    assert hansard("rm", "agent/1-b", "missing", store=store).code == 1
    assert hansard("rm", "agent/1-b", store=store) == (0, "1 session moved to the trash\n", "")
    deleted = hansard("show", "agent/1-b", store=store)
    assert deleted.code == 1
    assert "is in the trash; run `hansard restore agent/1-b`" in deleted.err
    assert hansard("restore", "--json", store=store).json == {"trash": ["agent/1-b"]}
    wrong = hansard("restore", "agent/1b", store=store)
    assert wrong.code == 1
    assert "did you mean 'agent/1-b'?" in wrong.err
    assert hansard("restore", "agent/1-b", store=store).code == 0
    kept = hansard("rm", "--purge", "--yes", "agent/1", store=store)
    assert kept.code == 1  # its fork needs it
    assert hansard("restore", "agent/1", store=store).code == 0
    asked = terminal("rm", "--purge", "agent/1-b", store=store)
    asked.wait_for("Permanently delete 1 session? [y/N]")
    asked.type("y\n")
    assert asked.wait() == 0
    assert hansard("restore", "--json", store=store).json == {"trash": []}


def test_prune_says_what_it_would_move_and_moves_that(store: Path) -> None:
    """N-87: --dry-run names what a real run then moves; young sessions stay."""
    young = hansard("prune", "--older-than", "1h", store=store)
    assert young.code == 0
    assert young.out.splitlines()[0] == "0 sessions moved to the trash, 2 kept"
    planned = hansard("prune", "--older-than", "0.001s", "--dry-run", "--json", store=store).json
    assert planned["dry_run"] is True
    with library.open(store, read_only=True) as opened:
        assert opened.trash() == []
    real = hansard("prune", "--older-than", "0.001s", "--json", store=store).json
    assert sorted(real["pruned"]) == sorted(planned["pruned"]) == ["agent/1", "agent/1-b"]
