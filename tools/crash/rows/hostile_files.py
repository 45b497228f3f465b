"""Row 16: a file of the store is a pipe, a device, a link, of another store, or crafted."""

import contextlib
import functools
import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.crash import hostile
from tools.crash.hostile import APART
from tools.crash.nursery import nursery, start
from tools.crash.row import Outcome, Row

ROW = Row(16, "hostile files: nothing outside changes, nothing hangs, right or refused", 60, 600)

#: Guises that matter only for some files.
_ONLY = {
    "a bomb": ("zst", "checkpoint"),
    "a crafted database": ("index.db",),
    "a crafted journal": ("index.db",),
    "a crafted write-ahead log": ("index.db",),
    hostile.LONGER: ("json", "zst", "checkpoint", "marks", "index.db"),
}


def prepare() -> None:
    """Prepare a nursery, the stores and their true answers."""
    start()
    truths()


@functools.cache
def truths() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the true answers of both stores."""
    return tuple(_asked(path) for path in hostile.stores())  # type: ignore[return-value] # two


def _asked(path: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="hansard-hostile-") as directory:
        shutil.copytree(path, Path(directory) / "store")
        ended = _ask(Path(directory))
    assert ended.result is not None, ended
    wrong = {label: answer for label, answer in ended.result.items() if answer[0] != "is"}
    assert not wrong, wrong
    return ended.result  # type: ignore[no-any-return] # as `ask` returns it


def _ask(directory: Path) -> Any:
    return nursery().run(
        "tools.crash.hostile:ask",
        store=str(directory / "store"),
        progress=str(directory / "progress"),
    )


@dataclass
class Disguise:
    """One file, and its replacement."""

    file: str
    guise: str

    @property
    def label(self) -> str:
        """Which."""
        return f"{self.file} is {self.guise}"

    def run(self) -> Outcome:
        """Create the store, make all calls, and compare the answers with the true ones."""
        directory = Path(tempfile.mkdtemp(prefix="hansard-hostile-"))
        try:
            shutil.copytree(hostile.stores()[0], directory / "store")
            hostile.make_outside(directory / "outside")
            before = hostile.contents(directory / "outside")
            try:
                hostile.disguise(directory / "store", self.file, self.guise, directory / "outside")
            except PermissionError:
                return Outcome(ok=True, label=self.label, skipped="devices need root")
            size = _allocated(directory)
            ended = _ask(directory)
            wrong = list(self._wrong(ended, directory))
            if hostile.contents(directory / "outside") != before:
                wrong.append("something outside of the store has changed")
            if _allocated(directory) - size > hostile.DISK:
                wrong.append(f"the store takes {_allocated(directory) - size:,} bytes more")
            return Outcome(ok=not wrong, label=self.label, detail="\n".join(wrong))
        finally:
            shutil.rmtree(directory)

    def _wrong(self, ended: Any, directory: Path) -> Iterator[str]:
        if ended.result is None:
            last = (
                (directory / "progress").read_text() if (directory / "progress").exists() else "?"
            )
            yield f"{last}: the process was ended by signal {ended.signal} {ended.error}"
            return
        for label, (kind, said) in ended.result.items():
            if kind == "raised":
                yield f"{label}: {said}"
            elif label.startswith("change: kept "):
                acknowledged = ended.result[label.replace("kept", "add")][0] == "is"
                if acknowledged and said != [hostile.NEW]:
                    yield f"{label}: an append was acknowledged, and is not there: {said}"
            elif label.startswith("command:") and kind == "is" and said[1]:
                yield f"{label}: exit code {said[0]}: {said[1]}"
            elif kind == "refused" and not self._may_refuse(label):
                yield f"{label}: refused: {said}"
            elif kind == "is" and not self._is_right(label, said):
                yield f"{label}: {said}, and the truth is {truths()[0].get(label)}"

    def _may_refuse(self, label: str) -> bool:
        """Return whether a question needs the file; listings never need that of one session."""
        affected = hostile.affected(self.file)
        if label.startswith("change:") or label.endswith(")") or APART in affected:
            return True
        session = label.rpartition(" ")[2]
        if session in hostile.SESSIONS:
            return session in affected
        return self._keeps(label.rpartition(" ")[2])

    def _keeps(self, wanted: str) -> bool:
        """Return whether the file is where the trash, cursors or the audit log are kept."""
        part = {"trash": "trash", "cursors": "internal", "audit": "internal"}.get(wanted)
        return part == self.file.partition("/")[0]

    def _is_right(self, label: str, said: Any) -> bool:
        truth, foreign = (truths()[place].get(label, ["is", None])[1] for place in (0, 1))
        # A valid log cannot be distinguished from this store's log.
        right = [truth, foreign] if self.guise == hostile.OTHERS else [truth]
        affected = hostile.affected(self.file)
        # Without its sessions or its marker, it is a different store.
        if said in right or label.startswith("command:") or label[-1] == ")" or APART in affected:
            return True
        match label.rpartition(" ")[2]:
            case "trash" | "cursors" | "audit" as wanted:
                return self._keeps(wanted)
            case "ids" | "hits" | "titles" as wanted:
                if wanted == "titles":
                    truth, said = truth.items(), said.items()
                return {
                    str(x) for x in set(truth) ^ set(said) if self._of(x) not in affected
                } == set()
            case "damaged":
                return set(said) <= affected
            case wanted:
                of_many = "forks " in label or wanted in {"stats", "count", "latest"}
                return bool(affected) and (of_many or wanted in affected)

    @staticmethod
    def _of(item: Any) -> str:
        """Return the session that an item of a listing is about."""
        return str(item[0] if isinstance(item, tuple) else item)


def _allocated(directory: Path) -> int:
    total = 0
    for root, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(root, name)).st_blocks * 512
    return total


def cases(count: int, rng: random.Random) -> Iterator[Disguise]:
    """Yield every file in every guise, or a random sample."""
    every = [
        Disguise(file, guise)
        for file in hostile.files()
        for guise in (*hostile.GUISES, hostile.OTHERS, hostile.LONGER)
        if any(part in file for part in _ONLY.get(guise, ("",)))
    ]
    yield from every if count >= len(every) else rng.sample(every, count)
