"""HOW IT IS KEPT: bytes on disk. Knows no events.

Read in this order: `format` (what a line is), `names` (what a file is called), `disk` (the only
module that touches the operating system's files), `lock`, `segment`, `reader`, `writer`.
"""
