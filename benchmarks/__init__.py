"""How fast the store is, measured against plain `sqlite3`: `python -m benchmarks [--quick] [--json]`.

Every figure comes with what it is compared to, and both are measured in the same run, in shuffled
rounds, so that a noisy machine troubles both alike. Ratios are what to look at; times are those of
one machine on one day.
"""
