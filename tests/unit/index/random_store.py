"""A store in which anything happens, at random: for comparing what is listed with what is there."""

import contextlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hansard
from hansard import Store

#: Ids that begin alike, that are hashed on disk, and that SQLite might sort otherwise.
IDS = ["a/1", "a/2", "a/10", "b/1", "b/é", "b/😀", "B", "c", "UPPER/" + "x" * 150, "a"]

TITLES = ["Refund", "refund of Müller", "STRASSE", "straße", '100% "quoted" _a_', "", "😀", "a\nb"]

VALUES: list[Any] = [1, 1.0, True, "1", 2.5, {"b": 1, "a": [1, 2.0]}, [], "x" * 3000, "user", False]

KEYS = ["user", "k", "with space", "ключ"]


class RandomStore:
    """Does things to the sessions of a store."""

    def __init__(self, store: Store, rng: random.Random, folders: list[Path]) -> None:
        self.store = store
        self.rng = rng
        self.folders = folders
        self._deeds: list[Callable[[], object]] = [
            *[self.say] * 4,
            self.describe,
            self.describe,
            self.name,
            self.name_automatically,
            self.use,
            self.use,
            self.put_away,
            self.fork,
            self.fork,
            self.delete,
            self.restore,
            self.redact,
            self.belong,
            self.compact,
            self.forget,
        ]

    def do(self, count: int = 1) -> None:
        """Do some things; what is not possible is not done."""
        for _ in range(count):
            with contextlib.suppress(hansard.HansardError):
                self.rng.choice(self._deeds)()

    def any_id(self) -> str:
        """Return an id, of a session or not."""
        return self.rng.choice(IDS)

    def session(self) -> hansard.Session:
        """Return a handle on any session."""
        return self.store.session(self.any_id())

    def say(self) -> None:
        """Add messages."""
        count = self.rng.randrange(1, 4)
        self.session().add_messages([{"role": "user", "content": "x" * 20}] * count)

    def describe(self) -> None:
        """Set metadata, or take some away."""
        key = self.rng.choice(KEYS)
        self.session().patch_metadata({key: self.rng.choice([*VALUES, None])})

    def name(self) -> None:
        """Give a title."""
        self.session().set_title(self.rng.choice(TITLES))

    def name_automatically(self) -> None:
        """Give a title as a program does, or as metadata."""
        title = self.rng.choice(TITLES)
        if self.rng.random() < 0.5:
            self.session().set_title(title, automatic=True)
        else:
            self.session().set_metadata(title=self.rng.choice([title, 7, None]))

    def use(self) -> None:
        """Record the use of a model."""
        self.session().record_usage(
            model=self.rng.choice("mn"), input_tokens=self.rng.randrange(9), cost=0.5
        )

    def put_away(self) -> None:
        """Archive, close, or undo it."""
        session = self.session()
        self.rng.choice([session.archive, session.unarchive, session.close, session.reopen])()

    def fork(self) -> None:
        """Fork a session, at any place."""
        session = self.session()
        session.fork(
            self.any_id(), at=self.rng.randrange(1, session.seq + 1) if session.seq else None
        )

    def delete(self) -> None:
        """Delete a session; its forks live on."""
        self.store.delete(self.any_id())

    def restore(self) -> None:
        """Bring one back, or purge it."""
        gone = self.store.trash()
        if gone:
            self.rng.choice([self.store.restore, self.store.restore, self.store.purge])(
                self.rng.choice(gone)
            )

    def redact(self) -> None:
        """Take a message out."""
        session = self.session()
        session.redact(self.rng.randrange(1, session.seq + 2))

    def forget(self) -> None:
        """Take a title out, wherever it was said."""
        self.session().scrub(self.rng.choice(["Refund", "refund of"]))

    def belong(self) -> None:
        """Belong to a folder, or to none."""
        if self.rng.random() < 0.2:
            self.session().patch_metadata({"workspace": None})
        else:
            self.session().set_workspace(self.rng.choice(self.folders))

    def compact(self) -> None:
        """Compact a session, or all."""
        if self.rng.random() < 0.3:
            self.store.compact()
        else:
            self.session().compact()
