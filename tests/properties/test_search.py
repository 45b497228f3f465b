"""After any calls, a search finds what the views show.

The state machine makes the calls. Each step is followed by searches, through stores with an index, a
read-only one, and one whose index was deleted. The reference compares every word of every view.
"""

import random
import re
import unicodedata
from typing import Any

import pytest
from hypothesis.stateful import invariant

from hansard import Store
from tests.properties.histories import check_machine
from tests.properties.reference_model import Json, ReferenceModel
from tests.properties.test_machine import InFiles

WORDS = ["yes", "and", "now", "no", "par", "part", "partial", "ial", "1", "n", "a", "T", "U", "t"]


def words_of(text: str) -> list[str]:
    """Return the words of a text, in lower case and without accents."""
    plain = "".join(c for c in unicodedata.normalize("NFD", text) if not unicodedata.combining(c))
    return re.findall(r"\w+", plain.lower())


def text_of(message: Json) -> str:
    """Return the text of a message: its name and content."""
    said = [message.get("name"), message.get("content")]
    return "\n".join(text for text in said if isinstance(text, str))


class Naive:
    """Searches the views of the reference model."""

    def __init__(self, lists: ReferenceModel) -> None:
        self._lists = lists

    def shown(self, name: str) -> dict[int, str]:
        """Return all texts of a session that can be found, by seq; at 0, its title.

        Messages that were never finished are not found.
        """
        removed = self._lists.gone(name)
        facts = self._lists.facts(name)
        view = self._lists.view(name, "history", facts[-1].seq if facts else 0)
        found = {seq: text_of(said) for seq, said in view if said.get("partial") is not True}
        for fact in facts:
            if fact.kind == "summary.added" and not removed.has(fact):
                found[fact.seq] = text_of(fact.data["message"])
        title = self._lists.metadata(name)[0].get("title")
        return {**found, 0: title if isinstance(title, str) else ""}

    def search(self, word: str, prefix: str) -> dict[tuple[str, int], set[str]]:
        """Return, by the place where a text was added, the sessions that may be named for it."""
        found: dict[tuple[str, int], set[str]] = {}
        for name in self._lists.live():
            if name.startswith(prefix):
                for seq, text in self.shown(name).items():
                    if word.lower() in words_of(text):
                        found.setdefault((self.origin(name, seq), seq), set()).add(name)
        # The session that added it, if it still shows it; otherwise any that does.
        return {place: {place[0]} if place[0] in names else names for place, names in found.items()}

    def origin(self, name: str, seq: int) -> str:
        """Return the session that appended the event at a seq."""
        own = self._lists.session(name)
        while 0 < seq <= own.forked_at and own.parent is not None:
            name, own = own.parent, self._lists.session(own.parent)
        return name


class Searching(InFiles):
    """Each step is followed by searches."""

    def __init__(self) -> None:
        super().__init__()
        self.naive = Naive(self.plain)
        self.steps = 0

    @invariant()
    def search_agrees(self) -> None:
        """Compare searches of a random store with the reference."""
        if not self.stores:
            return
        self.steps += 1
        rng = random.Random(self.steps)
        for name in list(self.plain.sessions):
            # A fork at a time needs them.
            self.comparison._take_stamps(name, self.handle(0, name))
        store = rng.choice(self.stores)
        for word in rng.sample(WORDS, 3):
            self.compare(store, word, rng)
        if self.steps % 5 == 0:
            self.compare_rebuilt(store, rng.choice(WORDS), rng)

    def compare(self, store: Store, word: str, rng: random.Random) -> None:
        """Search for a word everywhere, by prefix, in a scoped store, and in one session."""
        prefix = rng.choice(["", "", "a", "B/", "x"])
        expected = self.naive.search(word, prefix)
        where = store if not prefix or rng.random() < 0.5 else store.scoped(prefix)
        hits = where.search(word, prefix=prefix, limit=1000)
        found = {(self.naive.origin(hit.session, hit.seq), hit.seq): hit.session for hit in hits}
        assert found.keys() == expected.keys(), (word, prefix)
        assert len(found) == len(hits)
        for place, session in found.items():
            assert session in expected[place], (word, place)
        for hit in hits:
            marked = {hit.snippet[start:end] for start, end in hit.matches}
            assert {words_of(text)[0] for text in marked} == {word.lower()}
        for name in self.plain.live():
            shown = self.naive.shown(name)
            wanted = {seq for seq, text in shown.items() if word.lower() in words_of(text)}
            alone = store.search(word, session=name, limit=1000)
            assert [hit.session for hit in alone] == [name] * len(alone)
            assert sorted(hit.seq for hit in alone) == sorted(wanted), (word, name)

    def compare_rebuilt(self, store: Store, word: str, rng: random.Random) -> None:
        """Search again without an index, and with a rebuilt one; all hits are equal, including ranks."""
        before: list[Any] = store.search(word, limit=1000)
        with self.look() as cold:
            assert cold.search(word, limit=1000) == before
        for file in (self.root / "store").glob("index*"):
            file.unlink()
        assert rng.choice(self.stores).search(word, limit=1000) == before


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_a_search_finds_what_the_views_show() -> None:
    """N-51, N-53, N-69, N-86: before and after compaction, with and without the index."""
    # A step takes long, and a shorter history is hardly simpler.
    check_machine(Searching, 13, shrink=False)
