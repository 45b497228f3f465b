"""Tests of `hansard.message`, file by file."""
