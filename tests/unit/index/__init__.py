"""Claims about finding sessions: listings, counts, sums and searches."""
