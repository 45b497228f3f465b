"""Logs that break one promise about compaction each."""
# ruff: noqa: D101, D102 - a mutant's name says what it gets wrong

import time
from typing import Any

import msgspec

from hansard.backend.contract import Compacted, Forget
from hansard.backend.memory import MemoryLog
from hansard.event.envelope import Event


class LogThatForgetsNothing(MemoryLog):
    """Takes what is to be forgotten for a wish."""

    def compact(self, forget: Forget, **options: Any) -> Compacted:
        return super().compact(forget._replace(mask=lambda event: event), **options)


class LogThatForgetsWhatIsListed(MemoryLog):
    """Takes no notice of a bound."""

    def compact(self, forget: Forget, **options: Any) -> Compacted:
        def mask(event: Event) -> Event:
            return forget.mask(event) if event.seq in forget.seqs else event

        return super().compact(forget._replace(mask=mask), **options)


class LogThatForgetsWhatWasDone(MemoryLog):
    """Takes everything before a bound for something that was said."""

    def compact(self, forget: Forget, **options: Any) -> Compacted:
        def mask(event: Event) -> Event:
            if event.seq < forget.before:
                return Event(event.seq, event.stamp, event.kind, b"{}", event.key)
            return forget.mask(event)

        return super().compact(forget._replace(mask=mask), **options)


class LogThatForgetsKeys(MemoryLog):
    def compact(self, forget: Forget, **options: Any) -> Compacted:
        done = super().compact(forget, **options)
        self._record.keys.clear()
        return done


class LogThatCountsAnew(MemoryLog):
    """Drops what was forgotten, and closes the gap."""

    def compact(self, forget: Forget, **options: Any) -> Compacted:
        done = super().compact(forget, **options)
        kept = [event for event in self._record.events if event.seq not in forget.seqs]
        self._record.events = [
            msgspec.structs.replace(event, seq=place) for place, event in enumerate(kept, 1)
        ]
        return done


class LogThatDropsAllParts(MemoryLog):
    def compact(self, forget: Forget, **options: Any) -> Compacted:
        def mask(event: Event) -> Event:
            if event.kind == "message.part":
                return Event(event.seq, event.stamp, event.kind, b"{}", event.key)
            return forget.mask(event)

        return super().compact(forget._replace(mask=mask), **options)


class LogThatIsWrittenNow(MemoryLog):
    """Gives all events the time of the compaction."""

    def compact(self, forget: Forget, **options: Any) -> Compacted:
        def mask(event: Event) -> Event:
            return msgspec.structs.replace(event, stamp="2099-01-01T00:00:00.000000Z")

        return super().compact(forget._replace(mask=mask), **options)


class LogThatKeepsTheLatest(MemoryLog):
    """Takes compaction for a summary."""

    def compact(self, forget: Forget, **options: Any) -> Compacted:
        done = super().compact(forget, **options)
        record = self._record
        with record.changed:
            record.before += len(record.events) - 1
            record.events = record.events[-1:]
        return done


class LogThatEmptiesInPlace(MemoryLog):
    """Rewrites under the eyes of its readers and beside its writers."""

    def compact(self, forget: Forget, **options: Any) -> Compacted:
        events = list(self._record.events)
        time.sleep(0.001)
        done = super().compact(forget, **options)
        self._record.events = list(map(forget.mask, events))
        return done


class LogThatCompactsNothing(MemoryLog):
    """Finds nothing wrong with a session that is not there."""

    def compact(self, forget: Forget, **options: Any) -> Compacted:
        if self._record.exists:
            return super().compact(forget, **options)
        return Compacted(0, 0, 0, 0)


COMPACTION_LOGS: dict[type[MemoryLog], str] = {
    LogThatForgetsNothing: "compact",
    LogThatForgetsWhatIsListed: "compact",
    LogThatForgetsWhatWasDone: "compact",
    LogThatForgetsKeys: "compact",
    LogThatCountsAnew: "compact",
    LogThatDropsAllParts: "compact",
    LogThatIsWrittenNow: "compact",
    LogThatKeepsTheLatest: "compact",
    LogThatEmptiesInPlace: "compact",
    LogThatCompactsNothing: "compact",
}
