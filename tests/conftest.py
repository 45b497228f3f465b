"""What every test can ask for: randomness that can be had again.

A run has one seed. pytest's header shows it, HANSARD_TEST_SEED repeats it, and the tests'
`seed` and `rng` as well as Hypothesis draw from it, so that a random failure can be repeated.
"""

import gc
import hashlib
import os
import random
import secrets
import signal
import tempfile

import hypothesis
import pytest

RUN_SEED = pytest.StashKey[int]()

# No command opens a pager, or writes to the user's own state directory, unless its test says so.
os.environ["PAGER"] = "cat"
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="hansard-state-")

# Nothing here has a deadline: how long a sync takes is the disk's business.
hypothesis.settings.register_profile("dev", max_examples=30, deadline=None)
hypothesis.settings.register_profile("ci", max_examples=100, deadline=None, print_blob=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "dev")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Settle the seed of the run: the controller's, the environment's, or a new one."""
    # A shell lets what it runs in the background ignore Ctrl-C, and so would every process of a test.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    from_controller = getattr(config, "workerinput", {}).get("run_seed")
    from_environment = os.environ.get("HANSARD_TEST_SEED") or secrets.randbelow(2**32)
    try:
        seed = int(from_controller or from_environment)
    except ValueError:
        message = f"HANSARD_TEST_SEED must be a whole number, not {from_environment!r}"
        raise pytest.UsageError(message) from None
    config.stash[RUN_SEED] = seed
    # Hypothesis reads its own option after this, unless the caller has already chosen.
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(seed)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: object) -> None:
    """Hand the seed to a worker of pytest-xdist: all of them share one run."""
    node.workerinput["run_seed"] = str(node.config.stash[RUN_SEED])  # type: ignore[attr-defined]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Let the garbage collector leave alone what lasts as long as the run: all tests and modules."""
    del session
    gc.collect()
    gc.freeze()


def pytest_report_header(config: pytest.Config) -> str:
    """Show the seed, also of a run that fails."""
    return f"HANSARD_TEST_SEED={config.stash[RUN_SEED]} repeats this run"


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Return a number of this test's own, the same in every run with the same seed."""
    run_seed = request.config.stash[RUN_SEED]
    digest = hashlib.sha256(f"{run_seed} {request.node.nodeid}".encode()).digest()
    own = int.from_bytes(digest[:8])
    # pytest shows this with a failure, and only then.
    request.node.add_report_section(
        "setup", "seed", f"{own}, from HANSARD_TEST_SEED={run_seed}, which repeats it"
    )
    return own


@pytest.fixture
def rng(seed: int) -> random.Random:
    """Return a random generator that starts from the test's own seed."""
    return random.Random(seed)
