# SPDX-License-Identifier: Apache-2.0
"""One engine in its own process and virtual environment, told what to do by run.py: a JSON object a
line on standard input, one a line back.

    python worker.py ENGINE THREADS

prepare (folder, texts, tokens) makes it ready for a shape; turn (seconds) runs it once untimed and
then until the seconds are over; vectors (ids) gives what it computes; version names it.
"""
import json
import os
import pathlib
import sys
import time


class Worker:
    def __init__(self, name, threads):
        import engines
        self.row, self.threads, self.engine = engines.row_of(name), threads, None
        self.kind = getattr(engines, self.row.kind)

    def version(self):
        return {"version": self.kind.version()}

    def prepare(self, folder, texts, tokens):
        import numpy
        self.engine = None  # the shape before gives its memory back first
        self.engine = self.kind(pathlib.Path(folder), self.row, self.threads, (texts, tokens))
        self.ids = numpy.random.default_rng(0).integers(1000, 29000, (texts, tokens))
        self.engine.run(self.ids)
        return {}

    def turn(self, seconds):
        self.engine.run(self.ids)
        passes, start = 0, time.perf_counter()
        while True:
            self.engine.run(self.ids)
            passes += 1
            elapsed = time.perf_counter() - start
            if elapsed >= seconds:
                return {"ms": 1000 * elapsed / passes, "passes": passes}

    def vectors(self, ids):
        import numpy
        return {"vectors": numpy.asarray(self.engine.run(numpy.asarray(ids))).tolist()}


def main():
    # What engines print on standard output is talk; answers keep the descriptor to themselves.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    worker = Worker(sys.argv[1], int(sys.argv[2]))
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer = getattr(worker, order.pop("do"))(**order)
        except Exception as error:  # an engine that cannot do a shape is a line of the report
            answer = {"error": f"{type(error).__name__}: {error}"[:500]}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
