"""Claims about every input: sequences of calls, compared with a plain model."""
