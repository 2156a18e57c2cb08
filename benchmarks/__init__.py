"""Measures streamnb: small named cases, each against another learner, another size or a demand.

`python -m benchmarks` runs them all and prints a table; `docs/performance.md` has figures and how
they came about. What is compared runs in one process, in turns, on the same texts.
"""
