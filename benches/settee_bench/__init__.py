"""What `benches/run` is made of.

servers.py   the processes under test, pinned and observed from outside
measure.py   the cases: rates and latencies, memory per item, churn
report.py    medians, spreads and ratios as tables
"""
