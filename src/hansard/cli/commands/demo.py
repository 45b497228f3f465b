"""`hansard demo`: show what hansard does, step by step, on a real store."""

import click

from hansard.cli.command import Call, define


@define(
    "demo",
    examples=["demo", "demo /tmp/look  # in this folder, which must be new or empty"],
)
@click.argument("folder", required=False, type=click.Path(file_okay=False))
def command(call: Call, folder: str | None) -> None:
    """Show what hansard does, step by step, on a real store.

    Eight processes write at once and one is killed; a fork, a revert, damage, compaction, verify, a
    replay. It takes a few seconds, and the store is left for you to look at: in FOLDER, or in a new one.

    With --json: one document, with the figures.
    """
    import shlex
    import shutil
    import sys
    import tempfile
    from pathlib import Path

    from hansard.cli.demonstration import play

    wanted = folder or (call.store if call.named else None)
    if wanted is not None and "://" in wanted:
        raise click.UsageError("the demonstration damages files, so it needs a folder and no URL")
    store = Path(wanted or Path(tempfile.mkdtemp(prefix="hansard-demo-")) / "store")
    if store.exists() and any(store.iterdir()):
        raise click.UsageError(f"{store} is not empty; give a new folder")
    figures = play(store, call.screen)
    if call.screen.json:
        call.screen.document(figures)
        return
    # The one beside this Python, if that is not on the way: a checkout has it in its own environment.
    beside = Path(sys.executable).with_name("hansard")
    program = f"{shlex.quote(sys.executable)} -m hansard"
    if beside.exists():
        on_path = shutil.which("hansard")
        program = "hansard" if on_path == str(beside) else shlex.quote(str(beside))
    screen = call.screen
    screen.line()
    screen.line((f"All of it in {figures['seconds']} s. The store is yours to look at:", "bold"))
    screen.line()
    screen.line(f"export HANSARD_STORE={shlex.quote(str(store))}", indent=4)
    for words in (
        "replay support/42",
        "replay support/42 --step",
        "replay support/42 --at 'before the answer'",
        "show meeting-again --last 5",
        "ls --tree",
        "doctor",
        "dump support/42",
        "compact --all --dry-run",
    ):
        screen.line(f"{program} {words}", indent=4)
