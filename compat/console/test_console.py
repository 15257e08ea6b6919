"""The web console, as somebody with a browser meets it. The tests run in the order of their numbers, in one session."""

import os
import re
import subprocess
import time
import unittest

from browser import Browser
from playwright.sync_api import expect
from settee.node import PASSWORD, USERNAME, Node, binary, scratch

ADDRESS = os.environ["SETTEE_ADDRESS"]
OTHER = "127.0.31.51"
BUCKET = "songs"
ABOUT_TIME = re.compile(r"^[\d.]+ (µs|ms|s)$")
# A second of a load of 400 operations a second; a busy machine has some of them a moment late.
ABOUT_400 = re.compile(r"^(3[5-9]|4[0-4])\d$")


class Console(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.node = Node(ADDRESS, scratch("console"))
        cls.node.start()
        cls.addClassCleanup(cls.node.stop)
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

    def log_in(self, password=PASSWORD):
        self.field("User name").fill(USERNAME)
        self.field("Password").fill(password)
        self.press("Log in")

    def heading(self, name):
        expect(self.page.get_by_role("heading", name=name, exact=True)).to_be_visible()

    def test_01_a_new_node_is_set_up_in_the_browser(self):
        # The way that somebody comes who types the address.
        self.page.goto(f"{self.browser.base}/")
        self.heading("Set up Settee")
        self.assertEqual(self.browser.barriers(), [])
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
        self.assertEqual(self.browser.barriers(), [])
        self.log_in()
        self.heading("Is it healthy?")

    def test_03_the_overview_answers_its_questions_in_light_and_dark(self):
        for question in ("Is it healthy?", "Is it slow?", "What runs out, and when?", "What has changed?"):
            self.heading(question)
        expect(self.page.get_by_role("cell", name="Memory given to buckets", exact=True)).to_be_visible()
        self.assertEqual(self.browser.barriers(), [])
        self.press("Dark")
        self.assertEqual(self.browser.barriers(), [])
        self.press("Light")

    def test_04_a_bucket_is_made_and_its_chart_moves_under_load(self):
        self.page.get_by_role("link", name="Buckets", exact=True).click()
        self.press("New bucket")
        self.assertEqual(self.browser.barriers(), [])
        self.field("Name").fill("so ngs")
        self.field("Memory quota on each node, in MiB").fill("128")
        self.field("Replicas").select_option("0")
        self.browser.expected.append("/pools/default/buckets")
        self.press("Make it")
        expect(self.page.get_by_role("alert")).to_contain_text("Bucket name")
        self.field("Name").fill(BUCKET)
        self.press("Make it")
        self.heading(BUCKET)
        load = [binary(), "load", "--host", ADDRESS, "-u", USERNAME, "-b", BUCKET, "-n", "2000", "-r", "400", "--seconds", "30"]
        environment = {**os.environ, "SETTEE_PASSWORD": PASSWORD}
        with subprocess.Popen([str(part) for part in load], env=environment, stdout=subprocess.DEVNULL) as loading:
            try:
                figure = self.page.locator("figure", has=self.page.get_by_role("heading", name="Operations per second"))
                drawn = figure.locator("canvas")
                expect(drawn).to_be_visible()
                before = drawn.screenshot()
                expect(figure.locator(".legend b").first).to_have_text(ABOUT_400, timeout=30_000)
                self.assertNotEqual(drawn.screenshot(), before)
                self.assertEqual(self.browser.barriers(), [])
                figure.get_by_role("button", name="Table of Operations per second").click()
                expect(figure.get_by_role("cell", name=ABOUT_400).first).to_be_visible()
                self.press("Year")
                expect(figure.get_by_role("row").nth(3)).to_have_count(0)
                self.latency_is_shown()
            finally:
                loading.terminate()

    def latency_is_shown(self):
        """Percentiles and the heat map of reads, and an objective that is set for them."""
        self.browser.go("latency", BUCKET, "get")
        self.heading("Latency of get")
        for title, figures in (("Latency of get", ABOUT_TIME), ("Requests of get by latency", re.compile(r"^[1-9][\d.]*( k)?$"))):
            figure = self.page.locator("figure", has=self.page.get_by_role("heading", name=title))
            expect(figure.locator("canvas")).to_be_visible()
            figure.get_by_role("button", name=f"Table of {title}").click()
            expect(figure.get_by_role("cell", name=figures).first).to_be_visible()
        operations = self.page.get_by_role("region", name="Latency by operation")
        expect(operations.get_by_role("link", name="get", exact=True)).to_be_visible()
        expect(self.page.get_by_role("cell", name="its work itself")).to_be_visible()
        self.heading("Slow operations")
        self.press("New objective")
        self.field("Name").fill("fast-reads")
        self.assertEqual(self.browser.barriers(), [])
        self.press("Set it")
        expect(self.page.get_by_role("cell", name="fast-reads", exact=True)).to_be_visible()
        self.assertEqual(self.node.rest.get(f"/settee/slo/{BUCKET}/fast-reads").json["latencyUs"], 5000)
        self.assertEqual(self.browser.barriers(), [])

    def test_05_a_document_is_written_and_changed(self):
        self.page.get_by_role("link", name="Documents", exact=True).click()
        self.press("New document")
        self.field("Key").fill("album/1")
        value = self.field("Value, as JSON")
        value.fill('{"title": "Blue",')
        expect(self.page.get_by_text("This is not JSON")).to_be_visible()
        expect(self.page.get_by_role("button", name="Save")).to_be_disabled()
        self.assertEqual(self.browser.barriers(), [])
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
        self.assertEqual(self.node.rest.get(path).json["json"], '{"title": "Court and Spark"}')
        self.assertEqual(self.browser.barriers(), [])

    def test_06_a_server_is_added_and_gets_its_share(self):
        other = Node(OTHER, scratch("console-other"))
        other.start()
        self.addClassCleanup(other.stop)
        self.page.get_by_role("link", name="Servers", exact=True).click()
        self.assertEqual(self.browser.barriers(), [])
        self.press("Add a server")
        self.field("Its address").fill(OTHER)
        self.field("Its administrator’s password").fill("any")
        self.press("Add it")
        expect(self.page.get_by_text("added, waits for a rebalance").first).to_be_visible()
        self.press("Rebalance")
        expect(self.page.get_by_text("The rebalance has begun.")).to_be_visible()
        deadline = time.monotonic() + 60
        while not self.node.rest.get("/pools/default").json["balanced"]:
            self.assertLess(time.monotonic(), deadline, "the rebalance is not over")
            self.page.wait_for_timeout(200)
        expect(self.page.get_by_text("healthy", exact=True)).to_have_count(2)
        expect(self.page.get_by_text("Data is not where it should be yet")).to_have_count(0)
        expect(self.page.get_by_role("button", name="Rebalance", exact=True)).to_be_enabled()
        self.assertEqual(self.browser.barriers(), [])
        # Documents of both nodes, by each of them.
        for number in range(8):
            self.node.rest.ok("POST", f"/pools/default/buckets/{BUCKET}/docs/n{number}", {"value": "1"})
        rest = self.node.rest.__class__(OTHER, other.ports["mgmt"], USERNAME, PASSWORD)
        rows = rest.get(f'/pools/default/buckets/{BUCKET}/docs?startkey=%22n%22&endkey=%22o%22').json["rows"]
        self.assertEqual(rows, [{"id": f"n{number}"} for number in range(8)])
        for number in range(8):
            self.assertEqual(rest.get(f"/pools/default/buckets/{BUCKET}/docs/n{number}").json["json"], "1")

    def test_07_every_other_page_can_be_used_by_everybody(self):
        for title in ("Alerts", "Collections", "Users", "Settings", "Logs"):
            self.page.get_by_role("link", name=title, exact=True).click()
            self.heading(title)
            expect(self.page.get_by_text("Loading…")).to_have_count(0)
            self.assertEqual(self.browser.barriers(), [], title)
        self.page.get_by_role("link", name="Settings", exact=True).click()
        self.field("Name of the cluster").fill("renamed")
        self.page.get_by_role("button", name="Save", exact=True).first.click()
        expect(self.page.get_by_text("Saved.")).to_be_visible()
        self.assertEqual(self.node.rest.get("/pools/default").json["clusterName"], "renamed")
        self.page.get_by_role("link", name="Users", exact=True).click()
        self.press("New user")
        self.field("User name").fill("ann")
        self.field("Password").fill("secret-1")
        self.page.get_by_role("textbox", name="Roles").fill(f"data_reader[{BUCKET}]")
        self.press("Save")
        expect(self.page.get_by_role("cell", name=f"data_reader[{BUCKET}]")).to_be_visible()
        self.assertEqual(self.browser.barriers(), [])

    def test_08_a_view_is_tried_published_and_queried(self):
        self.page.get_by_role("link", name="Views", exact=True).click()
        self.heading("Views")
        self.press("New view")
        self.assertEqual(self.browser.barriers(), [])
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
        self.assertEqual(self.browser.barriers(), [])
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
        self.assertEqual(self.browser.barriers(), [])

    def test_90_what_is_destroyed_is_named_first(self):
        self.browser.go("buckets", BUCKET)
        self.press("Drop")
        button = self.page.get_by_role("button", name="Drop the bucket")
        expect(button).to_be_disabled()
        self.assertEqual(self.browser.barriers(), [])
        self.field(f"Type {BUCKET} to go on").fill(BUCKET)
        button.click()
        self.heading("Buckets")
        self.assertEqual(self.node.rest.get("/pools/default/buckets").json, [])

    def test_91_a_session_ends_with_its_logout(self):
        cookies = self.browser.context.cookies()
        self.assertEqual([(cookie["httpOnly"], cookie["sameSite"]) for cookie in cookies], [(True, "Strict")])
        shown = {"Cookie": f"{cookies[0]['name']}={cookies[0]['value']}"}
        ask = lambda headers: self.node.rest.__class__(ADDRESS, self.node.ports["mgmt"]).request("GET", "/pools/default", headers=headers).status  # noqa: E731
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
