"""Say old facts in today's words.

Above: `state`.  Below: `envelope`.
The log keeps what was written; a reader that folds it sees each event as the newest version of
hansard would have written it. There is nothing to translate yet: version 1 is the first.
"""

from collections.abc import Callable, Mapping

from hansard.event.envelope import Event

#: Translators by the kind that they take. A translation may lead to another kind that has one.
UPCASTS: Mapping[str, Callable[[Event], Event]] = {}

_MOST = 100


def upcast(event: Event, upcasts: Mapping[str, Callable[[Event], Event]] = UPCASTS) -> Event:
    """Return the event in today's words; its seq, time and key never change."""
    for _ in range(_MOST):
        step = upcasts.get(event.kind)
        if step is None:
            return event
        event = step(event)
    raise AssertionError(f"the upcasts of {event.kind} go round in circles")
