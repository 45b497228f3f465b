"""Faults around a store: concurrent writers, killed ones, full disks; and what must not be lost."""
