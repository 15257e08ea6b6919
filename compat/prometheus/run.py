"""Debian's Prometheus in front of a cluster of three nodes under load, as the pages for operators say.

It is set up by the block in docs/operating/monitoring/README.md, with the rules beside that page and those of `settee slo export`.
It has to find and read every node, and to evaluate every rule and every query of the dashboard. Each query has data once a
node has stood still; an alert says that the node does, and is over when it answers again. `promtool` looks at the rules, and at
what each node tells.

`compat/run prometheus`
"""

import json
import math
import os
import subprocess
import time
import urllib.parse
import urllib.request
from contextlib import closing, contextmanager
from pathlib import Path

from settee import ROOT
from settee.cluster import Cluster
from settee.node import PASSWORD, USERNAME, binary, scratch, tail
from settee.teller import Teller

ADDRESS = os.environ["SETTEE_ADDRESS"]
MONITORING = ROOT / "docs" / "operating" / "monitoring"
BUCKET = "songs"
VBUCKETS = 64
# The user of the page's block, and a password that is none of the page's.
WATCHER, SECRET = "watcher", "seen-by-prometheus"
# Not Prometheus' own: where its package is installed, a service may have that one.
PORT = 9190
# A wait that ends with an error, for what takes a second or a few.
SECONDS = 60.0
# Names that Couchbase's servers use, and dashboards go by. `promtool` would have others.
COUCHBASES = ("sdk_", "kv_", "sys_", "couch_")
# How `promtool check metrics` ends: with nothing to say, or with advice. Otherwise it could not read the text.
READ_BY_PROMTOOL = (0, 3)
# Reads that find nothing among reads, writes, durable writes and queries of a view.
LOADS = (
    ["--mix", "get=6,set=3,delete=2,query=1", "--query", "every/all?key={key}&stale=ok", "--rate", 120],
    ["--mix", "set=1", "--durability", "majority", "--rate", 20],
)
# What says that each kind of operation has come, and was counted. One value of each is more than zero.
COUNTED = (
    'settee_slo_events_total{objective="reads"}',
    'settee_slo_events_total{objective="durable"}',
    'sum(kv_ops{op="delete"})',
    "sum(couch_views_ops)",
)
# Queries that have data, and need not show more than zero here.
MAY_BE_ZERO = {
    "Burn rate over 1 h": "the objectives are met",
    "Burn rate over 6 h and 3 d": "the objectives are met",
    "Requests that clients gave up": "clients give up none",
    "Changes that indexes have yet to take": "the indexes may have all of them",
    "Memory of indexes": "an index that rests may hold none",
    "Values read back from disk": "all values are in memory",
    "Mutations that wait for the disk": "the disk may have taken all of them",
    "Changes that replicas have yet to get": "the replicas may have all of them",
    "Replicas that are cut off": "the cluster is healthy again",
}
# Figures of clients come once a minute, and a rate needs two of them.
OF_CLIENTS = {"99th percentile as clients see it", "Requests as clients count them", "Requests that clients gave up"}
CLIENTS_SECONDS = 240.0
# What a client has measured: of twenty operations of each kind, one took longer than a millisecond.
MEASURED = """\
sdk_kv_{kind}_duration_milliseconds_bucket{{le="1",{labels}}} 19
sdk_kv_{kind}_duration_milliseconds_bucket{{le="10",{labels}}} 20
sdk_kv_{kind}_duration_milliseconds_bucket{{le="+Inf",{labels}}} 20
sdk_kv_{kind}_duration_milliseconds_sum{{{labels}}} 30
sdk_kv_{kind}_duration_milliseconds_count{{{labels}}} 20
"""
KINDS = ("retrieval", "mutation_nondurable", "mutation_durable")


class Prometheus:
    """The process, and what it answers."""

    def __init__(self, folder):
        self.base = f"http://{ADDRESS}:{PORT}"
        self.log = folder / "prometheus.log"
        command = ["prometheus", f"--config.file={folder / 'prometheus.yaml'}", f"--storage.tsdb.path={folder / 'prometheus'}"]
        command += [f"--web.listen-address={ADDRESS}:{PORT}"]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(SECONDS)
        finally:
            self.process.kill()
            self.process.wait()

    def get(self, path, **parameters):
        """The data of an answer. While it starts it answers 503; an expression that it cannot evaluate is the failure of a test."""
        address = f"{self.base}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(address, timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            if error.code == 503:
                raise
            raise AssertionError(f"{parameters}: {error} {error.read()}") from None

    def values(self, expression):
        """Those that mean something, of an expression's series."""
        found = [float(series["value"][1]) for series in self.get("query", query=expression)["result"]]
        return [value for value in found if math.isfinite(value)]

    def targets(self):
        return {target["scrapeUrl"]: target["health"] for target in self.get("targets")["activeTargets"]}

    def rules(self):
        return [rule for group in self.get("rules")["groups"] for rule in group["rules"]]

    def alerts(self):
        """What fires, by its labels."""
        return [alert["labels"] for alert in self.get("alerts")["alerts"] if alert["state"] == "firing"]

    def wait(self, what, condition, seconds=SECONDS):
        """What the condition gives, once that is something."""
        until, error = time.monotonic() + seconds, None
        while time.monotonic() < until:
            assert self.process.poll() is None, f"Prometheus has ended:\n{tail(self.log)}"
            try:
                if found := condition():
                    return found
                error = None
            except OSError as one:
                error = one
            time.sleep(0.1)
        raise AssertionError(f"{tail(self.log)}\nnot within {seconds} s: {what} ({error})")


def settee(*words):
    """What a command of the binary prints."""
    environment = {**os.environ, "SETTEE_USER": USERNAME, "SETTEE_PASSWORD": PASSWORD}
    done = subprocess.run([str(word) for word in [binary(), *words]], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


@contextmanager
def loads(node):
    """Run for as long as the block lasts. A node that is stopped meanwhile makes errors, which nothing judges here."""
    environment = {**os.environ, "SETTEE_USER": USERNAME, "SETTEE_PASSWORD": PASSWORD}
    running = []
    try:
        for number, words in enumerate(LOADS):
            command = [binary(), "load", *words, "-n", 500, "-c", 4, "--host", node.address, "-b", BUCKET]
            command += ["--warmup", 0, "--seconds", 900, "--timeout", 2, "--reconnect"]
            with open(node.directory / f"load-{number}.log", "wb") as log:
                running.append(subprocess.Popen([str(word) for word in command], env=environment, stdout=log, stderr=log))
        yield
        assert all(process.poll() is None for process in running), "a load has ended"
    finally:
        for process in running:
            process.kill()
            process.wait()


def set_up(cluster):
    """A bucket with a view and objectives, and a user who may read figures."""
    cluster.form()
    rest = cluster.rest
    rest.ok("PUT", f"/settings/rbac/users/local/{WATCHER}", {"roles": "external_stats_reader", "password": SECRET})
    # The node that is stopped is to come back as it was, however slow this machine is.
    cluster.auto_failover(False)
    rest.create_bucket(BUCKET, replicas=1, numVBuckets=VBUCKETS)
    capi = type(rest)(ADDRESS, cluster[0].ports["capi"], USERNAME, PASSWORD)
    views = {"views": {"all": {"map": "function (doc, meta) { emit(meta.id, null); }"}}}
    made = capi.request("PUT", f"/{BUCKET}/_design/every", body=json.dumps(views), headers={"Content-Type": "application/json"})
    assert made.status == 201, made.text
    for name, operation in (("reads", "get"), ("durable", "durable")):
        objective = ["--operation", operation, "--latency", "1s", "--target", "99"]
        settee("slo", "set", BUCKET, name, *objective, "--host", ADDRESS)


def clients_tell(node):
    """What they measure, once a minute."""
    node.rest.ok("POST", "/settings/appTelemetry", {"enabled": "true", "scrapeIntervalSeconds": "60"})
    about = node.rest.get("/pools/default").json["nodes"][0]
    labels = f'bucket="{BUCKET}",node_uuid="{about["nodeUUID"]}"'
    report = "".join(MEASURED.format(kind=kind, labels=labels) for kind in KINDS) + f"sdk_kv_r_total{{{labels}}} 60\n"
    teller = Teller(node, report, repeats=True)
    teller.start()
    return closing(teller)


def configure(folder):
    """What the page says, with the addresses of these nodes and a shorter interval, and the rules."""
    page = (MONITORING / "README.md").read_text()
    block = page.split("```yaml\n")[1].split("```")[0]
    assert block.count("10.0.0.1:8091") == 1 and block.count("password: secret") == 2, block
    block = block.replace("10.0.0.1:8091", f"{ADDRESS}:8091").replace("password: secret", f"password: {SECRET}")
    (folder / "slo.rules.yaml").write_text(settee("slo", "export", "--format", "prometheus", "--host", ADDRESS))
    files = [MONITORING / "settee.rules.yaml", folder / "slo.rules.yaml"]
    often = "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
    (folder / "prometheus.yaml").write_text(f"{often}rule_files: {json.dumps([str(file) for file in files])}\n{block}")
    told = promtool("check", "config", folder / "prometheus.yaml")
    assert told.returncode == 0, told.stdout
    for file in files:
        told = promtool("check", "rules", file)
        assert told.returncode == 0 and "SUCCESS" in told.stdout, told.stdout


def promtool(*words, text=None):
    return subprocess.run(
        ["promtool", *map(str, words)], input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )


def promtool_reads_every_node(cluster):
    """It advises on nothing but Couchbase's own names."""
    for node in cluster.nodes:
        text = node.rest.get("/metrics").text
        told = promtool("check", "metrics", text=text)
        lines = told.stdout.splitlines()
        assert told.returncode in READ_BY_PROMTOOL, told.stdout
        # What it cannot read it says in other words than a name and its advice.
        strangers = [line for line in lines if not line.startswith(COUCHBASES)]
        assert not strangers, strangers
        named = {line.split()[0] for line in lines}
        print(f"   {node.address}: {text.count('# TYPE ')} names, advice on {len(named)} of Couchbase's", flush=True)


def prometheus_finds_every_node(prometheus, cluster):
    wanted = {f"http://{node.address}:8091/metrics": "up" for node in cluster.nodes}
    prometheus.wait(f"all targets are up, of {wanted}", lambda: prometheus.targets() == wanted)


def every_rule_is_evaluated(prometheus):
    def all_are():
        rules = prometheus.rules()
        wrong = [rule for rule in rules if rule["health"] == "err"]
        assert not wrong, wrong
        return all(rule["health"] == "ok" for rule in rules) and rules

    rules = prometheus.wait("all rules are evaluated", all_are)
    written = sum(file.read_text().count("        expr: ") for file in rule_files(prometheus))
    assert len(rules) == written > 4, (len(rules), written)
    print(f"   {len(rules)} rules", flush=True)


def rule_files(prometheus):
    return {Path(group["file"]) for group in prometheus.get("rules")["groups"]}


def is_told(prometheus, node):
    """Whether an alert says that this node is not heard of."""
    return [labels for labels in prometheus.alerts() if labels.get("alert") == "node_down" and node.address in labels["subject"]]


def an_alert_says_that_a_node_stands_still(prometheus, node):
    """Nodes decide that by themselves, and their alert becomes one of Prometheus."""
    node.pause()
    told = prometheus.wait("an alert fires", lambda: is_told(prometheus, node))
    assert {(labels["alertname"], labels["severity"]) for labels in told} == {("SetteeAlert", "critical")}, told
    assert not [labels for labels in told if node.address in labels["instance"]], told
    guides = [alert["annotations"]["runbook_url"] for alert in prometheus.get("alerts")["alerts"] if alert["labels"] in told]
    expected = [f"http://{labels['instance']}/ui/#/alerts/guide/node_down" for labels in told]
    assert sorted(guides) == sorted(expected), guides
    down = 'up{job="settee"} == 0'
    prometheus.wait("the target is down", lambda: prometheus.values(down) == [0.0])


def the_alert_is_over(prometheus, node):
    node.resume()
    prometheus.wait("the alert is over", lambda: not is_told(prometheus, node))
    prometheus.wait("all targets are up", lambda: set(prometheus.targets().values()) == {"up"})


def queries():
    """Every panel's title and expressions, as Grafana sends them with all buckets chosen."""
    dashboard = json.loads((MONITORING / "grafana.json").read_text())
    drawn = [(panel["title"], target["expr"]) for panel in dashboard["panels"] for target in panel.get("targets", [])]
    assert len(drawn) > 15, drawn
    return [(title, expression.replace("$bucket", ".*")) for title, expression in drawn]


def the_load_is_counted(prometheus):
    for expression in COUNTED:
        prometheus.wait(expression, lambda expression=expression: max(prometheus.values(expression), default=0) > 0)


def every_query_has_data(prometheus, titles):
    """Of panels with these titles. Those that are not known to rest show more than zero, too."""
    for title, expression in queries():
        if title not in titles:
            continue

        def shown(title=title, expression=expression):
            values = prometheus.values(expression)
            return values if title in MAY_BE_ZERO or any(value > 0 for value in values) else None

        patience = CLIENTS_SECONDS if title in OF_CLIENTS else SECONDS
        values = prometheus.wait(f"{title}: {expression}", shown, patience)
        print(f"   {title}: {len(values)} series, up to {max(values):.6g}", flush=True)


def main():
    folder = scratch("prometheus")
    of_alerts = {"Alerts that fire"}
    titles = {title for title, _ in queries()} - of_alerts
    assert set(MAY_BE_ZERO) <= titles, set(MAY_BE_ZERO) - titles

    def run(check, *arguments):
        began = time.monotonic()
        check(*arguments)
        print(f"{check.__name__}: ok in {time.monotonic() - began:.1f} s", flush=True)

    with Cluster(ADDRESS, folder, 3) as cluster:
        run(set_up, cluster)
        run(configure, folder)
        with loads(cluster[0]), clients_tell(cluster[0]), Prometheus(folder) as prometheus:
            run(prometheus_finds_every_node, prometheus, cluster)
            run(every_rule_is_evaluated, prometheus)
            run(the_load_is_counted, prometheus)
            run(every_query_has_data, prometheus, titles)
            run(promtool_reads_every_node, cluster)
            run(an_alert_says_that_a_node_stands_still, prometheus, cluster[2])
            run(every_query_has_data, prometheus, of_alerts)
            run(the_alert_is_over, prometheus, cluster[2])
            run(every_rule_is_evaluated, prometheus)
        for node in cluster.nodes:
            node.assert_alive()


if __name__ == "__main__":
    main()
