# SPDX-License-Identifier: Apache-2.0
"""A client of a server with a fault in it: it asks all that its row asks, one request after the
other, and ends the server. What it got is held against what it gets without a fault."""
import http.client
import json
import re
import signal
import socket
import threading
import time

SECONDS = 30  # an answer that takes longer is none


class Connection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=SECONDS)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


LATE = "late"


def ask(path, route, body):
    """(status, text); None: the connection ended without an answer; LATE: it did not end."""
    connection = Connection(path)
    try:
        sent = None if body is None else json.dumps(body)
        connection.request("GET" if body is None else "POST", route, sent)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except TimeoutError:
        return LATE
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


class Client:
    """Asks in a thread of its own, from when there is a socket until the server has ended. Without
    anything to ask it is none."""

    def __init__(self, asks, path, process):
        self.asks, self.path, self.process, self.answers = asks, str(path), process, []
        self.thread = threading.Thread(target=self.run)
        if asks:
            self.thread.start()

    def is_listening(self):
        with socket.socket(socket.AF_UNIX) as one:
            return one.connect_ex(self.path) == 0

    def run(self):
        while self.process.poll() is None and not self.is_listening():
            time.sleep(0.001)
        for route, body in self.asks:
            if self.process.poll() is None and LATE not in self.answers:
                self.answers.append(ask(self.path, route, body))
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)

    def join(self):
        if self.asks:
            self.thread.join()
        return self.answers


def same(answer, good):
    """Is it the answer of a run without a fault, but for what counts and times?"""
    return answer[0] == good[0] and without_times(answer[1]) == without_times(good[1])


def without_times(text):
    """What an answer says: JSON, the events of a stream, or text, without times and numbers."""
    if text.startswith("data: "):
        return [without_times(event[6:]) for event in text.split("\n\n") if event]
    try:
        value = json.loads(text)
    except ValueError:
        return re.sub(r"[0-9][0-9.e+-]*", "", text)
    for name in ("id", "created", "uptime_seconds"):
        if isinstance(value, dict):
            value.pop(name, None)
    for entry in value.get("data", []) if isinstance(value, dict) else []:
        entry.pop("created", None)
    return value


DONE = "data: [DONE]\n\n"


def is_error(answer):
    """Does it say that the server could not do it? A stream that has begun has its status already:
    its last event says it, a whole one, before the mark that ends it."""
    status, text = answer
    if status == 200 and text.startswith("data: ") and text.endswith(DONE):
        text = text.removesuffix(DONE).rstrip().split("\n\n")[-1].removeprefix("data: ")
    elif status < 500:
        return False
    try:
        return bool(json.loads(text)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return False


def wrong(answers, good, is_short):
    """What is wrong with the answers of a server that had one fault: each is right, an error that
    says so, or there is none; is_short: of one that has no descriptor left for a connection, which
    waits until there is one."""
    for i, answer in enumerate(answers):
        if answer == LATE and not is_short:
            return f"answer {i} never came"
        if answer in (None, LATE) or same(answer, good[i]):
            continue
        if not is_error(answer):
            return f"answer {i} is {answer}"
    return None
