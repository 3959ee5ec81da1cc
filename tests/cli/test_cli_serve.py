# SPDX-License-Identifier: Apache-2.0
"""serve on a small model of random weights: every route, what is refused, and clients that misuse
it. Sockets are plain ones and http.client's."""
import base64
import concurrent.futures
import http.client
import json
import math
import os
import pathlib
import random
import resource
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time
import unittest

from cli_case import PATIENCE, PROGRAM, Scratch, clean_environment, one_object, run
import tiny_bert

LINES = tiny_bert.sentences(40)


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=PATIENCE)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Server:
    """A running server; ended with the case."""

    def __init__(self, case, *arguments, environment=None):
        listens = () if "--socket" in arguments else ("--port", "0")
        self.log = open(case.folder / "log", "w+")
        self.process = subprocess.Popen(
            [PROGRAM, "serve", *map(str, arguments), *listens, "--json"], cwd=case.folder,
            env=clean_environment(environment), stdout=subprocess.PIPE, stderr=self.log,
            text=True)
        watch = threading.Timer(PATIENCE, self.process.kill)
        watch.start()
        case.addCleanup(watch.cancel)
        case.addCleanup(self.log.close)
        case.addCleanup(self.process.stdout.close)
        case.addCleanup(self.process.wait)
        case.addCleanup(self.process.kill)
        text = ""
        while not text.endswith("}\n"):
            line = self.process.stdout.readline()
            if not line:
                raise AssertionError((case.folder / "log").read_text())
            text += line
        self.ready = one_object(text)
        self.url = self.ready["url"]
        self.folder = case.folder

    def connection(self):
        if self.url.startswith("unix:"):
            return UnixConnection(str(self.folder / self.url[5:]))
        host, port = self.url.removeprefix("http://").split(":")
        return http.client.HTTPConnection(host, int(port), timeout=PATIENCE)

    def socket(self):
        connection = self.connection()
        connection.connect()
        return connection.sock

    def ask(self, path, body=None, headers=None, raw=None, method=None):
        """(status, headers, value) of one request."""
        connection = self.connection()
        sent = raw if raw is not None else None if body is None else json.dumps(body)
        connection.request(method or ("GET" if sent is None else "POST"), path, sent, headers or {})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        kind = answer.headers["Content-Type"]
        return (answer.status, answer.headers,
                json.loads(text) if kind == "application/json" and text else text.decode())

    def good(self, *arguments, **more):
        status, _, value = self.ask(*arguments, **more)
        if status != 200:
            raise AssertionError((status, value))
        return value

    def stop(self):
        """Stops it, and comes back when each of its threads has: the signal alone is on its way,
        and a thread on another core goes on with what it has meanwhile."""
        self.process.send_signal(signal.SIGSTOP)
        tasks = pathlib.Path(f"/proc/{self.process.pid}/task")
        while any(task.read_text().rpartition(")")[2].split()[0] != "T"
                  for task in tasks.glob("*/stat")):
            time.sleep(0.001)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)


def make_model(folder):
    tiny_bert.write(folder / "model")
    tiny_bert.write(folder / "other", seed=2)
    run("prune", folder / "model", folder / "sparse", "--packed")
    (folder / "texts").write_text("\n".join(LINES) + "\n", encoding="utf-8")
    layers, tiny_bert.LAYERS = tiny_bert.LAYERS, 12
    tiny_bert.write(folder / "deep")
    tiny_bert.LAYERS = layers


class Serve(Scratch):
    make = staticmethod(make_model)

    def serve(self, *arguments):
        return Server(self, *arguments)

    def expected(self, model, lines):
        done = self.good("embed", model, "--stream", text="\n".join(lines))
        return [json.loads(line)["embedding"] for line in done.stdout.splitlines()]

    def close(self, a, b, tolerance=1e-5):
        self.assertEqual(len(a), len(b))
        self.assertLess(max(abs(x - y) for x, y in zip(a, b)), tolerance)

    # ---- routes ------------------------------------------------------------------------------

    def test_embeddings_are_those_of_embed(self):
        server = self.serve("model")
        expected = self.expected("model", LINES)
        value = server.good("/v1/embeddings", {"input": LINES, "model": "model"})
        self.assertEqual((value["object"], value["model"]), ("list", "model"))
        for i, (entry, vector) in enumerate(zip(value["data"], expected, strict=True)):
            self.assertEqual((entry["object"], entry["index"]), ("embedding", i))
            self.close(entry["embedding"], vector)
        tokens = server.good("/tokenize", {"inputs": LINES})
        ids = [[t["id"] for t in text] for text in tokens]
        count = sum(map(len, ids))
        self.assertEqual(value["usage"], {"prompt_tokens": count, "total_tokens": count})
        # Ids in place of texts, one text, many; as base64 of floats.
        again = server.good("/v1/embeddings", {"input": ids, "encoding_format": "base64"})
        for entry, other in zip(again["data"], value["data"], strict=True):
            raw = base64.b64decode(entry["embedding"], validate=True)
            floats = struct.unpack(f"<{tiny_bert.WIDTH}f", raw)
            self.close(floats, other["embedding"])
            # What is written in decimal is the float to the bit.
            written = server.good("/embed", {"inputs": ids[entry["index"]]})[0]
            self.close(written, floats, 1e-6)
        for text in (LINES[3], ids[3], [LINES[3]], [ids[3]]):
            self.close(server.good("/v1/embeddings", {"input": text})["data"][0]["embedding"],
                       expected[3])
        self.close(server.good("/embed", {"inputs": ["", LINES[5]]})[1], expected[5])
        self.assertEqual(server.good("/v1/embeddings", {"input": ""})["usage"]["total_tokens"], 2)

    def test_numbers_are_exact(self):
        server = self.serve("model", "--threads", "1")
        for line in LINES[:10]:
            raw = server.good("/v1/embeddings", {"input": line, "encoding_format": "base64"})
            raw = base64.b64decode(raw["data"][0]["embedding"])
            written = server.good("/embed", {"inputs": line})[0]
            self.assertEqual(struct.pack(f"<{len(written)}f", *written), raw)

    def test_dimensions_and_length(self):
        server = self.serve("model")
        whole = server.good("/embed", {"inputs": LINES[0]})[0]
        cut = server.good("/v1/embeddings", {"input": LINES[0], "dimensions": 8})
        cut = cut["data"][0]["embedding"]
        length = math.sqrt(sum(x * x for x in whole[:8]))
        self.close(cut, [x / length for x in whole[:8]])
        self.close(server.good("/embed", {"inputs": LINES[0], "normalize": True})[0], whole)

    def test_a_long_text_is_cut_or_refused(self):
        server = self.serve("model", "--max-tokens", "8")
        text = "read write open close file directory memory process signal network"
        value = server.good("/v1/embeddings", {"input": [text, "read"]})
        self.assertEqual(value["usage"]["total_tokens"], 8 + 3)
        status, _, value = server.ask("/embed", {"inputs": text, "truncate": False})
        self.assertEqual((status, value["error"]["param"]), (422, "inputs"))
        self.assertRegex(value["error"]["message"], "text 0 has more than 8 tokens")
        self.assertIn('sparse24_truncated_total{model="model"} 1', server.good("/metrics"))

    def test_similarity_and_tokens(self):
        server = self.serve("model")
        vectors = self.expected("model", LINES[:4])
        found = server.good("/similarity", {"inputs": {"source_sentence": LINES[0],
                                                       "sentences": LINES[1:4]}})
        self.close(found, [sum(a * b for a, b in zip(vectors[0], v)) for v in vectors[1:]])
        text = "Read \u00e9 \U0001f600 write\u0000x"
        tokens = server.good("/tokenize", {"inputs": text})[0]
        self.assertEqual([t["special"] for t in tokens[::len(tokens) - 1]], [True, True])
        for token in tokens[1:-1]:
            self.assertEqual(token["text"], text[token["start"]:token["stop"]])
        self.assertEqual(tokens[1]["text"], "Read")
        bare = server.good("/tokenize", {"inputs": [text, ""], "add_special_tokens": False})
        self.assertEqual(bare, [tokens[1:-1], []])

    def test_search_and_page(self):
        server = self.serve("model", "--documents", "texts")
        hits = server.good("/search", {"inputs": LINES[7], "k": 3})
        self.assertEqual([hits[0]["text"], len(hits)], [LINES[7], 3])
        done = self.json("search", "model", "--documents", "texts", "--query", LINES[7], "-k", "3")
        self.assertEqual([h["line"] for h in hits], [h["line"] for h in done["hits"]])
        both = server.good("/search", {"inputs": [LINES[7], LINES[2]], "k": 999})
        self.assertEqual([len(both), len(both[1])], [2, len(LINES)])
        status, headers, page = server.ask("/")
        self.assertEqual((status, headers["Content-Type"]), (200, "text/html; charset=utf-8"))
        self.assertIn("default-src 'none'", headers["Content-Security-Policy"])
        self.assertNotRegex(page, r"https?://|src=|@import|<link")
        none = self.serve("model")
        self.assertEqual(none.ask("/search", {"inputs": "a"})[0], 404)

    def test_several_models(self):
        server = self.serve("model", "other/")
        self.assertEqual(server.ready["models"], ["model", "other"])
        names = [m["id"] for m in server.good("/v1/models")["data"]]
        self.assertEqual(names, ["model", "other"])
        for name in names:
            value = server.good("/v1/embeddings", {"input": LINES[0], "model": name})
            self.assertEqual(value["model"], name)
            self.close(value["data"][0]["embedding"], self.expected(name, LINES[:1])[0])
        info = server.good("/info")
        self.assertEqual([m["texts"] for m in info["models"]], [1, 1])
        odd = self.folder / os.fsdecode(b"odd\xff")
        os.symlink("model", odd)
        server = self.serve(odd)
        self.assertEqual(server.ready["models"], [r"odd\xff"])
        value = server.good("/v1/embeddings", {"input": "a", "model": r"odd\xff"})
        self.assertEqual(value["model"], r"odd\xff")
        status, _, value = server.ask("/embed", {"inputs": "a", "model": "third"})
        self.assertEqual((status, value["error"]["code"]), (404, "model_not_found"))

    def test_counts(self):
        server = self.serve("model")
        self.assertEqual(server.good("/health"), {})
        server.good("/embed", {"inputs": LINES})
        server.ask("/embed", {"inputs": 1})
        text = server.good("/metrics")
        for line in ('sparse24_requests_total{route="/embed",code="200"} 1',
                     'sparse24_requests_total{route="/embed",code="422"} 1',
                     f'sparse24_texts_total{{model="model"}} {len(LINES)}',
                     'sparse24_request_seconds_count{route="/embed"} 2',
                     'sparse24_waiting_texts{model="model"} 0'):
            self.assertIn(line + "\n", text)

    # ---- what is refused -----------------------------------------------------------------------

    def test_the_method_that_a_path_takes(self):
        server = self.serve("model")
        for method, path, takes in (("GET", "/v1/embeddings", "POST"),
                                    ("OPTIONS", "/embed", "POST"),
                                    ("POST", "/health", "GET, HEAD"),
                                    ("DELETE", "/v1/models", "GET, HEAD")):
            status, headers, value = server.ask(path, method=method)
            self.assertEqual((status, headers["Allow"]), (405, takes))
            self.assertEqual(value["error"]["message"], f"{path} takes {takes}, not {method}")

    def test_pages_of_another_origin(self):
        (self.folder / "keys").write_text("secret\n")
        server = self.serve("model", "--allow-origin", "https://example.org:8443", "--key-file",
                            "keys")
        asks = {"Origin": "https://example.org:8443", "Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": "authorization,content-type"}
        for path in ("/embed", "/v1/embeddings", "/health"):
            status, headers, value = server.ask(path, headers=asks, method="OPTIONS")
            self.assertEqual((status, value, headers["Content-Type"]), (204, "", None))
            self.assertEqual(headers["Access-Control-Allow-Origin"], "https://example.org:8443")
            self.assertIn("POST", headers["Access-Control-Allow-Methods"])
            for name in ("Authorization", "Content-Type"):
                self.assertIn(name, headers["Access-Control-Allow-Headers"])
        for key, code in (("secret", 200), ("other", 401)):
            status, headers, _ = server.ask("/embed", {"inputs": "a"},
                                            {"Authorization": f"Bearer {key}"})
            self.assertEqual(status, code)
            self.assertEqual(headers["Access-Control-Allow-Origin"], "https://example.org:8443")
            self.assertIsNone(headers["Access-Control-Allow-Methods"])
        metrics = server.good("/metrics", headers={"Authorization": "Bearer secret"})
        self.assertIn('sparse24_requests_total{route="other",code="204"} 3', metrics)
        _, headers, _ = self.serve("model").ask("/embed", {"inputs": "a"}, asks)
        self.assertIsNone(headers["Access-Control-Allow-Origin"])
        self.refusals([(origin, ["serve", "model", "--allow-origin", origin], 2,
                        f"option --allow-origin: '{origin}' is no origin, .*")
                       for origin in ("example.org", "://a", "http://", "http://a/b",
                                      "http://a b")])

    def test_ports_that_are_none(self):
        self.refusals([(port, ["serve", "model", "--port", port], 2,
                        f"option --port: '{port}' is not a whole number of 0 to 65535")
                       for port in ("65536", "99999", "-1", "http", " 80", "8080x")])

    def test_bad_requests(self):
        server = self.serve("model", "--max-body", "20000", "--queue", "50")
        cases = [(404, None, "/nothing", None), (405, None, "/health", {}),
                 (405, None, "/embed", None), (422, "input", "/v1/embeddings", {}),
                 (422, "input", "/v1/embeddings", {"input": []}),
                 (422, "input", "/v1/embeddings", {"input": 3}),
                 (422, "input", "/v1/embeddings", {"input": [None]}),
                 (422, "input", "/v1/embeddings", {"input": ["a", 1]}),
                 (422, "input", "/v1/embeddings", {"input": [1, "a"]}),
                 (422, "input", "/v1/embeddings", {"input": [[1], []]}),
                 (422, "input", "/v1/embeddings", {"input": [[-1]]}),
                 (422, "input", "/v1/embeddings", {"input": [[1 << 40]]}),
                 (422, "input", "/v1/embeddings", {"input": [1.5]}),
                 (413, "input", "/v1/embeddings", {"input": ["a"] * 51}),
                 (422, "encoding_format", "/v1/embeddings", {"input": "a", "encoding_format": "x"}),
                 (422, "dimensions", "/v1/embeddings", {"input": "a", "dimensions": 33}),
                 (422, "dimensions", "/v1/embeddings", {"input": "a", "dimensions": 0}),
                 (422, "model", "/v1/embeddings", {"input": "a", "model": 7}),
                 (422, "normalize", "/embed", {"inputs": "a", "normalize": False}),
                 (422, "truncate", "/embed", {"inputs": "a", "truncate": "no"}),
                 (422, "inputs", "/similarity", {"inputs": ["a"]}),
                 (422, "inputs", "/tokenize", {"inputs": [3]}),
                 (422, "inputs", "/tokenize", {"inputs": []}),
                 (413, None, "/embed", {"inputs": "a" * 20001}), (422, None, "/embed", [])]
        for code, param, path, body in cases:
            with self.subTest(path=path, body=str(body)[:60]):
                status, headers, value = server.ask(path, body)
                self.assertEqual((status, value["error"]["param"]), (code, param), value)
                self.assertTrue(value["error"]["message"] and value["error"]["type"])
        for raw in (b"", b"{", b"\xff", b"{\"inputs\": \"\xff\"}", b"nul", b"[" * 19000,
                    b'{"inputs":' * 1500):
            with self.subTest(raw=raw[:20]):
                self.assertEqual(server.ask("/embed", raw=raw)[0], 400)
        self.assertEqual(len(server.good("/embed", {"inputs": ["a"] * 50})), 50)

    def test_prompt_of_a_request(self):
        path = self.folder / "model/config_sentence_transformers.json"
        path.write_text(json.dumps({"prompts": {"query": "read the ", "none": ""},
                                    "default_prompt_name": None}))
        server = self.serve("model")
        for route, key in (("/embed", "inputs"), ("/v1/embeddings", "input")):
            named = server.good(route, {key: "file", "prompt_name": "query"})
            spelled = server.good(route, {key: "read the file"})
            if key == "input":
                named, spelled = [x["data"][0]["embedding"] for x in (named, spelled)]
                named, spelled = [named], [spelled]
            self.close(named[0], spelled[0])
        status, _, value = server.ask("/embed", {"inputs": "file", "prompt_name": "other"})
        self.assertEqual((status, value["error"]["param"]), (422, "prompt_name"))
        self.assertIn("names no prompt of model", value["error"]["message"])
        pooling = self.folder / "model/1_Pooling/config.json"
        pooling.write_text(json.dumps({"pooling_mode": "mean", "include_prompt": False}))
        server = self.serve("model", "--prompt-name", "query")
        self.assertEqual(len(server.good("/embed", {"inputs": "file", "prompt_name": "query"})), 1)
        status, _, value = server.ask("/embed", {"inputs": "file", "prompt_name": "none"})
        self.assertEqual((status, value["error"]["param"]), (422, "prompt_name"))
        # [CLS] read the [SEP]: fewer would leave a batch, that of others too, a text of no token.
        status, _, value = server.ask("/embed", {"inputs": [[2, 57, 58, 3], [2, 57, 3]]})
        self.assertEqual((status, value["error"]["param"]), (422, "inputs"))
        self.assertIn("text 1 has 3 token ids; with the prompt", value["error"]["message"])
        self.assertEqual(len(server.good("/embed", {"inputs": [[2, 57, 58, 3]]})), 1)

    def test_vectors_of_any_length(self):
        place = self.folder / "model/modules.json"
        place.write_text(json.dumps(json.loads(place.read_text())[:2]))
        server = self.serve("model")
        plain = server.good("/embed", {"inputs": "file", "normalize": False})[0]
        self.close(plain, server.good("/embed", {"inputs": "file"})[0])
        unit = server.good("/embed", {"inputs": "file", "normalize": True})[0]
        length = math.sqrt(sum(x * x for x in plain))
        self.assertNotAlmostEqual(length, 1, places=2)
        self.close(unit, [x / length for x in plain])

    def test_openai_package(self):
        try:
            import openai  # pylint: disable=import-outside-toplevel
        except ImportError:
            self.skipTest("the Python package openai is not installed")
        server = self.serve("model")
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none")
        self.assertEqual([m.id for m in client.models.list()], ["model"])
        want = server.good("/embed", {"inputs": LINES[:3]})
        for form in ("float", "base64", openai.NOT_GIVEN):
            answer = client.embeddings.create(model="model", input=LINES[:3], encoding_format=form)
            self.assertEqual([d.index for d in answer.data], [0, 1, 2])
            self.assertGreater(answer.usage.prompt_tokens, 3)
            for got, row in zip(answer.data, want):
                vector = got.embedding
                if isinstance(vector, str):
                    raw = base64.b64decode(vector)
                    vector = struct.unpack(f"<{len(raw) // 4}f", raw)
                self.close(vector, row)
        with self.assertRaises(openai.UnprocessableEntityError):
            client.embeddings.create(model="model", input=[])

    def test_curl(self):
        curl = shutil.which("curl")
        if not curl:
            self.skipTest("curl is not installed")
        body = json.dumps({"inputs": LINES[:2]})

        def asked(*words):
            done = subprocess.run([curl, "-sS", "-m", str(PATIENCE), *words], cwd=self.folder,
                                  input=body, capture_output=True, text=True, check=False,
                                  env=clean_environment({"no_proxy": "*"}))
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stdout

        server = self.serve("model")
        self.serve("model", "--socket", "sock")
        embed, want = f"{server.url}/embed", server.good("/embed", {"inputs": LINES[:2]})
        for way in ([], ["-H", "Transfer-Encoding: chunked"], ["-H", "Expect: 100-continue"],
                    ["-0"], ["--unix-socket", "sock"]):
            with self.subTest(way):
                vectors = json.loads(asked(embed, "-d", "@-", *way))
                self.assertEqual(len(vectors), 2)
                self.close(vectors[1], want[1])
        status = ["-o", os.devnull, "-w", "%{http_code} %{num_connects}\n"]
        health = [f"{server.url}/health", *status]
        self.assertEqual(asked(*health, "--next", *health).split(), ["200", "1", "200", "0"])
        self.assertIn("200", asked("-I", f"{server.url}/health").splitlines()[0])
        self.assertEqual(asked(embed, "-d", "{", *status).split()[0], "400")

    def test_keys(self):
        (self.folder / "keys").write_text("first\n\nsecond one\n")
        server = self.serve("model", "--key-file", "keys")
        for value, code in ((None, 401), ("Bearer first", 200), ("bearer second one", 200),
                            ("Bearer firs", 401), ("Bearer firstfirst", 401), ("Bearer ", 401),
                            ("Basic first", 401)):
            headers = {"Authorization": value} if value else {}
            for path, body in (("/info", None), ("/embed", {"inputs": "a"}), ("/nothing", None)):
                expect = 404 if path == "/nothing" and code == 200 else code
                self.assertEqual(server.ask(path, body, headers)[0], expect, (value, path))
        self.assertEqual(server.ask("/health")[0], 200)
        self.assertEqual(server.ask("/")[0], 200)

    def test_command_line(self):
        (self.folder / "empty").write_text("\n")
        taken = socket.socket()
        self.addCleanup(taken.close)
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        (self.folder / "sub").mkdir()
        os.symlink(self.folder / "model", self.folder / "sub/model")
        for arguments, code, sentence in (
                ((), 2, "MODEL"), (("none",), 3, "none"),
                (("model", "--port", "x"), 2,
                 "option --port: 'x' is not a whole number of 0 to 65535"),
                (("model", "--port", port), 3, "in use"),
                (("model", "--host", "256.1.1.1"), 2, "--host 256.1.1.1"),
                (("model", "--socket", "s" * 200), 2, "--socket"),
                (("model", "--socket", "texts"), 3, "texts"),
                (("model", "--socket", "s", "--port", "1"), 2, "port"),
                (("model", "--key-file", "empty"), 4, "no key"),
                (("model", "--key-file", "missing"), 3, "missing"),
                (("model", "--documents", "missing", "--port", "0"), 3, "missing"),
                (("model", "--document-prompt", "x"), 2, "documents"),
                (("model", "sub/model", "--port", "0"), 2, "both named 'model'"),
                (("model", "--queue", "9999999"), 2, "--queue"),
                (("model", "--dtype", "e4m3", "--port", "0"), 5, "e4m3"),
                (("model", "--device", "cuda"), 5, "cuda|GPU|device")):
            with self.subTest(arguments):
                done = run("serve", *arguments, cwd=self.folder)
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertRegex(done.stderr, sentence)
        self.assertFalse((self.folder / "s").exists())

    # ---- clients that misuse it ----------------------------------------------------------------

    def request(self, text, path="/embed"):
        body = json.dumps({"inputs": text}).encode()
        return (f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
                .encode() + body)

    def test_pipelined_and_byte_by_byte(self):
        server = self.serve("model")
        expected = self.expected("model", LINES[:6])
        with server.socket() as plain:
            plain.sendall(b"".join(self.request(line) for line in LINES[:5]))
            last = self.request(LINES[5])
            for i in range(len(last)):
                plain.sendall(last[i:i + 1])
            answers = plain.makefile("rb")
            self.addCleanup(answers.close)
            for vector in expected:
                head = b""
                while not head.endswith(b"\r\n\r\n"):
                    head += answers.readline()
                length = int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0])
                self.close(json.loads(answers.read(length))[0], vector)

    def test_what_the_head_is_refused_for_is_said_at_once(self):
        """To a client that asks first, and where far more is announced than is read; no body is
        sent."""
        server = self.serve("model", "--max-body", "1000")
        expect = b"Expect: 100-continue\r\n"
        for path, length, more, code in ((b"/embed", 1001, expect, b"413"),
                                         (b"/embed", 9000, b"", b"413"),
                                         (b"/embed", 1 << 40, b"", b"413"),
                                         (b"/nowhere", 10, expect, b"404"),
                                         (b"/health", 10, expect, b"405")):
            with self.subTest(path=path, length=length), server.socket() as plain:
                plain.settimeout(PATIENCE)
                plain.sendall(b"POST " + path + b" HTTP/1.1\r\nHost: x\r\n" + more +
                              b"Content-Length: %d\r\n\r\n" % length)
                answer = b""
                while more := plain.recv(1 << 16):
                    answer += more
                self.assertEqual(answer.split(b" ")[1], code, answer)
        body = json.dumps({"inputs": LINES[0]}).encode()
        status, _, _ = server.ask("/embed", raw=body, headers={"Expect": "100-continue"})
        self.assertEqual(status, 200)
        self.assertEqual(server.ask("/embed", {"inputs": "a" * 3000})[0], 413)

    def test_a_body_whose_end_is_in_doubt(self):
        """A proxy could take the other end for the right one, and hand us a stranger's request."""
        server = self.serve("model")
        hidden = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
        for ends in (b"Content-Length: 0\r\nContent-Length: %d\r\n" % len(hidden),
                     b"Content-Length: 0\r\ncontent-length: 0\r\n",
                     b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
                     b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
                     b"Transfer-Encoding: gzip, chunked\r\n", b"Transfer-Encoding: xchunked\r\n"):
            with self.subTest(ends), server.socket() as plain:
                plain.settimeout(PATIENCE)
                plain.sendall(b"POST /embed HTTP/1.1\r\nHost: x\r\n" + ends + b"\r\n" + hidden)
                answer = b""
                try:
                    while more := plain.recv(1 << 16):
                        answer += more
                except ConnectionResetError:
                    pass
                self.assertTrue(answer.startswith(b"HTTP/1.1 400"), answer)
                self.assertEqual(answer.count(b"HTTP/1.1 "), 1, answer)
                self.assertIn(b"the body's end is in doubt", answer)
        chunked = {"Transfer-Encoding": "Chunked"}
        body = json.dumps({"inputs": LINES[0]}).encode()
        status, _, _ = server.ask("/embed", raw=b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body),
                                  headers=chunked)
        self.assertEqual(status, 200)

    def test_heads_and_bodies_without_end(self):
        server = self.serve("model", "--max-body", "10000")
        for sent in (b"GET / HTTP/1.1\r\nX: " + b"a" * (1 << 20) + b"\r\n\r\n",
                     b"GET /" + b"a" * (1 << 20) + b" HTTP/1.1\r\n\r\n",
                     b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 200000 + b"\r\n",
                     b"POST /embed HTTP/1.1\r\nContent-Length: -1\r\n\r\n{}",
                     b"POST /embed HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n{}",
                     b"POST /embed HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" +
                     b"1000\r\n" + b"a" * 0x1000 + b"\r\n",
                     b"\x00\xff\x16\x03\x01" * 100, b"\r\n" * 1000, b"GET"):
            with self.subTest(sent[:40]), server.socket() as plain:
                plain.settimeout(PATIENCE)
                try:
                    for _ in range(100 if b"chunked" in sent else 1):
                        plain.sendall(sent if not _ else sent[sent.index(b"1000\r\n"):])
                    plain.shutdown(socket.SHUT_WR)
                    answer = plain.recv(1 << 16)
                except OSError:
                    answer = b""
                self.assertFalse(answer.startswith(b"HTTP/1.1 200"), answer[:60])
            self.assertEqual(server.good("/health"), {})

    def test_clients_that_go_away_or_wait(self):
        server = self.serve("model")
        idle = [server.socket() for _ in range(100)]
        for i, plain in enumerate(idle):
            self.addCleanup(plain.close)
            whole = self.request(LINES[i % len(LINES)])
            plain.sendall(whole[:1 + i * len(whole) // 100])
        for plain in idle[::2]:
            plain.close()
        gone = [server.socket() for _ in range(50)]
        for plain in gone:
            plain.sendall(self.request(LINES))
            plain.close()
        self.close(server.good("/embed", {"inputs": LINES[0]})[0],
                   self.expected("model", LINES[:1])[0])
        self.assertEqual(server.end(), 0)

    def test_clients_that_go_away_within_a_request_leave_nothing(self):
        for threads in ("1", "2"):
            server = self.serve("sparse", "--sparse", "--http-threads", threads, "--timeout", "600")
            files = pathlib.Path(f"/proc/{server.process.pid}/fd")
            before = len(list(files.iterdir()))
            whole = self.request(["a"])
            for sent in [whole[:20], whole[:-3]] * 10:
                plain = server.socket()
                plain.sendall(sent)
                plain.close()
            end = time.monotonic() + PATIENCE
            while len(list(files.iterdir())) > before and time.monotonic() < end:
                time.sleep(0.01)
            self.assertLessEqual(len(list(files.iterdir())), before)

    def test_a_client_that_closes_its_side_alone_gets_its_answers(self):
        """As nc does; some take longer than the server's looks for clients that are gone."""
        server = self.serve("model", "--threads", "1")
        for texts, times in ((1, 2), (500, 40)):
            with self.subTest(texts), server.socket() as plain:
                plain.settimeout(PATIENCE)
                plain.sendall(self.request(["a text of some words to read"] * texts) * times)
                plain.shutdown(socket.SHUT_WR)
                answer = b""
                while more := plain.recv(1 << 20):
                    answer += more
                self.assertEqual(answer.count(b"HTTP/1.1 200"), times, answer[:200])

    # ---- load ----------------------------------------------------------------------------------

    def client(self, server, seed, expected, count):
        """Asks for random lists of lines; the number of right answers. An answer that belongs to
        another request has other vectors."""
        chance, right = random.Random(seed), 0
        connection = server.connection()
        try:
            for _ in range(count):
                some = [chance.randrange(len(LINES)) for _ in range(chance.randrange(1, 5))]
                connection.request("POST", "/embed", json.dumps({"inputs": [LINES[i]
                                                                            for i in some]}))
                answer = connection.getresponse()
                value = json.loads(answer.read())
                if answer.status != 200:
                    self.assertIn(answer.status, (429, 503), value)
                    continue
                for i, vector in zip(some, value, strict=True):
                    self.close(vector, expected[i])
                right += 1
        except (OSError, http.client.HTTPException, json.JSONDecodeError):
            pass  # the server went away
        finally:
            connection.close()
        return right

    def load(self, server, clients, count, during=None):
        expected = self.expected("model", LINES)
        with concurrent.futures.ThreadPoolExecutor(clients) as pool:
            found = [pool.submit(self.client, server, seed, expected, count)
                     for seed in range(clients)]
            if during:
                during()
            return [f.result() for f in found]

    def test_each_answer_belongs_to_its_request(self):
        for threads in ("1", "4"):
            server = self.serve("model", "--max-batch-tokens", "200", "--http-threads", threads)
            self.assertEqual(self.load(server, 16, 20), [20] * 16)
            self.assertGreater(server.good("/info")["models"][0]["texts"], 16 * 20)
            self.assertIn('route="/embed",code="200"} %d' % (16 * 20), server.good("/metrics"))
            self.assertEqual(server.end(), 0)

    def test_threads_that_cannot_be_had(self):
        """A client that asks while the threads begin of which one cannot: the server ends with a
        sentence, by no signal."""
        request = b"POST /embed HTTP/1.1\r\nHost: x\r\nContent-Length: 14\r\n\r\n{\"inputs\":\"a\"}"

        def ask(process):
            while process.poll() is None:
                with socket.socket(socket.AF_UNIX) as client:
                    try:
                        client.connect(str(self.folder / "few"))
                        client.sendall(request)
                        client.settimeout(2)
                        client.recv(1 << 16)
                    except OSError:
                        time.sleep(0.0005)

        codes = set()
        for files in (6, 7, 7, 8, 8, 9, 10, 24):
            process = subprocess.Popen(
                [PROGRAM, "serve", "model", "--socket", "few", "--http-threads", "4", "--json"],
                cwd=self.folder, env=clean_environment(), stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files)))
            clients = [threading.Thread(target=ask, args=(process,)) for _ in range(3)]
            for client in clients:
                client.start()
            with process:
                said = ""
                for line in process.stdout:
                    said += line
                    if '"url"' in line:  # all threads are there
                        process.terminate()
            for client in clients:
                client.join()
            self.assertIn(process.returncode, (0, 3), (files, said))
            self.assertIn('"url"' if process.returncode == 0 else '"error"', said)
            codes.add(process.returncode)
        self.assertEqual(codes, {0, 3})

    def end_in_the_midst(self, server, number):
        """Ends it when more texts were answered than eight clients of one request each can have
        on their way."""
        while server.good("/info")["models"][0]["texts"] <= 8 * 4:
            time.sleep(0.001)
        server.end(number)

    def test_killed_and_started_again(self):
        for number in (signal.SIGKILL, signal.SIGTERM):
            server = self.serve("model", "--socket", "sock")
            right = self.load(server, 8, 10 ** 6, lambda: self.end_in_the_midst(server, number))
            self.assertGreater(sum(right), 0)
            self.assertEqual(server.process.returncode, 0 if number == signal.SIGTERM else -9)
            self.assertEqual((self.folder / "sock").exists(), number == signal.SIGKILL)
        other = self.serve("model", "--socket", "sock")
        self.assertEqual(other.good("/health"), {})
        done = run("serve", "model", "--socket", "sock", cwd=self.folder)
        self.assertEqual((done.returncode, other.good("/health")), (3, {}))

    def burst(self, server, count, texts):
        """Sockets with one request each on its way."""
        text = " ".join(tiny_bert.WORDS * 8)
        sockets = [server.socket() for _ in range(count)]
        for plain in sockets:
            self.addCleanup(plain.close)
        for plain in sockets:
            plain.sendall(self.request([text] * texts))
        return sockets

    def answers(self, sockets):
        found = []
        for plain in sockets:
            answer = http.client.HTTPResponse(plain)
            try:
                answer.begin()
                found.append((answer.status, answer.headers, answer.read()))
            except (http.client.HTTPException, OSError):
                found.append((0, {}, b""))
        return found

    def test_a_full_queue_says_when_to_come_again(self):
        server = self.serve("deep", "--queue", "4", "--threads", "1")
        server.stop()  # so that all of them wait when it goes on
        sockets = self.burst(server, 64, 4)
        server.go_on()
        found = self.answers(sockets)
        codes = [status for status, _, _ in found]
        self.assertEqual(set(codes), {200, 429})
        for status, headers, _ in found:
            if status == 429:
                self.assertGreaterEqual(int(headers["Retry-After"]), 1)
        self.assertEqual(server.ask("/embed", {"inputs": "a"})[0], 200)

    def test_answers_that_nobody_reads_fill_the_memory_for_bodies(self):
        server = self.serve("sparse", "--sparse", "--queue", "1000000", "--threads", "1")
        sockets = [server.socket() for _ in range(64)]
        for plain in sockets:
            self.addCleanup(plain.close)
            plain.sendall(self.request(["a"] * 2000))
        while server.good("/info")["models"][0]["texts"] < len(sockets) * 2000:
            time.sleep(0.01)
        status, headers, value = server.ask("/embed", {"inputs": "a"})
        self.assertEqual(status, 429, value)
        self.assertIn("fill the server's memory", value["error"]["message"])
        self.assertGreaterEqual(int(headers["Retry-After"]), 1)
        for plain in sockets:
            plain.close()
        while server.ask("/embed", {"inputs": "a"})[0] != 200:
            time.sleep(0.01)

    def test_a_hundred_thousand_texts_at_once(self):
        """Most are told to come again, and memory stays that of the queue and of bodies."""
        server = self.serve("sparse", "--sparse", "--threads", "1")
        status = pathlib.Path(f"/proc/{server.process.pid}/status")

        def most():
            return int(status.read_text().split("VmHWM:")[1].split()[0]) << 10

        server.good("/embed", {"inputs": [" ".join(tiny_bert.WORDS * 8)] * 100})
        before = most()
        found = self.answers(self.burst(server, 100, 1000))
        codes = [code for code, _, _ in found]
        self.assertLessEqual(set(codes), {200, 429})
        self.assertIn(200, codes)
        if not os.environ.get("S24_SANITIZE"):
            self.assertLess(most() - before, 64 << 20)

    def test_ten_thousand_connections(self):
        """Most have sent half a request; who sends a whole one is answered all the same."""
        count, (soft, hard) = 10000, resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard < count + 500:
            self.skipTest(f"a process may have {hard} files here")
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        server = self.serve("sparse", "--sparse", "--connections", str(count + 100), "--timeout",
                            "600", "--http-threads", "2")
        whole = self.request(LINES[0])
        half, sockets = len(whole) // 2, []
        want = server.good("/embed", {"inputs": LINES[0]})
        for number in range(count):
            if number % 500 == 0:  # those before were accepted: the system's queue never overflows
                server.good("/health")
            sockets.append(server.socket())
            self.addCleanup(sockets[-1].close)
            sockets[-1].sendall(whole if number % 20 == 0 else whole[:half])
        self.assertEqual(server.good("/health"), {})
        for plain in sockets[1::20]:
            plain.sendall(whole[half:])
        found = self.answers(sockets[::20] + sockets[1::20])
        self.assertEqual({code for code, _, _ in found}, {200})
        for _, _, body in found:
            self.close(json.loads(body)[0], want[0])
        self.assertEqual(server.end(), 0)

    def test_sigterm_ends_what_was_taken(self):
        server = self.serve("deep", "--threads", "1", "--http-threads", "2")
        sockets = self.burst(server, 32, 4)
        while not server.good("/info")["models"][0]["texts"]:
            pass
        taken = server.good("/info")["models"][0]
        self.assertEqual(server.end(), 0)
        found = self.answers(sockets)
        whole = [json.loads(body) for status, _, body in found if status == 200]
        self.assertGreaterEqual(4 * len(whole), taken["texts"] + taken["waiting_texts"])
        self.assertTrue(all(len(vectors) == 4 for vectors in whole))
        self.assertLessEqual({status for status, _, _ in found}, {0, 200, 503})

    def test_threads_and_memory(self):
        server = self.serve("model", "sparse", "--sparse", "--threads", "2")
        chance = random.Random(1)
        tasks = pathlib.Path(f"/proc/{server.process.pid}/task")

        def some(name, count):
            connection = server.connection()
            for _ in range(count):
                lines = [" ".join(chance.choices(tiny_bert.WORDS, k=chance.randrange(200)))
                         for _ in range(chance.randrange(1, 9))]
                body = {"inputs": lines, "model": name}
                connection.request("POST", "/embed", json.dumps(body))
                self.assertEqual(len(json.loads(connection.getresponse().read())), len(lines))
            connection.close()
            metrics = server.good("/metrics").splitlines()
            return int(float(metrics[-1].split()[1]))

        # A whole batch touches all the memory that there is. A dense engine keeps products of the
        # numbers of tokens that it has met, so the model of 2:4 layers is the one that is watched.
        server.good("/embed", {"inputs": [" ".join(tiny_bert.WORDS * 8)] * 100, "model": "sparse"})
        some("model", 30)
        before = some("sparse", 300)
        after = some("sparse", 600)
        # The main thread, HTTP's, and for each model a worker with one more; a sanitizer's own.
        self.assertLessEqual(len(list(tasks.iterdir())),
                             2 + 2 * 2 + ("thread" in os.environ.get("S24_SANITIZE", "")))
        if not os.environ.get("S24_SANITIZE"):
            self.assertLess(after - before, 4 << 20)


if __name__ == "__main__":
    unittest.main()
