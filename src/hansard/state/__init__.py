"""WHAT IT ADDS UP TO: pure functions from events to what a reader is shown.

Read in this order: `fold` (state + event → state), `replay` (a loop over it), `views` (which messages a
view shows).
"""
