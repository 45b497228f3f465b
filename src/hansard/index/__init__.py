"""WHERE TO FIND IT: listing and search.

Everything here is derived from the logs and may be deleted at any time. `finder` takes the questions,
`database` is the file, `catalogue` brings it up to date with what `description` says of each session,
`listing` and `search` ask it.
"""
