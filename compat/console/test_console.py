"""The web console of a cluster of three nodes under load, as somebody with a browser meets it. The tests run in the order of their
numbers, in one session: each finds the cluster as the one before has left it."""

import os
import re
import subprocess
import tarfile
import unittest

from browser import Browser
from mail_server import MailServer
from playwright.sync_api import expect
from settee.cluster import Cluster
from settee.node import PASSWORD, SCRATCH, USERNAME, binary, scratch
from settee.rest import Rest
from settee.teller import Teller

ADDRESS = os.environ["SETTEE_ADDRESS"]
BUCKET = "songs"
PRESSED = "pressed"
ABOUT_TIME = re.compile(r"^[\d.]+ (µs|ms|s)$")
# The percentiles of a bucket: half, and all but one of a hundred.
TWO_TIMES = re.compile(r"^[\d.]+ (µs|ms|s), [\d.]+ (µs|ms|s)$")
# How long a rebalance goes on, as far as anybody knows.
TIME_LEFT = re.compile(r", ([\d.]+ (s|min|h|days)) left\.")
# Presses of a key until somebody who has no mouse gives up.
PRESSES_MAX = 250
# A name that does something to a page which takes it for HTML.
HOSTILE = "<img src=x onerror=\"document.title='taken over'\">"
# A second of a load of 400 operations a second; a busy machine has some of them a moment late.
ABOUT_400 = re.compile(r"^(3[5-9]|4[0-4])\d$")
# What takes as long as a rebalance, an alert or the silence of a node.
LONG_MS = 60_000


# What a client tells of a node: of twenty reads, one took longer than a millisecond.
REPORT = """\
sdk_kv_retrieval_duration_milliseconds_bucket{{le="1",{labels}}} 19
sdk_kv_retrieval_duration_milliseconds_bucket{{le="10",{labels}}} 20
sdk_kv_retrieval_duration_milliseconds_bucket{{le="+Inf",{labels}}} 20
sdk_kv_retrieval_duration_milliseconds_sum{{{labels}}} 30
sdk_kv_retrieval_duration_milliseconds_count{{{labels}}} 20
sdk_kv_r_total{{{labels}}} 20
"""


def load(bucket, *more):
    """A load on a bucket, as its process. What it says is kept beside the servers' logs."""
    command = [binary(), "load", "--host", ADDRESS, "-u", USERNAME, "-b", bucket, *more]
    environment = {**os.environ, "SETTEE_PASSWORD": PASSWORD}
    with open(SCRATCH / "console" / f"load-{bucket}.log", "wb") as log:
        return subprocess.Popen([str(part) for part in command], env=environment, stdout=log, stderr=log)


class Console(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(ADDRESS, scratch("console"), 3)
        cls.addClassCleanup(cls.cluster.stop)
        for node in cls.cluster.nodes:
            node.start()
        cls.node = cls.cluster[0]
        cls.browser = Browser(f"http://{ADDRESS}:{cls.node.ports['mgmt']}")
        cls.addClassCleanup(cls.browser.close)
        cls.page = cls.browser.page

    def tearDown(self):
        self.assertEqual(self.browser.faults(), [])
        self.assertEqual(self.browser.foreign(), [])

    def field(self, label):
        return self.page.get_by_label(label, exact=True)

    def press(self, name):
        self.page.get_by_role("button", name=name, exact=True).click()

    def open(self, title):
        """The page of that name in the navigation."""
        self.page.get_by_role("navigation", name="Pages").get_by_role("link", name=title, exact=True).click()

    def region(self, name):
        return self.page.get_by_role("region", name=name, exact=True)

    def row(self, table, name):
        """The row of a table that has this text."""
        return self.region(table).get_by_role("row").filter(has_text=name)

    def no_barriers(self, of=None):
        self.assertEqual(self.browser.barriers(), [], of)

    def log_in(self, password=PASSWORD):
        self.field("User name").fill(USERNAME)
        self.field("Password").fill(password)
        self.press("Log in")

    def heading(self, name):
        expect(self.page.get_by_role("heading", name=name, exact=True)).to_be_visible()

    def said(self, text):
        expect(self.page.get_by_text(text).first).to_be_visible()

    def all_are_healthy(self):
        expect(self.region("Servers").get_by_text("healthy", exact=True)).to_have_count(3, timeout=LONG_MS)
        expect(self.page.get_by_text("Data is not where it should be yet")).to_have_count(0, timeout=LONG_MS)
        expect(self.page.get_by_role("button", name="Rebalance", exact=True)).to_be_enabled(timeout=LONG_MS)

    def test_01_a_new_node_is_set_up_in_the_browser(self):
        # The way that somebody comes who types the address.
        self.page.goto(f"{self.browser.base}/")
        self.heading("Set up Settee")
        self.no_barriers()
        self.field("Name of the cluster").fill("console test")
        self.field("Administrator’s name").fill(USERNAME)
        self.field("Password").fill(PASSWORD)
        self.field("The same password again").fill(PASSWORD + "x")
        self.field("Memory for buckets, in MiB").fill("1024")
        self.press("Set this node up")
        expect(self.page.get_by_role("alert")).to_contain_text("differ")
        self.field("The same password again").fill(PASSWORD)
        self.press("Set this node up")
        self.heading("Is it healthy?")
        self.assertEqual(self.node.rest.get("/pools/default").json["clusterName"], "console test")
        page = self.browser.answers[f"{self.browser.base}/ui/"]
        policy = page.headers["content-security-policy"]
        self.assertIn("default-src 'self'", policy)
        self.assertNotIn("unsafe", policy)

    def test_02_a_wrong_password_says_so(self):
        self.press("Log out")
        self.heading("Settee")
        self.browser.expected.append("/uilogin")
        self.log_in("wrong")
        expect(self.page.get_by_role("alert")).to_contain_text("wrong")
        self.no_barriers()
        self.log_in()
        self.heading("Is it healthy?")

    def test_03_the_overview_answers_its_questions_in_light_and_dark(self):
        for question in ("Is it healthy?", "Is it slow?", "What runs out, and when?", "What has changed?"):
            self.heading(question)
        expect(self.page.get_by_role("cell", name="Memory given to buckets", exact=True)).to_be_visible()
        self.no_barriers()
        self.press("Dark")
        self.no_barriers()
        self.press("Light")
        # Other suites may run beside this one: the fastest of a few counts.
        painted, sent = min((self.browser.first_paint() for _ in range(3)), key=lambda one: one[0])
        print(f"the first page was painted after {painted:.0f} ms, with {sent} bytes", flush=True)
        self.assertLess(painted, 1_000)
        self.assertLess(sent, 100_000)
        self.assertGreater(sent, 30_000, "not all of the page was counted")
        self.heading("Is it healthy?")

    def test_04_two_servers_are_added(self):
        self.open("Servers")
        self.no_barriers()
        for other in self.cluster.nodes[1:]:
            self.press("Add a server")
            self.field("Its address").fill(other.address)
            self.field("Its administrator’s password").fill("any")
            self.press("Add it")
            expect(self.row("Servers", other.address).get_by_text("added, waits for a rebalance")).to_be_visible()
        self.press("Rebalance")
        self.said("The rebalance has begun.")
        self.all_are_healthy()
        self.no_barriers()

    def section_is_saved(self, title):
        """A section of the settings."""
        section = self.page.locator("section", has=self.page.get_by_role("heading", name=title, exact=True))
        with self.page.expect_response(lambda answer: "/settings/" in answer.url and answer.request.method == "POST") as saved:
            section.get_by_role("button", name="Save").click()
        self.assertEqual(saved.value.status, 200, title)

    def test_05_clients_are_asked_what_they_measure(self):
        self.open("Settings")
        # A node that is silent in a later test is not to be failed over, however slow this machine is.
        self.field("After so many seconds").fill("600")
        self.section_is_saved("Automatic failover")
        self.page.get_by_label("Ask SDKs how long their operations took").check()
        self.field("Every so many seconds").fill("60")
        self.section_is_saved("What clients measure")
        self.no_barriers()
        about = self.node.rest.get("/pools/default").json["nodes"][0]
        labels = f'bucket="{BUCKET}",node_uuid="{about["nodeUUID"]}"'
        # What it says comes a minute later, when the bucket is there: other tests go on meanwhile.
        type(self).teller = Teller(self.node, REPORT.format(labels=labels))
        self.addClassCleanup(self.teller.close)
        self.teller.start()

    def test_06_a_bucket_is_made_and_its_charts_move_under_load(self):
        self.open("Buckets")
        self.press("New bucket")
        self.no_barriers()
        self.field("Name").fill("so ngs")
        self.field("Memory quota on each node, in MiB").fill("128")
        self.browser.expected.append("/pools/default/buckets")
        self.press("Make it")
        expect(self.page.get_by_role("alert")).to_contain_text("Bucket name")
        self.field("Name").fill(BUCKET)
        self.press("Make it")
        self.heading(BUCKET)
        self.node.rest.wait_healthy(BUCKET)
        figure = self.page.locator("figure", has=self.page.get_by_role("heading", name="Operations per second"))
        drawn = figure.locator("canvas")
        expect(drawn).to_be_visible()
        before = drawn.screenshot()
        # It goes on until the bucket is dropped, through everything that is done to its nodes.
        type(self).loading = load(BUCKET, "-n", "2000", "-r", "400", "--seconds", "900", "--timeout", "2", "--reconnect")
        self.addClassCleanup(self.loading.wait)
        self.addClassCleanup(self.loading.kill)
        expect(figure.locator(".legend b").first).to_have_text(ABOUT_400, timeout=LONG_MS)
        self.assertNotEqual(drawn.screenshot(), before)
        self.no_barriers()
        table = figure.get_by_role("button", name="Table of Operations per second")
        table.click()
        expect(figure.get_by_role("cell", name=ABOUT_400).first).to_be_visible()
        self.latency_is_drawn("get")
        self.press("Writes")
        self.latency_is_drawn("set")
        self.field("Figures of").select_option(f"{ADDRESS}:8091")
        table.click()
        # About a third of the load goes to each node.
        expect(figure.get_by_role("row").nth(1).get_by_role("cell").nth(1)).to_have_text(re.compile(r"^1\d\d$"))
        self.press("Year")
        table.click()
        expect(figure.get_by_role("row").first).to_be_visible()
        expect(figure.get_by_role("row").nth(3)).to_have_count(0)
        self.latency_is_shown()

    def latency_is_drawn(self, operation):
        """Percentiles and the heat map of an operation, each with its table."""
        for title, figures in ((f"Latency of {operation}", ABOUT_TIME), (f"Requests of {operation} by latency", re.compile(r"^[1-9][\d.]*( k)?$"))):
            figure = self.page.locator("figure", has=self.page.get_by_role("heading", name=title))
            expect(figure.locator("canvas")).to_be_visible()
            figure.get_by_role("button", name=f"Table of {title}").click()
            expect(figure.get_by_role("cell", name=figures).first).to_be_visible()

    def latency_is_shown(self):
        """Percentiles and the heat map of reads, and an objective that is set for them."""
        self.browser.go("latency", BUCKET, "get")
        self.heading("Latency of get")
        self.latency_is_drawn("get")
        operations = self.page.get_by_role("region", name="Latency by operation")
        expect(operations.get_by_role("link", name="get", exact=True)).to_be_visible()
        expect(self.page.get_by_role("cell", name="its work itself")).to_be_visible()
        self.heading("Slow operations")
        self.press("New objective")
        self.field("Name").fill("fast-reads")
        self.no_barriers()
        self.press("Set it")
        expect(self.page.get_by_role("cell", name="fast-reads", exact=True)).to_be_visible()
        self.assertEqual(self.node.rest.get(f"/settee/slo/{BUCKET}/fast-reads").json["latencyUs"], 5000)
        self.no_barriers()

    def test_07_a_document_is_written_and_changed(self):
        self.open("Documents")
        self.press("New document")
        self.field("Key").fill("album/1")
        value = self.field("Value, as JSON")
        value.fill('{"title": "Blue",')
        expect(self.page.get_by_text("This is not JSON")).to_be_visible()
        expect(self.page.get_by_role("button", name="Save")).to_be_disabled()
        self.no_barriers()
        value.fill('{"title": "Blue"}')
        self.press("Save")
        path = f"/pools/default/buckets/{BUCKET}/docs/album%2F1"
        expect(self.page.get_by_text("album/1 is saved.")).to_be_visible()
        self.assertEqual(self.node.rest.get(path).json["json"], '{"title": "Blue"}')

        self.field("Keys that begin with").fill("album/")
        self.press("Show")
        self.page.get_by_role("button", name="album/1", exact=True).click()
        expect(value).to_have_value('{\n  "title": "Blue"\n}')
        # Somebody else is faster.
        self.node.rest.ok("POST", path, {"value": '{"title": "Hejira"}'})
        value.fill('{"title": "Court and Spark"}')
        self.browser.expected.append("/docs/album%2F1")
        self.press("Save")
        expect(self.page.get_by_role("alert")).to_contain_text("has changed")
        self.press("Cancel")
        self.page.get_by_role("button", name="album/1", exact=True).click()
        expect(value).to_have_value('{\n  "title": "Hejira"\n}')
        value.fill('{"title": "Court and Spark"}')
        self.press("Save")
        # Its note is no sign: that of the first save may be there still.
        expect(self.page.get_by_role("dialog")).to_have_count(0)
        for node in self.cluster.nodes:
            self.assertEqual(node.rest.get(path).json["json"], '{"title": "Court and Spark"}')
        self.no_barriers()

    def test_08_a_view_is_tried_published_and_queried(self):
        self.open("Views")
        self.heading("Views")
        self.press("New view")
        self.no_barriers()
        self.field("Design document").fill("albums")
        self.field("View").fill("by_title")
        self.press("Make it")
        self.heading("by_title")
        source = self.page.get_by_role("textbox", name="Map: what is emitted of each document")
        source.fill("function (doc, meta) { emit(")
        self.browser.expected += ["/_try", "/_design/dev_albums"]
        for button in ("Try on 50 documents", "Save"):
            self.press(button)
            expect(self.page.get_by_role("alert")).to_contain_text("by_title" if button == "Save" else "trial")
        source.fill("function (doc, meta) { if (meta.id !== 'album/1') throw 'no album'; log('one'); emit(doc.title, 2); }")
        self.field("Reduction").select_option("_sum")
        self.press("Try on 50 documents")
        expect(self.page.get_by_text("50 documents tried: 0 rows, and 50 documents on which the function failed.")).to_be_visible()
        expect(self.page.get_by_role("cell", name="no album")).to_be_visible()
        self.field("Try it on documents whose keys begin with").fill("album/")
        self.press("Try on 50 documents")
        expect(self.page.get_by_text("1 document tried: 1 row.")).to_be_visible()
        expect(self.page.get_by_role("cell", name="\"Court and Spark\"")).to_be_visible()
        expect(self.page.get_by_text("1 row reduced to 2.")).to_be_visible()
        self.no_barriers()
        self.press("Save")
        expect(self.page.get_by_text("by_title is saved.")).to_be_visible()
        self.press("Publish dev_albums")
        expect(self.page.get_by_text("dev_albums is published as albums.")).to_be_visible()
        published = self.node.rest.get(f"/couchBase/{BUCKET}/_design/albums").json
        self.assertEqual(published["views"]["by_title"]["reduce"], "_sum")

        self.browser.go("views", BUCKET, "albums", "by_title")
        expect(source).to_have_attribute("readonly", "")
        self.field("Key").fill('"Court and Spark"')
        self.press("Query")
        expect(self.page.get_by_text("1 result in")).to_be_visible()
        self.page.get_by_label("Rows instead of their reduction").check()
        self.press("Query")
        expect(self.page.get_by_text("1 of 1 row in")).to_be_visible()
        expect(self.page.get_by_role("cell", name="album/1", exact=True)).to_be_visible()
        expect(self.page.get_by_text("The function has failed on")).to_be_visible()
        self.no_barriers()

    def test_09_a_node_is_failed_over_and_comes_back_under_load(self):
        other = self.cluster[1]
        self.open("Servers")
        self.row("Servers", other.address).get_by_role("button", name="Fail over").click()
        self.no_barriers()
        self.field("How").select_option("hard")
        self.press("Fail over")
        expect(self.row("Servers", other.address).get_by_text("failed over", exact=True)).to_be_visible(timeout=LONG_MS)
        self.no_barriers()
        self.row("Servers", other.address).get_by_role("button", name="Recover").click()
        self.no_barriers()
        self.press("Recover")
        expect(self.row("Servers", other.address).get_by_text("waits for a rebalance (delta recovery)")).to_be_visible()
        self.press("Rebalance")
        # It may be over before somebody has seen how far it is.
        running = self.region("Rebalance").or_(self.region("Servers").get_by_text("healthy", exact=True).nth(2))
        expect(running.first).to_be_visible(timeout=LONG_MS)
        self.no_barriers()
        self.all_are_healthy()
        self.assertIsNone(self.loading.poll(), "the load has ended")

    def test_10_a_node_that_says_nothing_is_shown_with_old_figures_and_an_alert(self):
        silent = self.cluster[2]
        name = f"{silent.address}:8091"
        self.open("Servers")
        silent.pause()
        self.addCleanup(lambda: silent.paused and silent.resume())
        row = self.row("Servers", silent.address)
        expect(row.get_by_text("does not answer")).to_be_visible(timeout=LONG_MS)
        self.open("Alerts")
        firing = self.region("Alerts that fire").get_by_role("listitem").filter(has_text="node_down")
        expect(firing.get_by_text(f"Node {name} is not heard of.")).to_be_visible()
        self.the_alert_is_silenced(firing, name)
        self.the_alert_leads_to_its_entry_of_the_guide(firing, name)
        self.open("Servers")
        expect(row.get_by_text(re.compile(r"^figures of \d+ (s|min) ago$"))).to_be_visible(timeout=LONG_MS)
        self.assertGreater(row.locator(".old").count(), 3)
        self.no_barriers()
        silent.resume()
        self.all_are_healthy()
        expect(row.locator(".old")).to_have_count(0)
        self.open("Alerts")
        expect(firing).to_have_count(0, timeout=LONG_MS)

    def the_alert_is_silenced(self, firing, subject):
        """For the node that it is about, then for another node, which silences nothing."""
        firing.get_by_role("button", name="Silence it").click()
        self.no_barriers()
        expect(self.field("Only about")).to_have_value(subject)
        self.field("Why").fill("disk swap")
        dialog = self.page.get_by_role("dialog")
        dialog.get_by_role("button", name="Silence it").click()
        expect(firing.get_by_text("silent until")).to_be_visible()
        silence = self.row("Silences", "disk swap")
        expect(silence.get_by_role("cell", name="every node", exact=True)).to_be_visible()
        self.no_barriers()
        silence.get_by_role("button", name="End it").click()
        expect(firing.get_by_text("silent until")).to_have_count(0)
        self.press("New silence")
        self.field("Alert").select_option("node_down")
        self.field("Told by").select_option(f"{self.cluster[0].address}:8091")
        dialog.get_by_role("button", name="Silence it").click()
        expect(self.row("Silences", "node_down").get_by_role("cell", name=f"{self.cluster[0].address}:8091")).to_be_visible()
        expect(firing.get_by_text("silent until")).to_have_count(0)
        [one] = self.node.rest.get("/settee/alerts/silences").json["silences"]
        self.assertEqual((one["alert"], one["node"], one["subject"]), ("node_down", None, f"{self.cluster[0].address}:8091"))
        self.row("Silences", "node_down").get_by_role("button", name="End it").click()
        self.said("No alert is silenced.")

    def the_alert_leads_to_its_entry_of_the_guide(self, firing, subject):
        """The same entry as at the address that is told to others."""
        [alert] = [one for one in self.node.rest.get("/settee/alerts").json["firing"] if one["name"] == "node_down"]
        firing.get_by_role("link", name="node_down", exact=True).click()
        self.heading("node_down")
        # The address is that of the node that tells it.
        self.assertEqual(self.page.url.split("/ui/")[1], alert["guideUrl"].split("/ui/")[1])
        [about] = [one for one in self.node.rest.get("/settee/alerts/kinds").json["kinds"] if one["name"] == "node_down"]
        for section, text in (("What it means", about["means"]), ("What causes it", about["cause"]), ("What to do", about["act"])):
            expect(self.region(section)).to_contain_text(text.replace("`", ""))
        expect(self.region("Does it fire now?")).to_contain_text(f"Node {subject} is not heard of.")
        self.no_barriers("an entry of the guide")
        self.browser.go("alerts", "guide", "no_such_alert")
        self.said("This node knows no alert of this name.")
        self.page.get_by_role("link", name="All alerts", exact=True).click()
        self.heading("Every alert")

    def test_11_an_alert_fires_under_pressure_and_clears(self):
        self.node.rest.create_bucket(PRESSED, quota_mb=100, kind="ephemeral", flushEnabled=1)
        writes = load(PRESSED, "-n", "600", "--populate", "--value-bytes", "1000000", "-c", "3")
        self.addCleanup(writes.wait)
        self.addCleanup(writes.kill)
        self.open("Alerts")
        firing = self.region("Alerts that fire").get_by_role("listitem").filter(has_text=PRESSED)
        expect(firing.filter(has_text="writes_refused").first).to_be_visible(timeout=LONG_MS)
        self.no_barriers()
        writes.kill()
        self.open("Overview")
        expect(self.page.get_by_text("Something needs you")).to_be_visible()
        self.no_barriers()
        self.browser.go("buckets", PRESSED)
        self.copies_without_room_are_refused_until_they_are_forced()
        self.press("Flush")
        self.field(f"Type {PRESSED} to go on").fill(PRESSED)
        self.press("Delete all documents")
        self.said("The bucket is empty.")
        self.open("Alerts")
        expect(firing).to_have_count(0, timeout=LONG_MS)
        self.node.rest.delete_bucket(PRESSED)

    def copies_without_room_are_refused_until_they_are_forced(self):
        place = f"/pools/default/buckets/{PRESSED}"
        self.browser.expected.append(place)
        self.press("Settings")
        force = self.page.get_by_label("Do it all the same, although there is too little room")
        expect(force).to_have_count(0)
        self.field("Replicas").select_option("1")
        self.press("Save")
        self.said("With headroom that needs a quota of")
        self.no_barriers()
        self.assertEqual(self.node.rest.get(place).json["replicaNumber"], 0)
        force.check()
        self.press("Save")
        self.said("Saved.")
        self.assertEqual(self.node.rest.get(place).json["replicaNumber"], 1)

    def test_12_every_other_page_can_be_used_by_everybody(self):
        for title in ("Audit", "Clients", "Collections", "Users", "Certificates", "Logs"):
            self.open(title)
            self.heading(title)
            expect(self.page.get_by_text("Loading…")).to_have_count(0)
            self.no_barriers(title)
        self.open("Settings")
        self.field("Name of the cluster").fill("renamed")
        self.page.get_by_role("button", name="Save", exact=True).first.click()
        expect(self.page.get_by_text("Saved.")).to_be_visible()
        self.assertEqual(self.node.rest.get("/pools/default").json["clusterName"], "renamed")
        self.users_and_groups_are_made_and_changed()
        self.a_mail_is_tried()
        self.every_node_makes_an_archive()

    def users_and_groups_are_made_and_changed(self):
        self.open("Users")
        self.press("New group")
        self.field("Name of the group").fill("readers")
        self.field("What it is for").fill("reports")
        roles = self.page.get_by_role("textbox", name="Roles")
        roles.fill("no_such_role")
        self.browser.expected.append("/settings/rbac/groups/readers")
        self.press("Save")
        expect(self.page.get_by_role("alert")).to_contain_text("no_such_role")
        self.no_barriers("a group")
        roles.fill(f"data_reader[{BUCKET}]")
        self.press("Save")
        expect(self.row("Groups", "readers").get_by_role("cell", name="nobody", exact=True)).to_be_visible()
        self.press("New user")
        self.field("User name").fill("ann")
        self.field("Password").fill("secret-1")
        roles.fill(f"data_writer[{BUCKET}]")
        self.page.get_by_label("readers", exact=True).check()
        self.no_barriers("a user")
        self.press("Save")
        expect(self.row("Groups", "readers").get_by_role("cell", name="ann", exact=True)).to_be_visible()
        # What is not changed stays, and what the user has by the group does not become the user's own.
        user = self.row("Users", "ann")
        user.get_by_role("button", name="Change").click()
        self.field("Full name").fill("Ann Other")
        self.press("Save")
        expect(user.get_by_role("cell", name="Ann Other", exact=True)).to_be_visible()
        told = self.node.rest.get("/settings/rbac/users/local/ann").json
        own = [role["role"] for role in told["roles"] if {"type": "user"} in role["origins"]]
        self.assertEqual((told["groups"], own, len(told["roles"])), (["readers"], ["data_writer"], 2))
        self.no_barriers("users and groups")
        group = self.row("Groups", "readers")
        group.get_by_role("button", name="Change").click()
        self.field("What it is for").fill("monthly reports")
        self.press("Save")
        expect(group.get_by_role("cell", name="monthly reports", exact=True)).to_be_visible()
        about = self.node.rest.get("/settings/rbac/groups/readers").json
        self.assertEqual([role["role"] for role in about["roles"]], ["data_reader"])
        group.get_by_role("button", name="Remove").click()
        self.field("Type readers to go on").fill("readers")
        self.press("Remove the group")
        self.said("There are no groups.")
        self.assertEqual(self.node.rest.get("/settings/rbac/users/local/ann").json["groups"], [])

    def a_mail_is_tried(self):
        server = MailServer(ADDRESS)
        self.addCleanup(server.close)
        self.open("Alerts")
        self.page.get_by_role("button", name="Change who gets a mail").click()
        for label, value in (("To", "ops@example.com"), ("From", "settee@example.com"), ("Mail server", ADDRESS), ("Its port", str(server.port))):
            self.field(label).fill(value)
        self.no_barriers("mail")
        self.press("Send a mail to try it")
        self.said("The mail server has taken a mail.")
        [mail] = server.mails
        self.assertEqual(mail.recipients, ["ops@example.com"])
        self.assertIn("From: <settee@example.com>", mail.text)
        # Nobody is mailed: that was a trial.
        self.press("Cancel")
        self.assertFalse(self.node.rest.get("/settings/alerts").json["enabled"])

    def every_node_makes_an_archive(self):
        self.open("Logs")
        self.press("Make archives")
        expect(self.region("Archives").get_by_text("collected", exact=True)).to_have_count(3, timeout=LONG_MS)
        self.no_barriers("archives")
        paths = self.region("Archives").locator("code").all_text_contents()
        self.assertEqual(len(paths), 3)
        downloaded = []
        for node in self.cluster.nodes:
            with self.page.expect_download() as downloading:
                self.press(f"Download that of {node.address}")
            downloaded.append(downloading.value)
        names = [one.suggested_filename for one in downloaded]
        self.assertIn(names[0], [os.path.basename(path) for path in paths])
        self.assertEqual(names[1:], [f"collected-{node.address}-8091.tar" for node in self.cluster.nodes[1:]])
        for path in [*paths, *(one.path() for one in downloaded)]:
            with tarfile.open(path) as archive:
                self.assertIn("contents.txt", archive.getnames(), path)

    def test_13_what_clients_measure_is_shown(self):
        self.browser.go("latency", BUCKET, "get")
        told = self.row("Operations as clients see them", "Reads")
        expect(told).to_be_visible(timeout=LONG_MS + 30_000)
        expect(told.get_by_text("95.0 % within 1.0 ms")).to_be_visible()
        expect(told.get_by_text("100 % within 10 ms")).to_be_visible()
        expect(self.row("Requests as clients count them", "Documents").get_by_role("cell", name="20", exact=True)).to_be_visible()
        objective = self.row("Objectives", "fast-reads")
        expect(objective.get_by_text("95.000 %")).to_be_visible()
        expect(objective.get_by_text("of 20 within 1.0 ms")).to_be_visible()
        self.no_barriers()

    def test_14_the_overview_says_how_fast_each_bucket_is_without_an_objective(self):
        self.open("Overview")
        speed = self.row("Speed of buckets", BUCKET)
        expect(speed.get_by_role("cell").filter(has_text=TWO_TIMES)).to_have_count(2, timeout=LONG_MS)
        self.no_barriers()

    def test_15_hot_documents_and_their_clients_are_shown(self):
        # One document among all that the other load reads and writes.
        hot = load(BUCKET, "-n", "1", "--key-prefix", "hot", "-r", "1500", "--seconds", "300", "--timeout", "2", "--reconnect")
        self.addCleanup(hot.wait)
        self.addCleanup(hot.kill)
        self.browser.go("clients", BUCKET)
        document = self.region(f"Hot documents of {BUCKET}").get_by_role("row").filter(has_text=re.compile("^[1-9]"))
        expect(document.first).to_be_visible(timeout=LONG_MS)
        expect(document.first.locator("code")).to_have_text(re.compile("^hot"))
        connections = self.row("Connections", BUCKET).filter(has_text=USERNAME)
        expect(connections.first).to_be_visible(timeout=LONG_MS)
        expect(self.region("Addresses").get_by_role("row").nth(1)).to_contain_text(BUCKET)
        self.no_barriers("clients under load")
        self.browser.go("latency", BUCKET, "get")
        figure = self.page.locator("figure", has=self.page.get_by_role("heading", name="Requests of get by latency"))
        canvas = figure.locator("canvas")
        expect(canvas).to_be_visible()
        # Columns of the map that have a field which is filled, its labels aside.
        filled = """(one) => {
          const { width, height } = one;
          const left = Math.ceil(70 * devicePixelRatio);
          const { data } = one.getContext('2d').getImageData(left, 0, width - left, height - Math.ceil(20 * devicePixelRatio));
          const wide = width - left;
          return Array.from({ length: wide }, (_, x) => x).filter((x) => {
            for (let at = x * 4 + 3; at < data.length; at += wide * 4) if (data[at]) return true;
            return false;
          }).length / wide;
        }"""
        self.assertGreater(canvas.evaluate(filled), 0.3, "the heat map is not filled")

    def test_16_the_audit_trail_is_shown_to_its_beginning_and_nothing_in_it_is_taken_for_html(self):
        Rest(ADDRESS, self.node.ports["mgmt"], HOSTILE, "x").request("GET", "/pools/default")
        self.open("Audit")
        trail = self.region("Audit trail").last
        expect(trail.get_by_role("row").nth(1)).to_be_visible()
        self.no_barriers("audit")
        self.field("Event").select_option("login failure")
        expect(trail.get_by_role("row").filter(has_text=HOSTILE)).to_be_visible()
        self.assertEqual(self.page.locator("main img").count(), 0)
        self.assertNotEqual(self.page.title(), "taken over")
        self.field("Event").select_option("bucket changed")
        self.field("User").fill(USERNAME)
        self.page.keyboard.press("Enter")
        made = trail.get_by_role("row").filter(has_text=f"{BUCKET}: created")
        expect(made).to_be_visible()
        expect(trail.get_by_role("row").filter(has_text="login failure")).to_have_count(0)
        self.field("User").fill("nobody-of-this-name")
        self.page.keyboard.press("Enter")
        self.said("No such event.")
        # All of it, page by page.
        self.field("User").fill("")
        self.page.keyboard.press("Enter")
        self.field("Event").select_option("")
        further = self.page.get_by_role("button", name="Look further back", exact=True)
        end = self.page.get_by_text("This is all that the nodes have kept.")
        for _ in range(50):
            expect(further.or_(end).first).to_be_visible()
            if end.is_visible():
                break
            before = trail.get_by_role("row").count()
            further.click()
            expect(trail.get_by_role("row")).not_to_have_count(before)
        expect(end).to_be_visible()

    def tab_to(self, target, key="Tab"):
        """Presses a key until something has the focus, as somebody without a mouse does."""
        expect(target).to_be_visible()
        for _ in range(PRESSES_MAX):
            self.page.keyboard.press(key)
            if target.evaluate("(one) => one === document.activeElement"):
                return
        self.fail(f"{target} cannot be reached by {key}")

    def type(self, text):
        self.page.keyboard.type(text)

    def test_17_the_main_job_is_done_by_keys_alone(self):
        press = self.page.keyboard.press
        link = lambda name: self.page.get_by_role("navigation", name="Pages").get_by_role("link", name=name, exact=True)  # noqa: E731
        self.tab_to(self.page.get_by_role("button", name="Log out", exact=True))
        press("Enter")
        self.heading("Settee")
        self.tab_to(self.field("User name"))
        self.type(USERNAME)
        press("Tab")
        self.type(PASSWORD)
        press("Enter")
        expect(self.page.get_by_role("navigation", name="Pages")).to_be_visible()
        self.page.reload()
        self.tab_to(self.page.get_by_role("link", name="Skip to the page"))
        press("Enter")
        self.assertTrue(self.page.locator("main").evaluate("(one) => one === document.activeElement"))
        self.tab_to(link("Buckets"), "Shift+Tab")
        press("Enter")
        self.heading("Buckets")
        self.tab_to(self.region("Buckets").get_by_role("link", name=BUCKET, exact=True))
        press("Enter")
        self.heading(BUCKET)
        chosen = self.field("Figures of")
        self.tab_to(chosen)
        press("ArrowDown")
        expect(chosen).not_to_have_value("")
        press("ArrowUp")
        expect(chosen).to_have_value("")
        figure = self.page.locator("figure", has=self.page.get_by_role("heading", name="Operations per second"))
        self.tab_to(figure.get_by_role("button", name="Table of Operations per second"))
        press("Space")
        expect(figure.get_by_role("table")).to_be_visible()
        self.tab_to(link("Documents"), "Shift+Tab")
        press("Enter")
        self.heading("Documents")
        self.tab_to(self.field("Keys that begin with"))
        self.type("album/")
        press("Enter")
        document = self.page.get_by_role("button", name="album/1", exact=True)
        self.tab_to(document)
        press("Enter")
        self.a_dialog_keeps_the_keys_and_gives_them_back(document)

    def a_dialog_keeps_the_keys_and_gives_them_back(self, opener):
        """What was behind the dialog is out of reach while it is there, and goes on where it was."""
        dialog = self.page.get_by_role("dialog", name="album/1")
        value = dialog.get_by_label("Value, as JSON")
        expect(value).to_have_value(re.compile("Court and Spark"))
        for _ in range(25):
            self.page.keyboard.press("Tab")
            behind = "document.activeElement !== document.body && !document.activeElement.closest('dialog')"
            self.assertFalse(self.page.evaluate(behind), "the focus has left the dialog")
        self.tab_to(value)
        self.page.keyboard.press("Control+End")
        self.type("x")
        expect(dialog.get_by_text("This is not JSON")).to_be_visible()
        self.page.keyboard.press("Backspace")
        expect(dialog.get_by_text("This is not JSON")).to_have_count(0)
        self.page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)
        expect(opener).to_be_focused()

    def test_80_a_rebalance_says_how_long_it_takes_and_what_it_waits_for(self):
        leaver, silent = self.cluster[1], self.cluster[2]
        self.open("Servers")
        self.row("Servers", leaver.address).get_by_role("button", name="Remove").click()
        self.field(f"Type {leaver.address}:8091 to go on").fill(f"{leaver.address}:8091")
        self.press("Remove and rebalance")
        # At once: a rebalance of so few documents takes some seconds.
        silent.pause()
        self.addCleanup(lambda: silent.paused and silent.resume())
        running = self.region("Rebalance")
        expect(running.get_by_text(f"It waits: node {silent.address}:8091 has not been heard of")).to_be_visible(timeout=LONG_MS)
        self.no_barriers("a rebalance")
        silent.resume()
        expect(running).to_contain_text(TIME_LEFT, timeout=LONG_MS)
        expect(self.row("Servers", leaver.address)).to_have_count(0, timeout=3 * LONG_MS)

    def test_90_what_is_destroyed_is_named_first(self):
        self.browser.go("buckets", BUCKET)
        self.press("Drop")
        button = self.page.get_by_role("button", name="Drop the bucket")
        expect(button).to_be_disabled()
        self.no_barriers()
        self.field(f"Type {BUCKET} to go on").fill(BUCKET)
        button.click()
        self.heading("Buckets")
        self.loading.kill()
        self.assertEqual(self.node.rest.get("/pools/default/buckets").json, [])

    def test_91_a_session_ends_with_its_logout(self):
        cookies = self.browser.context.cookies()
        self.assertEqual([(cookie["httpOnly"], cookie["sameSite"]) for cookie in cookies], [(True, "Strict")])
        shown = {"Cookie": f"{cookies[0]['name']}={cookies[0]['value']}"}
        ask = lambda headers: Rest(ADDRESS, self.node.ports["mgmt"]).request("GET", "/pools/default", headers=headers).status  # noqa: E731
        self.assertEqual(ask({**shown, "ns-server-ui": "yes"}), 200)
        self.assertEqual(ask(shown), 401)
        self.press("Log out")
        self.heading("Settee")
        self.assertEqual(ask({**shown, "ns-server-ui": "yes"}), 401)
        self.assertEqual(self.browser.context.cookies(), [])
        # A page that is loaded again does not come back.
        self.page.reload()
        self.heading("Settee")


if __name__ == "__main__":
    unittest.main()
