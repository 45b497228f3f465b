"""The fault tools work: many tests depend on them."""

from hansard.log import disk
from tests.crashlab import faults


def test_every_call_that_changes_something_is_in_the_list() -> None:
    """N-29: no function of the disk that opens, writes, names or syncs is left out of the lists."""
    ours = {
        name
        for name, value in vars(disk).items()
        if callable(value) and not name.startswith("_") and not isinstance(value, type)
        if getattr(value, "__module__", "") != "typing"
    }
    # These are made of others, or touch nothing of a store; closing always works, as for the dead.
    made_of_others = {
        "read_all", "write_all", "sync_above", "discard", "remove_directory", "open_lock",
        "is_in_use", "remove_unused", "copy_content", "temporary_file"
    }  # fmt: skip
    harmless = {
        "absolute", "boot", "close", "command_of", "explain", "file_budget", "files_held", "hold_files",
        "in_group_store", "is_member", "kind", "lock_holders", "mode", "next_data", "report",
        "reporting", "reset_after_fork", "told_by_system", "user",
    }  # fmt: skip
    assert ours - made_of_others - harmless == {*faults.MUTATING, *faults.READING}
