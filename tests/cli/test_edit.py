"""`fork`, `snapshot`, `revert`, `redact`, `rm`, `restore`, `prune`: each does what the library call does."""

import re
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
    assert undo[0] == "revert"
    assert hansard(*undo, "--json", store=store).json["messages"] == 5
    named = hansard("-s", store, "revert", "agent/1", "looked").out
    assert f"`hansard -s {store} revert agent/1 " in named


def test_prune_takes_a_size_and_ages(store: Path) -> None:
    """`prune --max-size` takes units; a policy is stored, and applied by `prune --policy`."""
    dry = hansard("prune", "--max-size", "10GB", "--dry-run", "--json", store=store).json
    assert dry["pruned"] == []
    young = hansard("prune", "--older-than", "9999d", "--dry-run", store=store).out
    assert re.search(r"\d kept: last active \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", young)
    dry = hansard(
        "prune", "--max-size", "1", "--all-workspaces", "--dry-run", "--json", store=store
    ).json
    assert "agent/1" in dry["pruned"]
    assert dry["archived"] == dry["purged"] == []
    policy = ("prune", "--max-size", "10GB", "--purge-trash", "7d", "--set-policy")
    out = hansard(*policy, store=store).out
    assert "would be moved" in out
    assert "stored as the policy; `hansard prune --policy` applies it" in out
    assert hansard("prune", "--policy", "--json", store=store).json["dry_run"] is False
    with library.open(store, read_only=True) as opened:
        assert opened.retention() == {"max_size": 10**10, "purge_trash": 604800.0}
    told = hansard("prune", "--archive-after", "0.001s", store=store)
    assert "archived:" in told.out


def test_a_hold_is_set_listed_shown_and_released(store: Path) -> None:
    """`hold` refuses removals until `hold --release`; `ls --held` and `show` name held sessions."""
    done = hansard("hold", "agent/1", "--reason", "case 7", "--json", store=store).json
    assert done == {"sessions": ["agent/1"], "held": True, "reason": "case 7"}
    (listed,) = hansard("ls", "--held", "--json", store=store).out.splitlines()
    assert '"id":"agent/1"' in listed
    assert "held" in hansard("show", "agent/1", store=store).out
    assert "held: case 7" in hansard("tail", "agent/1", store=store).out
    for words in (("rm", "agent/1"), ("redact", "agent/1", "3", "--yes")):
        refused = hansard(*words, store=store)
        assert refused.code == 1
        assert "is under a legal hold (case 7)" in refused.err
    assert hansard("rm", "agent/1-b", "agent/1", store=store).code == 1
    assert hansard("restore", "--json", store=store).json == {"trash": []}
    again = hansard("hold", "agent/1", store=store)
    assert again.out == "agent/1: held already; nothing was written\n"
    assert "held: case 7" in hansard("tail", "agent/1", store=store).out
    assert hansard("hold", "agent/1", "--release", store=store).out == "1 session released\n"
    not_held = hansard("hold", "agent/1", "--release", store=store)
    assert (not_held.code, not_held.out) == (0, "agent/1: not held, so not released\n")
    held = hansard("-s", store, "hold", "agent/1-b").out
    assert held == f"1 session held; `hansard -s {store} hold --release agent/1-b` ends it\n"
    assert hansard("hold", "agent/1-b", "--release", store=store).code == 0
    assert hansard("ls", "--held", "--json", store=store).out == ""
    assert hansard("redact", "agent/1", "3", "--yes", store=store).code == 0


def test_redact_asks_and_hides_the_message(store: Path, terminal: OpenTerminal) -> None:
    """`redact` asks without --yes; afterwards no view has the message, and compaction removes the bytes."""
    asked = terminal("redact", "agent/1", "3", store=store)
    asked.wait_for("[y/N]")
    asked.type("\n")
    assert asked.wait() == 1
    # Nothing is hidden if one of several is not a message.
    assert hansard("redact", "agent/1", "3", "99", "--yes", store=store).code == 1
    assert "refund?" in hansard("show", "agent/1", "--view", "history", store=store).out
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
