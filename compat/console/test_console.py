"""The web console, as somebody with a browser meets it. The tests run in the order of their numbers, in one session."""

import os
import subprocess
import unittest

from browser import Browser
from playwright.sync_api import expect
from settee.node import PASSWORD, USERNAME, Node, binary, scratch

ADDRESS = os.environ["SETTEE_ADDRESS"]
BUCKET = "songs"


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
                expect(figure.locator(".legend b").first).to_have_text("400", timeout=30_000)
                self.assertNotEqual(drawn.screenshot(), before)
                self.assertEqual(self.browser.barriers(), [])
                figure.get_by_role("button", name="Table of Operations per second").click()
                expect(figure.get_by_role("table")).to_contain_text("400")
            finally:
                loading.terminate()

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
