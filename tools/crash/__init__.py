"""The fault campaign that tests the guarantees, row by row.

`campaign` runs the rows; `row` defines what a row is; `rows/` has one module for each kind of fault.
"""
