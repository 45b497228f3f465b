"""BREAKING IT: the campaign of faults that the guarantees are proved with, row by row.

`campaign` runs the rows; `row` is what a row is; `rows/` has one module for each kind of fault.
"""
