"""The contract of a backend, and the backends: read `contract`, `memory`, then `local`."""
