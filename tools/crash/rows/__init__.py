"""ONE MODULE PER KIND OF FAULT: each exposes `ROW` or `ROWS`, and `cases(count, rng)`."""
