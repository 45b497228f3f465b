"""Tests of `hansard.state`, file by file."""
