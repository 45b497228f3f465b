"""What goes wrong around a store: many writers, killed ones, full disks; and what it must not cost."""
