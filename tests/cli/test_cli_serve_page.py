# SPDX-License-Identifier: Apache-2.0
"""The page of serve in a real browser: Chromium without a window, driven over a pipe by its own
protocol. What a person types is found, shown as text, and nothing is loaded from elsewhere."""
import itertools
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
import unittest

from cli_case import Scratch, clean_environment
from test_cli_serve import LINES, Server
import tiny_bert

CHROMIUM = shutil.which("chromium")
HOSTILE = "<img src=http://127.0.0.1:1/x onerror=alert(1)> & <script>document.title = 'x'</script>"


class Browser:
    """A page of Chromium's; what it tells meanwhile is in events."""

    def __init__(self, case):
        profile = tempfile.mkdtemp()
        case.addCleanup(shutil.rmtree, profile, ignore_errors=True)
        child_reads, self.writes = os.pipe()
        self.reads, child_writes = os.pipe()

        def descriptors():  # the protocol's are 3 and 4, which may be taken by these
            ours = os.dup(child_reads), os.dup(child_writes)
            os.dup2(ours[0], 3)
            os.dup2(ours[1], 4)

        self.process = subprocess.Popen(
            [CHROMIUM, "--headless", "--remote-debugging-pipe", f"--user-data-dir={profile}",
             "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-background-networking", "about:blank"],
            env=clean_environment({"HOME": profile}), close_fds=False, preexec_fn=descriptors,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        case.addCleanup(self.end)
        os.close(child_reads)
        os.close(child_writes)
        watch = threading.Timer(100, self.process.kill)
        watch.start()
        case.addCleanup(watch.cancel)
        self.numbers, self.rest, self.events, self.session = itertools.count(1), b"", [], None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target,
                                 flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(domain + ".enable")

    def end(self):
        self.process.kill()
        self.process.wait()
        os.close(self.reads)
        os.close(self.writes)

    def message(self):
        while b"\0" not in self.rest:
            more = os.read(self.reads, 1 << 16)
            if not more:
                raise AssertionError("Chromium has ended")
            self.rest += more
        text, self.rest = self.rest.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, **params):
        number = next(self.numbers)
        sent = {"id": number, "method": method, "params": params}
        if self.session:
            sent["sessionId"] = self.session
        os.write(self.writes, json.dumps(sent).encode() + b"\0")
        while True:
            found = self.message()
            if found.get("id") == number:
                if "error" in found:
                    raise AssertionError((method, found["error"]))
                return found["result"]
            self.events.append(found)

    def value(self, expression):
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        return found["result"].get("value")

    def wait(self, expression):
        """The value once it is true."""
        for _ in range(600):
            found = self.value(expression)
            if found:
                return found
            time.sleep(0.02)
        raise AssertionError((expression, self.value("document.body.innerText")))

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.wait("document.readyState == 'complete' && !!document.getElementById('form')")

    def type(self, field, text):
        """Puts a text into a field in place of what is there, and presses Enter."""
        self.value(f"document.getElementById('{field}').select()")
        self.value(f"document.getElementById('{field}').focus()")
        self.call("Input.insertText", text=text)
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", text="\r",
                      windowsVirtualKeyCode=13)

    def of(self, method):
        return [event["params"] for event in self.events if event.get("method") == method]


ROWS = "[...document.getElementById('hits').rows].map(r => [...r.cells].map(c => c.textContent))"


@unittest.skipUnless(CHROMIUM, "no chromium is here (tools/setup.sh browser)")
class Page(Scratch):
    @staticmethod
    def make(folder):
        tiny_bert.write(folder / "model")
        (folder / "texts").write_text("\n".join([*LINES, HOSTILE]) + "\n", encoding="utf-8")
        (folder / "keys").write_text("a key\n")

    def text(self, browser, field):
        return browser.value(f"document.getElementById('{field}').textContent")

    def check_found(self, browser, server, text, headers=None):
        browser.value("document.getElementById('hits').replaceChildren()")
        browser.type("text", text)
        browser.wait("document.getElementById('hits').rows.length == 10")
        expected = server.good("/search", {"inputs": text, "k": 10}, headers=headers)
        for (score, line, words), hit in zip(browser.value(ROWS), expected, strict=True):
            self.assertLess(abs(float(score) - hit["score"]), 2e-4)
            self.assertEqual((line, words), (str(hit["line"]), hit["text"]))
        self.assertRegex(self.text(browser, "took"), r"^\d+\.\d ms$")
        self.assertEqual(self.text(browser, "said"), "")

    def check_quiet(self, browser, server):
        """Everything came from the server, and nothing went wrong."""
        asked = {request["request"]["url"] for request in browser.of("Network.requestWillBeSent")}
        self.assertTrue(all(url.startswith(server.url + "/") for url in asked), asked)
        self.assertIn(server.url + "/search", asked)
        self.assertEqual(browser.of("Runtime.exceptionThrown"), [])
        self.assertEqual([entry for entry in browser.of("Log.entryAdded")
                          if entry["entry"]["level"] in ("warning", "error") and not re.search(
                              r"/favicon\.ico$|/info$", entry["entry"].get("url", ""))], [])

    def test_a_text_and_its_neighbours(self):
        server = Server(self, "model", "--documents", "texts")
        browser = Browser(self)
        browser.open(server.url + "/")
        self.assertEqual(browser.value("document.title"), "sparse24")
        load = browser.wait("document.getElementById('load').textContent")
        self.assertRegex(load, rf"^model: {len(LINES) + 1} documents, \d+ texts so far, "
                               r"0 waiting, \d+ % busy$")
        for text in (LINES[3], HOSTILE, "\u00e9\U0001f600 \"quoted\" \\"):
            self.check_found(browser, server, text)
        browser.type("text", HOSTILE)
        browser.wait(f"{ROWS}[0][2] == {json.dumps(HOSTILE)}")  # shown, not run
        self.assertEqual(browser.value("document.title"), "sparse24")
        self.assertEqual(browser.value("document.querySelectorAll('img').length"), 0)
        self.check_quiet(browser, server)
        server.end()
        browser.type("text", "nobody is there")
        self.assertTrue(browser.wait("document.getElementById('said').textContent"))

    def test_a_key_is_asked_for(self):
        server = Server(self, "model", "--documents", "texts", "--key-file", "keys")
        browser = Browser(self)
        browser.open(server.url + "/")
        browser.wait("!document.getElementById('key').hidden")
        self.assertIn("Bearer", self.text(browser, "load"))
        browser.type("key", "a key")
        self.check_found(browser, server, LINES[5], {"Authorization": "Bearer a key"})
        self.check_quiet(browser, server)


if __name__ == "__main__":
    unittest.main()
