"""DELIBERATE BUGS: each must be caught by a named test.

`mutant` applies one to a copy of the source and runs its tests; the other modules list them by what they
break.
"""

from tools.crash.mutants.concurrency import CONCURRENCY
from tools.crash.mutants.durability import DURABILITY
from tools.crash.mutants.meaning import MEANING
from tools.crash.mutants.mutant import Mutant

MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant for mutant in (*DURABILITY, *CONCURRENCY, *MEANING)
}
assert len(MUTANTS) == len(DURABILITY) + len(CONCURRENCY) + len(MEANING), "two of one name"
