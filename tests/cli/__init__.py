"""The command, through its real entry point: in pipes, in terminals, on bad input."""
