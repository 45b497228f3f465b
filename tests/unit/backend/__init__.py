"""Tests of `hansard.backend`, beyond what the contract suite claims of every backend."""
