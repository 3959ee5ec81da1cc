# SPDX-License-Identifier: Apache-2.0
"""SIGHUP has a server read its models anew: other weights, other documents, what is wrong with
them; requests before, meanwhile and after it are all answered, by the one or the other."""
import concurrent.futures
import os
import pathlib
import re
import shutil
import signal
import threading
import time
import unittest

from cli_case import PATIENCE, Scratch
import test_cli_chat
from test_cli_serve import LINES, Server
from test_cli_serve_language import greedy, metric, request
import tiny_bert


def reloads(server):
    return metric(server, "reloads_total", None)


class Reload(Scratch):
    @staticmethod
    def make(folder):
        for seed in (1, 2):
            tiny_bert.write(folder / f"seed{seed}", seed=seed)
        shutil.copytree(folder / "seed1", folder / "model")
        (folder / "texts").write_text("\n".join(LINES) + "\n", encoding="utf-8")
        test_cli_chat.write(folder, "chat", test_cli_chat.TEMPLATE)

    def replace(self, seed):
        """Another model in the place of the first, by a name, not by writing into its file."""
        shutil.copytree(self.folder / f"seed{seed}", self.folder / "next")
        (self.folder / "model").rename(self.folder / "before")
        (self.folder / "next").rename(self.folder / "model")
        shutil.rmtree(self.folder / "before")

    def reload(self, server, why="the models were read anew"):
        log, before = self.folder / "log", (self.folder / "log").read_text().count(why)
        server.process.send_signal(signal.SIGHUP)
        end = time.monotonic() + PATIENCE
        while log.read_text().count(why) == before:
            self.assertLess(time.monotonic(), end, log.read_text())
            time.sleep(0.01)

    def vectors(self, server, line):
        return server.good("/embed", {"inputs": line})[0]

    def test_other_weights_and_documents(self):
        expected = {}
        for seed in (1, 2):
            alone = Server(self, f"seed{seed}")
            expected[seed] = [self.vectors(alone, line) for line in LINES[:3]]
            alone.end()
        server = Server(self, "model", "--documents", "texts")
        for count, seed in enumerate((1, 2, 1)):
            if count:
                self.replace(seed)
                (self.folder / "texts").write_text("\n".join(LINES[:9 * count]) + "\n")
                self.reload(server)
            self.assertEqual([self.vectors(server, line) for line in LINES[:3]], expected[seed])
            documents = server.good("/info")["models"][0]["documents"]
            self.assertEqual(documents, 9 * count or len(LINES))
            self.assertEqual(len(server.good("/search", {"inputs": "a", "k": 100})), documents)
            self.assertEqual(reloads(server), count)
            self.assertEqual(metric(server, "texts_total", "model"), 3 * (count + 1) + count + 1)
        self.assertEqual(server.end(), 0)

    def test_memory_of_models_that_went_is_given_back(self):
        server = Server(self, "model", "--documents", "texts", "--threads", "2")
        status = pathlib.Path(f"/proc/{server.process.pid}/status")
        resident = []
        for _ in range(8):
            self.reload(server)
            self.vectors(server, LINES[0])
            resident.append(int(re.search(r"VmRSS:\s+(\d+)", status.read_text())[1]))
        if not os.environ.get("S24_SANITIZE"):  # which keeps what is freed
            self.assertLess(resident[-1] - min(resident[:3]), 4 << 10)
        self.assertEqual(server.end(), 0)

    def test_what_cannot_be_read_leaves_all_as_it_was(self):
        server = Server(self, "model", "--documents", "texts")
        before = self.vectors(server, LINES[0])
        (self.folder / "model" / "config.json").rename(self.folder / "kept")
        self.reload(server, "the models stay as they were")
        self.assertIn("config.json", (self.folder / "log").read_text())
        self.assertEqual(self.vectors(server, LINES[0]), before)
        (self.folder / "kept").rename(self.folder / "model" / "config.json")
        (self.folder / "texts").unlink()
        self.reload(server, "the models stay as they were")
        self.assertEqual(len(server.good("/search", {"inputs": "a", "k": 3})), 3)
        self.assertEqual(reloads(server), 0)
        self.assertEqual(server.process.stdout.read(0), "")
        server.end()
        self.assertEqual(server.process.stdout.read(), "")  # the one object was the first

    def test_nothing_is_lost_meanwhile(self):
        server = Server(self, "chat", "model", "--http-threads", "3")
        body = greedy("Hello", max_tokens=60)
        expected = (self.vectors(server, LINES[0]), server.good("/v1/completions", body)["choices"])
        done = threading.Event()

        def client():
            count = 0
            while not (count and done.is_set()):
                self.assertEqual(self.vectors(server, LINES[0]), expected[0])
                self.assertEqual(server.good("/v1/completions", body)["choices"], expected[1])
                count += 1
            return count

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            clients = [pool.submit(client) for _ in range(4)]
            try:
                for _ in range(4):
                    self.reload(server)
            finally:
                done.set()
            counts = [one.result() for one in clients]
        total = sum(counts) + 1
        for model in ("model", "chat"):  # the last ones of old models are added when these go
            while (found := metric(server, "texts_total", model)) < total:
                time.sleep(0.01)
            self.assertEqual(found, total)
        self.assertEqual(server.end(), 0)

    def test_a_stream_that_nobody_reads_and_the_end(self):
        """The old models wait for whoever began with them; SIGTERM does not wait for the wait."""
        server = Server(self, "chat")
        with server.socket() as plain:
            plain.sendall(request(greedy("a", max_tokens=200, stream=True)))
            head = plain.recv(16)
            self.reload(server)
            self.assertEqual(len(server.good("/v1/completions", greedy("b"))["choices"]), 1)
            server.process.send_signal(signal.SIGTERM)
            text = head
            while more := plain.recv(1 << 16):
                text += more
        self.assertTrue(text.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"), text[-80:])
        self.assertEqual(server.process.wait(PATIENCE), 0)


if __name__ == "__main__":
    unittest.main()
