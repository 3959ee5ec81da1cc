#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Loads `sparse24 serve` with clients that each ask for one text after another, of token ids so
that lengths are exact, and compares with `bench --model` of the same model and threads.

    bench/serve_load.py MODEL [--program PATH] [--clients 64] [--tokens 8-256] [--seconds 10]

Every answer is checked to be the vector of its own request: the text's number is in its ids, and
the first answer of each number is kept. The clients' own time on the CPU is told, since they share
the cores with the server. Standard library only.
"""
import argparse
import base64
import json
import pathlib
import random
import resource
import select
import socket
import subprocess
import tempfile
import time

BODIES = 4096  # different texts
FIRST = 1000   # ids that any BERT has begin here


def text_ids(number, count, chance):
    """A text of `count` ids, its number among them."""
    ids = [101, FIRST + number] + [chance.randrange(FIRST, 28000) for _ in range(count - 3)]
    return ids[:count - 1] + [102]


def requests(shortest, longest, seed):
    """(tokens, the request's bytes) of each text."""
    chance, made = random.Random(seed), []
    for number in range(BODIES):
        count = chance.randint(shortest, longest)
        body = json.dumps({"input": text_ids(number, count, chance),
                           "encoding_format": "base64"}).encode()
        made.append((count, b"POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
                     % len(body) + body))
    return made


class Client:
    """One connection that always has one request on its way."""

    def __init__(self, address, made, chance):
        self.made, self.chance = made, chance
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.ask()

    def ask(self):
        self.number = self.chance.randrange(BODIES)
        self.read, self.whole = b"", 0
        self.began = time.perf_counter()
        self.socket.sendall(self.made[self.number][1])

    def take(self):
        """The answer's body when it is whole, else None."""
        self.read += self.socket.recv(1 << 16)
        if not self.whole:
            head = self.read.find(b"\r\n\r\n")
            if head < 0:
                return None
            if not self.read.startswith(b"HTTP/1.1 200"):
                raise SystemExit(self.read.decode())
            length = self.read[:head].split(b"Content-Length: ")[1].split(b"\r\n")[0]
            self.whole = head + 4 + int(length)
        return self.read if len(self.read) >= self.whole else None


def vector_of(answer):
    begin = answer.index(b'"embedding":"') + 13
    return answer[begin:answer.index(b'"', begin)]


def near(one, other):
    """Two vectors of the same text: batches round differently."""
    if one == other:
        return True
    a, b = (memoryview(base64.b64decode(v)).cast("f") for v in (one, other))
    return sum(x * y for x, y in zip(a, b)) > 0.99


def load(address, made, count, seconds, seed):
    """(texts, tokens, seconds, latencies) of so many clients."""
    chance, first, latencies, tokens = random.Random(seed), {}, [], 0
    poll = select.epoll()
    clients = {}
    for _ in range(count):
        client = Client(address, made, chance)
        clients[client.socket.fileno()] = client
        poll.register(client.socket, select.EPOLLIN)
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        for number, _ in poll.poll(1):
            client = clients[number]
            answer = client.take()
            if answer is None:
                continue
            latencies.append(time.perf_counter() - client.began)
            tokens += made[client.number][0]
            found = vector_of(answer)
            if not near(first.setdefault(client.number, found), found):
                raise SystemExit(f"text {client.number} got another text's answer")
            client.ask()
    took = time.perf_counter() - began
    return len(latencies), tokens, took, sorted(latencies)


def first_answer(options):
    """Milliseconds from the start of a server to its first answer."""
    with tempfile.TemporaryDirectory() as folder:
        path = folder + "/sock"
        began = time.perf_counter()
        server = subprocess.Popen([options.program, "serve", options.model, "--socket", path,
                                   "-q", *options.more])
        body = json.dumps({"inputs": "one text"}).encode()
        while True:
            plain = socket.socket(socket.AF_UNIX)
            try:
                plain.connect(path)
                break
            except OSError:
                plain.close()
                time.sleep(0.001)
        plain.sendall(b"POST /embed HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s"
                      % (len(body), body))
        answer = plain.recv(1 << 16)
        took = time.perf_counter() - began
        plain.close()
        server.terminate()
        server.wait()
        assert answer.startswith(b"HTTP/1.1 200"), answer
        return 1e3 * took


def passes(options, batch, tokens):
    """Tokens a second of whole passes, in the 2:4 column."""
    done = subprocess.run([options.program, "bench", "--model", options.model, "--batch",
                           str(batch), "--seq", str(tokens), "--json", "-q", *options.more],
                          capture_output=True, text=True, check=True)
    row = json.loads(done.stdout)["rows"][0]
    return 1e3 * batch * tokens / row["sparse_ms"]


def server_times(pid):
    """Seconds on the CPU of all threads, and of HTTP's."""
    found = {True: 0, False: 0}
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        name, fields = (task / "stat").read_text().split("(", 1)[1].rsplit(")", 1)
        fields = fields.split()
        found[name.startswith("MHD")] += (int(fields[11]) + int(fields[12])) / 100
    return found[True] + found[False], found[True]


def resident(pid):
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


def turn(options, address, made, server, number):
    """One turn of load and of passes as long as batches were."""
    before, own = server_times(server.pid), time.process_time()
    count, tokens, took, latencies = load(address, made, options.clients, options.seconds, number)
    after, own = server_times(server.pid), time.process_time() - own
    mean = tokens // count
    batch = max(1, options.batch_tokens // mean)
    bench = passes(options, batch, mean)
    return {"texts_per_second": count / took, "tokens_per_second": tokens / took,
            "p50_ms": 1e3 * latencies[count // 2], "p99_ms": 1e3 * latencies[count * 99 // 100],
            "server_cores": (after[0] - before[0]) / took,
            "http_cores": (after[1] - before[1]) / took, "client_cores": own / took,
            "resident_bytes": resident(server.pid), "bench_tokens_per_second": bench,
            "share": tokens / took / bench, "batch": batch, "mean_tokens": mean}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("model")
    parser.add_argument("--program", default="build/release/sparse24")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--tokens", default="8-256", metavar="LEAST-MOST")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--dtype", default="i8")
    parser.add_argument("--threads", default=None)
    parser.add_argument("--batch-tokens", type=int, default=4096)
    options = parser.parse_args()
    shortest, longest = map(int, options.tokens.split("-"))
    made = requests(shortest, longest, 1)
    options.more = ["--dtype", options.dtype]
    if options.threads:
        options.more += ["--threads", options.threads]
    starts = sorted(first_answer(options) for _ in range(9))
    server = subprocess.Popen([options.program, "serve", options.model, "--port", "0", "--json",
                               "--max-batch-tokens", str(options.batch_tokens), "-q",
                               *options.more],
                              stdout=subprocess.PIPE, text=True)
    try:
        text = ""
        while not text.endswith("}\n"):
            text += server.stdout.readline()
        host, port = json.loads(text)["url"].removeprefix("http://").split(":")
        rows = [turn(options, (host, int(port)), made, server, number)
                for number in range(options.turns)]
    finally:
        server.terminate()
        server.wait()
    print(json.dumps({"clients": options.clients, "tokens": options.tokens, "dtype": options.dtype,
                      "first_answer_ms": [starts[0], starts[4]],
                      "share": sorted(r["share"] for r in rows)[len(rows) // 2], "rows": rows},
                     indent=2))


if __name__ == "__main__":
    main()
