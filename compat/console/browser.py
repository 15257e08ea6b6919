"""A real browser in front of a node's console, with everything it does noted: what it asks for, and what goes wrong in it."""

import os
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

HERE = Path(__file__).resolve().parent
AXE = HERE / "node_modules" / "axe-core" / "axe.min.js"
CHROMIUM = "/usr/bin/chromium"
PATIENCE_MS = 15_000
# What axe-core finds at least so bad is a failure.
SERIOUS = ("serious", "critical")

# When something was painted first. What has happened already is told as well.
PAINTED = """new Promise((tell) => new PerformanceObserver((list) => {
  const first = list.getEntriesByName('first-contentful-paint')[0];
  if (first) tell(first.startTime);
}).observe({ type: 'paint', buffered: true }))"""


class Browser:
    """Chromium, without a window. `page` is the one page of a fresh profile."""

    def __init__(self, base):
        self.base = base
        self.errors, self.requests, self.answers = [], [], {}
        # Errors that a test causes on purpose; Chromium notes each answer above 399.
        self.expected = []
        self._playwright = sync_playwright().start()
        # The sandbox of the browser cannot be set up by root.
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        self._chromium = self._playwright.chromium.launch(executable_path=CHROMIUM, args=options)
        # A colour on its way to another one would be judged by chance.
        still = {"reduced_motion": "reduce"}
        self.context = self._chromium.new_context(viewport={"width": 1280, "height": 900}, **still)
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        expect.set_options(timeout=PATIENCE_MS)
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("response", lambda answer: self.answers.setdefault(answer.url, answer))

    def _heard(self, message):
        if message.type in ("error", "warning"):
            self.errors.append(f"{message.type}: {message.text} {message.location.get('url', '')}")

    def go(self, *segments):
        self.page.goto(f"{self.base}/ui/#/{'/'.join(segments)}")

    def faults(self):
        """What went wrong in the browser, but for what the test has caused."""
        return [error for error in self.errors if not any(text in error for text in self.expected)]

    def foreign(self):
        """Requests to anybody but the node."""
        own = (self.base + "/", "data:", "blob:")
        return [url for url in self.requests if not url.startswith(own)]

    def barriers(self):
        """What keeps somebody with a screen reader or weak eyes out, as axe-core finds it on the page that is shown."""
        # The policy of the page lets no script in from elsewhere, so the tool is evaluated by the browser's own interface.
        self.page.evaluate(AXE.read_text())
        found = self.page.evaluate("axe.run()")["violations"]
        where = lambda rule: [node["html"][:150] for node in rule["nodes"][:3]]  # noqa: E731
        return [(rule["id"], rule["help"], where(rule)) for rule in found if rule["impact"] in SERIOUS]

    def first_paint(self):
        """Milliseconds from asking for the page until something of it was seen, and the bytes that came for that, with nothing known."""
        network = self.context.new_cdp_session(self.page)
        network.send("Network.enable")
        network.send("Network.setCacheDisabled", {"cacheDisabled": True})
        self.page.reload()
        self.page.get_by_role("heading", level=1).first.wait_for()
        network.detach()
        painted = self.page.evaluate(PAINTED)
        sent = "performance.getEntries().filter((one) => one.name.includes('/ui/')).map((one) => one.transferSize || 0)"
        return painted, sum(self.page.evaluate(sent))

    def close(self):
        self._chromium.close()
        self._playwright.stop()
