#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Loads `sparse24 serve` with clients that each ask for one text after another, of token ids so
that lengths are exact, and compares with `bench --model` of the same model and threads.

    bench/serve_load.py MODEL [--program PATH] [--clients 64] [--tokens 8-256] [--seconds 10]

With --peer NAME=HOST:PORT/PATH, any number of times, servers that run already and have OpenAI's
route at PATH take turns with ours: same clients, same requests, which are texts of words then
(--words VOCAB.TXT, each word one token), since not all take ids. bench/peers/http_server.py
makes such servers.

With --native the clients are bench/serve_clients.c, which cc compiles, or the program that it is
given: they cost a tenth of those in Python, which take as much of a machine as eight threads of a
server that answers 40,000 texts a second. They take no chunked answers.

The share that is told is of `bench --model` with texts of the same lengths, as many as fit a batch,
or as there are clients where these are fewer. On a GPU `gpu_waits` is the share of the time that it
waited for the host, the median of the turns: in which no kernel ran, as nvidia-smi tells each tenth
of a second (`gpu_ran`), or where that is not, at least that in which no batch was on its way, by
the server's own busy_seconds_total (`on_its_way`). --http-threads takes a list, each of which has a
server of its own.

Every answer is checked to be the vector of its own request: the text's number is in its ids, and
the first answer of each number is kept. The clients' own time on the CPU is told, since they share
the cores with the server. Standard library only.

With --soak REQUESTS so many are answered while clients are killed (--kill, the share of requests
whose client goes away before, while or after it is sent) and models are reloaded (--reload, after
so many answers); with --language MODEL a third are of its completions, half of them streamed. The
server's memory and threads are told as they were on the way.
"""
import argparse
import base64
import http.client
import json
import multiprocessing
import os
import pathlib
import random
import resource
import select
import signal
import socket
import struct
import subprocess
import tempfile
import time

BODIES = 4096  # different texts
FIRST = 1000   # ids that any BERT has begin here
LEAST_COSINE = 0.99  # of two answers to a text; other servers' are told and not judged


def words_of(path):
    """Words that are a token each, in the order of a WordPiece vocabulary."""
    lines = pathlib.Path(path).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.isascii() and line.isalpha() and len(line) > 2]


def text_words(words, number, count, chance):
    """A text of `count` tokens, two of them around it, its number among them."""
    return " ".join([words[number]] + chance.choices(words, k=count - 3))


def text_ids(number, count, chance):
    """A text of `count` ids, its number among them."""
    ids = [101, FIRST + number] + [chance.randrange(FIRST, 28000) for _ in range(count - 3)]
    return ids[:count - 1] + [102]


def requests(shortest, longest, seed, words=None, path="/v1/embeddings"):
    """(tokens, the request's bytes) of each text."""
    chance, made = random.Random(seed), []
    for number in range(BODIES):
        count = chance.randint(shortest, longest)
        text = (text_words(words, number, count, chance) if words
                else text_ids(number, count, chance))
        body = json.dumps({"input": text, "encoding_format": "base64"}).encode()
        made.append((count, b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                     b"Content-Length: %d\r\n\r\n" % (path.encode(), len(body)) + body))
    return made


class Client:
    """One connection that always has one request on its way."""

    def __init__(self, address, made, chance):
        self.address, self.made, self.chance = address, made, chance
        self.connect()
        self.ask()

    def connect(self):
        self.socket = socket.create_connection(self.address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self):
        self.number = self.chance.randrange(len(self.made))
        self.read = b""
        self.began = time.perf_counter()
        self.socket.sendall(self.made[self.number][1])

    def kill(self):
        """Sends a part or all of a request and goes away, by a reset or politely."""
        sent = self.made[self.chance.randrange(len(self.made))][1]
        self.socket.sendall(sent[:self.chance.choice((0, len(sent) // 2, len(sent)))])
        if self.chance.random() < 0.5:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def take(self):
        """The answer's body when it is whole, else None."""
        more = self.socket.recv(1 << 16)
        self.read += more
        head, _, body = self.read.partition(b"\r\n\r\n")
        if not more or (body and not head.startswith(b"HTTP/1.1 200")):
            raise RuntimeError(f"text {self.number}: {self.read.decode(errors='replace')}")
        if b"transfer-encoding: chunked" in head.lower():
            return unchunked(body) if body.endswith(b"\r\n0\r\n\r\n") else None
        _, _, length = head.lower().partition(b"content-length: ")
        return body if length and len(body) >= int(length.split(b"\r\n")[0]) else None


def unchunked(body):
    whole = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        whole += body[:int(size, 16)]
        body = body[int(size, 16) + 2:]
    return whole


def vector_of(answer):
    begin = answer.index(b'"embedding":"') + 13
    return answer[begin:answer.index(b'"', begin)]


def cosine(one, other):
    """Of two vectors of the same text: batches round differently."""
    if one == other:
        return 1
    a, b = (memoryview(base64.b64decode(v)).cast("f") for v in (one, other))
    return sum(x * y for x, y in zip(a, b))


def completions(tokens, seed):
    """(tokens, the request's bytes) of prompts, many of which begin alike; every other streams."""
    chance, made = random.Random(seed), []
    system = [chance.randrange(100) for _ in range(40)]
    for number in range(BODIES // 2):
        ids = [number % 100, number // 100] + [chance.randrange(100) for _ in range(8)]
        body = json.dumps({"prompt": (system if number % 3 else []) + ids, "temperature": 0,
                           "max_tokens": tokens, "stream": number % 2 == 1}).encode()
        made.append((tokens, b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d"
                     b"\r\n\r\n" % len(body) + body))
    return made


def completion_of(answer):
    """The text of a completion, whole or in events."""
    if answer.startswith(b"{"):
        return json.loads(answer)["choices"][0]["text"]
    lines = answer.decode().split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""], lines[-2:]
    events = [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]
    return "".join(event["choices"][0]["text"] for event in events)


def likeness(first, number, answer):
    """How like the answer is to the one that this text had before: 1 the same, 0 another."""
    if b'"choices":' in answer:
        found = completion_of(answer)
        return first.setdefault(number, found) == found
    found = vector_of(answer)
    return cosine(first.setdefault(number, found), found)


def soak(options, address, made, pid, process):
    """Answers until a process of clients has its share, with what befell clients and models on the
    way. The first process has the models read anew and watches the server's memory."""
    chance, first, poll, clients = random.Random(7 + process), {}, select.epoll(), {}
    counts = {"answered": 0, "killed": 0, "reloads": 0}
    memory, wanted = [], -(-options.soak // options.processes)
    reload = 0 if process else options.reload // options.processes

    def add():
        client = Client(address, made, chance)
        clients[client.socket.fileno()] = client
        poll.register(client.socket, select.EPOLLIN)

    for _ in range(-(-options.clients // options.processes)):
        add()
    while counts["answered"] < wanted:
        for number, _ in poll.poll(options.patience) or [(None, None)]:
            answer = clients[number].take()  # nothing in that time: no client is found
            if answer is None:
                continue
            client = clients[number]
            if likeness(first, client.number, answer) <= LEAST_COSINE:
                raise RuntimeError(f"text {client.number} got another text's answer")
            counts["answered"] += 1
            if not process and counts["answered"] % max(1, wanted // 20) == 0:
                memory.append(resident(pid))
            if reload and counts["answered"] % reload == 0:
                os.kill(pid, signal.SIGHUP)
                counts["reloads"] += 1
            if chance.random() >= options.kill:
                client.ask()
                continue
            poll.unregister(client.socket)
            del clients[number]
            client.kill()
            counts["killed"] += 1
            add()
    return {**counts, "texts_checked": len(first), "resident_bytes": memory}


def soak_all(options, address, made, server):
    """What the soaks of all processes come to."""
    began = time.perf_counter()
    with multiprocessing.Pool(options.processes) as pool:
        parts = pool.starmap(soak, [(options, address, made, server.pid, process)
                                    for process in range(options.processes)])
    threads = len(list(pathlib.Path(f"/proc/{server.pid}/task").iterdir()))
    return {**{key: sum(part[key] for part in parts) for key in ("answered", "killed", "reloads")},
            "seconds": time.perf_counter() - began, "processes": options.processes,
            "texts_checked": max(part["texts_checked"] for part in parts),
            "resident_bytes": parts[0]["resident_bytes"], "threads": threads}


def clients_of(address, made, count, seconds, seed):
    """(tokens, latencies, seconds, least likeness, seconds of the CPU) of so many clients; what is
    on its way at the end is answered and not counted, so that nothing of it is left to the next
    turn."""
    own, chance, first, latencies, tokens, least = (
        time.process_time(), random.Random(seed), {}, [], 0, 1)
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
            least = min(least, likeness(first, client.number, answer))
            client.ask()
    took = time.perf_counter() - began
    while clients:
        for number, _ in poll.poll(60) or [(None, None)]:
            if clients[number].take() is not None:  # nothing within a minute: no client is found
                clients.pop(number).socket.close()
    return tokens, latencies, took, least, time.process_time() - own


def write_requests(path, made):
    """What serve_clients.c reads."""
    with open(path, "wb") as file:
        file.write(struct.pack("<I", len(made)))
        for count, sent in made:
            file.write(struct.pack("<II", count, len(sent)) + sent)


def native(options, address, made, seed, seconds):
    """What load gives, by clients in C."""
    with tempfile.TemporaryDirectory() as folder:
        write_requests(folder + "/requests", made)
        done = subprocess.run(
            [options.native, folder + "/requests", socket.gethostbyname(address[0]),
             str(address[1]), str(options.clients), str(seconds), str(options.processes),
             str(seed)], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    found = json.loads(done.stdout)
    return (found["tokens"], {"count": found["texts"], "p50": found["p50_ms"] / 1e3,
                              "p99": found["p99_ms"] / 1e3},
            found["seconds"], found["least_cosine"], found["own"])


def load(options, address, made, seed, seconds=None):
    """(tokens, latencies, seconds, least likeness, seconds of the CPU) of all clients, shared by
    --processes of them; of latencies how many they are and two of them, in seconds."""
    if options.native:
        return native(options, address, made, seed, seconds or options.seconds)
    each = [(address, made, options.clients * (n + 1) // options.processes -
             options.clients * n // options.processes, seconds or options.seconds, seed * 64 + n)
            for n in range(options.processes)]
    with multiprocessing.Pool(options.processes) as pool:
        tokens, latencies, took, least, own = zip(*pool.starmap(clients_of, each))
    every = sorted(sum(latencies, []))
    of_all = {"count": len(every), "p50": every[len(every) // 2],
              "p99": every[len(every) * 99 // 100]}
    return sum(tokens), of_all, max(took), min(least), sum(own)


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


def passes(options, batch):
    """Tokens a second of whole passes of texts of the clients' lengths, in the 2:4 column."""
    shortest, longest = options.tokens.split("-")
    done = subprocess.run([options.program, "bench", "--model", options.model, "--batch",
                           str(batch), "--seq", longest, "--shortest", shortest, "--json", "-q",
                           *options.effort, *options.more],
                          capture_output=True, text=True, check=True)
    row = json.loads(done.stdout)["rows"][0]
    return 1e3 * row["tokens"] / row["sparse_ms"]


class Busy:
    """The share of the time in which a kernel ran on the GPU, by nvidia-smi; None without one."""

    def __init__(self, options):
        self.process = None
        if options.device == "cpu":
            return
        which = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]  # else it tells of all
        try:
            self.process = subprocess.Popen(
                ["nvidia-smi", "-i", which, "--query-gpu=utilization.gpu",
                 "--format=csv,noheader,nounits", "-lms", "100"], stdout=subprocess.PIPE, text=True)
        except OSError:
            pass

    def end(self):
        if not self.process:
            return None
        self.process.terminate()
        found = [int(line) for line in self.process.communicate()[0].split() if line.isdigit()]
        inner = found[len(found) // 4:]  # its sampling period reaches back to before the load
        return sum(inner) / len(inner) / 100 if inner else None


def counted(address):
    """What the server counted of its models, all together."""
    connection = http.client.HTTPConnection(*address, timeout=60)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    found = {}
    for line in lines:
        if line.startswith("sparse24_") and "{model=" in line:
            name = line.split("{", 1)[0].removeprefix("sparse24_").removesuffix("_total")
            found[name] = found.get(name, 0) + float(line.rsplit(" ", 1)[1])
    return found


def waits(rows):
    """The share of the time that a device waited for its host, and who told that."""
    by = "on_its_way" if any(row["gpu_ran"] is None for row in rows) else "gpu_ran"
    shares = sorted(1 - row[by] for row in rows)
    return {"gpu_waits": shares[len(shares) // 2], "gpu_waits_by": by}


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


def peer_turn(options, peer, number):
    """One turn of load of another server."""
    name, address, made = peer
    _, latencies, took, least, _ = load(options, address, made, number)
    return {"name": name, "texts_per_second": latencies["count"] / took,
            "p50_ms": 1e3 * latencies["p50"], "p99_ms": 1e3 * latencies["p99"],
            "least_cosine": least}


def turn(options, address, made, server, number):
    """One turn of load and of passes as long as batches were."""
    before, was, busy = server_times(server.pid), counted(address), Busy(options)
    tokens, latencies, took, least, own = load(options, address, made, number)
    ran, count = busy.end(), latencies["count"]
    done = {name: value - was[name] for name, value in counted(address).items()}
    if least <= LEAST_COSINE:
        raise SystemExit("a text got another text's answer")
    after = server_times(server.pid)
    mean = tokens // count
    batch = max(1, min(options.clients, options.batch_tokens // mean))
    bench = passes(options, batch)
    return {"texts_per_second": count / took, "tokens_per_second": tokens / took,
            "p50_ms": 1e3 * latencies["p50"], "p99_ms": 1e3 * latencies["p99"], "gpu_ran": ran,
            "on_its_way": done["busy_seconds"] / took,
            "texts_per_batch": done["texts"] / max(1, done["batches"]),
            "server_cores": (after[0] - before[0]) / took,
            "http_cores": (after[1] - before[1]) / took, "client_cores": own / took,
            "least_cosine": least, "resident_bytes": resident(server.pid),
            "bench_tokens_per_second": bench,
            "share": tokens / took / bench, "batch": batch, "mean_tokens": mean}


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("model", nargs="?", help="an encoder; none: --language alone")
    parser.add_argument("--program", default="build/release/sparse24")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--processes", type=int, default=1, help="that the clients share")
    parser.add_argument("--native", nargs="?", const="", metavar="PROGRAM")
    parser.add_argument("--tokens", default="8-256", metavar="LEAST-MOST")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--turns", type=int, default=5, help="0: first answers alone")
    parser.add_argument("--dtype", default="i8")
    parser.add_argument("--threads", default=None)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--http-threads", default=None, metavar="N,N…",
                        help="each of these with a server of its own")
    parser.add_argument("--warm", type=float, default=0, metavar="SECONDS",
                        help="of load before the first turn, of each server")
    parser.add_argument("--starts", type=int, default=9, help="that are timed to the first answer")
    parser.add_argument("--sparse", action="store_true", help="2:4 layers alone")
    parser.add_argument("--soak", type=int, metavar="REQUESTS")
    parser.add_argument("--language", metavar="MODEL")
    parser.add_argument("--texts", metavar="N", help="that the language model has at a time")
    parser.add_argument("--max-new", type=int, default=16)
    parser.add_argument("--full-log", action="store_true",
                        help="what the server says goes to a disk that is full")
    parser.add_argument("--kill", type=float, default=0.02, metavar="SHARE")
    parser.add_argument("--reload", type=int, default=0, metavar="ANSWERS")
    parser.add_argument("--patience", type=int, default=60, metavar="SECONDS",
                        help="for which a connection may stand still, with --soak")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=HOST:PORT/PATH")
    parser.add_argument("--words", metavar="VOCAB.TXT")
    options = parser.parse_args()
    if options.peer and not options.words:
        parser.error("--peer needs --words")
    # On a CPU turns so long that what else there is takes from passes what it takes from the load.
    options.effort = ["--rounds", "3", "--min-ms", "700"] if options.device == "cpu" else []
    options.more = ["--dtype", options.dtype, "--device", options.device]
    options.more += ["--sparse"] * options.sparse
    if options.threads:
        options.more += ["--threads", options.threads]
    if not options.model and not (options.soak and options.language):
        parser.error("without MODEL --soak and --language are needed")
    return options


def measure(options, address, server):
    """Turns of load next to passes, or the soak that was asked for."""
    shortest, longest = map(int, options.tokens.split("-"))
    words = words_of(options.words) if options.words else None
    made = requests(shortest, longest, 1, words) if options.model else []
    if options.soak:
        made += completions(options.max_new, 2) if options.language else []
        return {"soak": soak_all(options, address, made, server)}
    peers, rows, others = [], [], []
    for peer in options.peer:
        name, _, where = peer.partition("=")
        where, _, path = where.partition("/")
        host, _, port = where.partition(":")
        peers.append((name, (host, int(port)), requests(shortest, longest, 1, words, "/" + path)))
    for where, texts in [(address, made), *(peer[1:] for peer in peers)] if options.warm else []:
        load(options, where, texts, options.turns, options.warm)
    for number in range(options.turns):
        rows.append(turn(options, address, made, server, number))
        others += [peer_turn(options, peer, number) for peer in peers]
    return {"share": sorted(r["share"] for r in rows)[len(rows) // 2],
            **(waits(rows) if options.device != "cpu" else {}), "rows": rows, "peers": others}


def serve(options, http_threads):
    """Starts a server with so many threads of HTTP, and measures it."""
    models = [model for model in (options.model, options.language) if model]
    more = ["--texts", options.texts] if options.texts else []
    if http_threads:
        more += ["--http-threads", http_threads]
    more += ["--timeout", str(options.patience)] if options.soak else []
    more += [] if options.full_log else ["-q"]
    log = open("/dev/full", "w", encoding="utf-8") if options.full_log else None
    server = subprocess.Popen([options.program, "serve", *models, "--port", "0", "--json",
                               "--max-batch-tokens", str(options.batch_tokens),
                               *options.more, *more],
                              stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        text = ""
        while not text.endswith("}\n"):
            text += server.stdout.readline()
        host, port = json.loads(text)["url"].removeprefix("http://").split(":")
        return measure(options, (host, int(port)), server)
    finally:
        server.terminate()
        server.wait()


def main():
    options = parse()
    starts = sorted(first_answer(options) for _ in range(options.starts if options.model else 0))
    if options.native == "":
        folder = tempfile.TemporaryDirectory()
        options.native = folder.name + "/serve_clients"
        subprocess.run(["cc", "-O2", "-pthread", "-o", options.native,
                        pathlib.Path(__file__).with_name("serve_clients.c"), "-lm"], check=True)
    threads = (options.http_threads or "").split(",")
    served = [{"http_threads": count or None, **serve(options, count)}
              for count in threads if options.turns or options.soak]
    found = served[0] if len(served) == 1 else {"servers": served}
    print(json.dumps({"clients": options.clients,
                      "tokens": options.tokens, "dtype": options.dtype,
                      "first_answer_ms": [starts[0], starts[len(starts) // 2], starts[-1]]
                      if starts else None,
                      **found}, indent=2))


if __name__ == "__main__":
    main()
