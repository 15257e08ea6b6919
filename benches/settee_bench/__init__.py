"""What `benches/run`, `benches/cluster` and `benches/views` are made of.

servers.py   the processes under test, pinned and observed from outside
measure.py   the cases: rates and latencies, memory per item, churn
pressed.py   a node with less memory than data, and its sampler
pressure.py  steps of writes and reads, the sweep of resident ratios
contention.py  scans, compaction, neighbours
nodes.py     clusters under test
cluster.py   what nodes and copies cost, busy and at rest
rebalances.py, moves.py  rebalances under load, and what is made of what was seen of them
outages.py   how long nobody takes writes after a node has died or was cut off
views.py, map_documents.js  indexes beside plain V8, queries, and what both cost the clients of documents
view_client.py  queries over kept connections
seeing.py    what it costs that a node is watched
switches.py  builds in which something can be left out
report.py, pressure_report.py, cluster_report.py, views_report.py, seeing_report.py  medians, spreads and ratios as tables
"""
