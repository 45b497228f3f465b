"""WHAT HAPPENED: facts as values. Pure, no I/O.

Read in this order: `kinds` (what can happen), `event` (a stored event, and a new one), `codec` (to and from
JSON, losing nothing), `secrets` (credentials in JSON).
"""
