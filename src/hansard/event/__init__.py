"""WHAT HAPPENED: facts as values. Pure, no I/O.

Read in this order: `kinds` (what can happen), `envelope` (an event and a draft of one), `codec`
(to and from JSON, losing nothing).
"""
