"""Events as values, without I/O. Begin with `kinds`, `event` and `codec`."""
