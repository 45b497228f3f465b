"""Keep the garbage collector from looking at what is being decoded.

Above: `views`, `index`.  Below: nothing.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

#: More than this is many: 100,000 messages decode in 60 % of the time.
_MANY: Final = 2_000


@contextmanager
def quiet_collector(count: int) -> Iterator[None]:
    """Pause the garbage collector while many things are decoded: none of them is garbage."""
    pause = count > _MANY and gc.isenabled()
    if pause:
        gc.disable()
    try:
        yield
    finally:
        if pause:
            if not gc.get_freeze_count():
                # Straight into the oldest generation: on their way there the collector would look at all of
                # them three times, and each time every thread would stand still for it.
                gc.freeze()
                gc.unfreeze()
            gc.enable()
