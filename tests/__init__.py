"""The evidence: every claim that hansard makes has its test here."""
