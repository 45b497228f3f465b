"""Tests of `hansard.event`, file by file."""
