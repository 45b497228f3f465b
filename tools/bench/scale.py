"""The sizes of a quick run and of a full one."""

from typing import Final, NamedTuple


class Scale(NamedTuple):
    """Sizes of the workloads, and how long a slow system may take for one."""

    #: Appends that are timed, one at a time.
    appends: int
    #: Maximum seconds of a timed loop; the report has how far a slow system came.
    budget: float
    #: Maximum seconds to fill a store; twelve times as many for systems measured in turn with hansard.
    filling: float
    #: Lengths at which an append is timed.
    lengths: tuple[int, ...]
    #: Messages of the session that every system can hold.
    common: int
    #: Messages of the session that only the fast ones can hold.
    loaded: int
    #: Sessions that are listed.
    listed: int
    #: Sessions of 50 messages each, for their size on disk.
    kept: int
    #: How often the light systems are measured, in turn.
    rounds: int
    #: Messages of the session of the `everyday` measurements that need a long one.
    long: int
    #: Numbers of threads and processes that write at the same time.
    writers: tuple[int, ...]


QUICK: Final = Scale(300, 0.3, 0.8, (100, 1_000, 10_000), 1_000, 20_000, 500, 60, 1, 20_000, (1, 4))
FULL: Final = Scale(
    2_000,
    1.5,
    8.0,
    (100, 1_000, 10_000, 100_000, 1_000_000),
    10_000,
    100_000,
    10_000,
    1_000,
    3,
    100_000,
    (1, 4, 16),
)
SCALES: Final = {"quick": QUICK, "full": FULL}
