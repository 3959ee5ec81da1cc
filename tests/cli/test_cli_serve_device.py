# SPDX-License-Identifier: Apache-2.0
"""serve with an encoder on a device that is none (tests/support/fake_device.c): two batches are on
their way at a time, another thread gives out their answers, and several threads speak HTTP. The
first element of a text's vector is its number of tokens."""
import concurrent.futures
import http.client
import json
import signal
import time
import unittest

from cli_case import BUILD, PATIENCE, Scratch
from test_cli_serve import Server
import tiny_bert

FAKE = BUILD / "tests" / "fake"
WORDS = [w for w in tiny_bert.WORDS if len(w) > 1]


def text_of(words):
    return " ".join(WORDS[(words + w) % len(WORDS)] for w in range(words))


@unittest.skipUnless((FAKE / "libsparse24-cuda.so.0").exists(), "no modules in this build")
class ServeDevice(Scratch):
    @staticmethod
    def make(folder):
        tiny_bert.write(folder / "model")
        (folder / "texts").write_text("".join(text_of(n) + "\n" for n in range(1, 9)))

    def serve(self, *arguments, **more):
        environment = {"LD_LIBRARY_PATH": str(FAKE), "XDG_CACHE_HOME": str(self.folder / "cache"),
                       **{f"S24_FAKE_{name.upper()}": str(value) for name, value in more.items()}}
        return Server(self, "model", "--device", "cuda", *arguments, environment=environment)

    def tokens(self, value):
        return [int(entry["embedding"][0]) for entry in value["data"]]

    def ask_many(self, server, clients, rounds):
        """Each client has a connection of its own, and lists of texts of its own lengths."""
        def client(number):
            connection = server.connection()
            for turn in range(rounds):
                lengths = [(number * 7 + turn * 3 + i) % 40 for i in range(1 + number % 5)]
                connection.request("POST", "/v1/embeddings",
                                   json.dumps({"input": [text_of(n) for n in lengths]}))
                value = json.loads(connection.getresponse().read())
                self.assertEqual(self.tokens(value), [n + 2 for n in lengths])
            connection.close()
            return rounds * (1 + number % 5)
        with concurrent.futures.ThreadPoolExecutor(clients) as pool:
            return sum(pool.map(client, range(clients)))

    def metric(self, server, name):
        for line in server.good("/metrics").splitlines():
            if line.startswith(f"sparse24_{name}{{"):
                return float(line.split()[-1])
        raise AssertionError(name)

    def test_every_answer_is_its_own_texts(self):
        for threads in ("1", "3"):
            with self.subTest(threads):
                server = self.serve("--http-threads", threads, "--max-batch-tokens", "64")
                texts = self.ask_many(server, 24, 12)
                self.assertEqual(self.metric(server, "texts_total"), texts)
                self.assertEqual(self.metric(server, "waiting_texts"), 0)
                self.assertEqual(self.metric(server, "waiting_tokens"), 0)
                self.assertGreater(self.metric(server, "busy_seconds_total"), 0)
                self.assertEqual(server.end(), 0)

    def test_a_request_of_more_than_two_batches(self):
        server = self.serve("--max-batch-tokens", "48")
        lengths = [n % 30 for n in range(300)]
        value = server.good("/v1/embeddings", {"input": [text_of(n) for n in lengths]})
        self.assertEqual(self.tokens(value), [n + 2 for n in lengths])
        self.assertGreater(self.metric(server, "batches_total"), 100)

    def test_documents_and_reload(self):
        server = self.serve("--documents", "texts", "--http-threads", "2")
        found = server.good("/search", {"inputs": text_of(3), "k": 2})
        self.assertEqual(len(found), 2)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            asking = pool.submit(self.ask_many, server, 8, 20)
            server.process.send_signal(signal.SIGHUP)
            asking.result()
        until = time.monotonic() + PATIENCE
        while "sparse24_reloads_total 1" not in server.good("/metrics"):
            self.assertLess(time.monotonic(), until)
            time.sleep(0.02)
        self.ask_many(server, 8, 3)
        self.assertEqual(server.end(), 0)

    def test_the_device_is_lost(self):
        """Who asks is told, batch after batch, and the server still ends."""
        server = self.serve("--http-threads", "2", waits=400)
        statuses = set()
        for _ in range(600):
            statuses.add(server.ask("/v1/embeddings", {"input": "a"})[0])
            if 500 in statuses:
                break
        self.assertEqual(statuses, {200, 500})
        status, _, value = server.ask("/v1/embeddings", {"input": ["a", "b"]})
        self.assertEqual(status, 500)
        self.assertIn("the device is lost", value["error"]["message"])
        self.assertEqual(server.end(), 0)

    def test_connections_are_bounded(self):
        """Those beyond wait, and have their turn when one ends."""
        server = self.serve("--http-threads", "2", "--connections", "3")
        held = [server.connection() for _ in range(3)]
        for connection in held:
            connection.request("GET", "/health")
            self.assertEqual(connection.getresponse().read(), b"{}")
        late = server.connection()
        late.request("GET", "/health")
        late.sock.settimeout(0.3)
        self.assertRaises(TimeoutError, late.sock.recv, 1)
        held.pop().close()
        late.sock.settimeout(PATIENCE)
        self.assertEqual(late.getresponse().status, http.client.OK)
        for connection in (*held, late):
            connection.close()
        self.assertEqual(server.end(), 0)


if __name__ == "__main__":
    unittest.main()
