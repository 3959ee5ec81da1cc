# SPDX-License-Identifier: Apache-2.0
"""Some of the faults of every command (tools/faults has all): whatever call fails, a command ends
with a code of the contract and a sentence, its outputs are old or new, and the next run works."""
import concurrent.futures
import errno
import os
import pathlib
import re
import sys
import unittest

SOURCE = os.environ["S24_SOURCE"]
sys.path[1:1] = [f"{SOURCE}/tests/{room}" for room in ("cli", "tools")]

import fault_client
import fault_matrix
import fault_rows

# Rows that show each writer and each reader; the others differ by what they compute.
ROWS = ("info check prune prune-file sensitivity convert-gguf convert pack unpack embed "
        "embed-dense join-measured search-index eval-qa generate serve serve-more").split()
CALLS = 4  # of each kind
PART, WENT = ('data: {"choices":[{"text":"a"}]}\n\n',
              'data: {"error":{"message":"the server is out of memory","type":"server_error"}}\n\n')
DONE = fault_client.DONE


class Answers(unittest.TestCase):
    """What counts as an answer that tells of a fault."""

    def test_errors(self):
        told = '{"error":{"message":"the server is out of memory"}}'
        for answer in ((503, told), (500, told), (200, WENT + DONE), (200, PART + WENT + DONE)):
            with self.subTest(answer):
                self.assertIsNone(fault_client.wrong([answer], [(200, PART + DONE)], False))

    def test_what_is_none(self):
        empty = WENT.replace("the server is out of memory", "")
        for answer in ((200, PART + WENT), (200, WENT), (200, WENT + PART + DONE),
                       (200, PART + DONE + WENT), (200, PART + empty + DONE), (200, DONE),
                       (200, PART + WENT.replace("}}", "}") + DONE), (200, '{"error":{}}'),
                       (500, "no JSON"), (500, '{"error":"words"}'), (500, "[]"), (422, "{}")):
            with self.subTest(answer):
                self.assertIn("answer 0 is", fault_client.wrong(
                    [answer], [(200, PART + PART + DONE)], False) or "")


class Faults(unittest.TestCase):
    def sweep(self, row, replaces):
        sweep = fault_matrix.Sweep(row, self.world, replaces)
        try:
            sweep.all_calls(fault_matrix.some(CALLS))
            sweep.kills(fault_matrix.some(CALLS))
            sweep.disks(fault_matrix.some(3))
            sweep.power(40)
        finally:
            sweep.close()
        return sum(sweep.runs.values()), [str(defect) for defect in sweep.defects]

    def test_every_command_and_route_has_a_row(self):
        def names(path, pattern):
            text = pathlib.Path(SOURCE, path).read_text()
            return set(re.findall(pattern, text, re.M))
        commands = {row.words[0] for row in fault_rows.ROWS if not row.api}
        self.assertEqual(commands, names("cli/commands.def", r"^COMMAND\((\w+)\)"))
        asked = {path for row in fault_rows.ROWS for path, _ in row.asks}
        for route in names("cli/serve/serve_routes.def", r'^ROUTE\("\w+", "([^"]+)"'):
            with self.subTest(route):
                self.assertTrue(any(path == route or route.endswith("*") and
                                    path.startswith(route[:-1]) for path in asked))

    @classmethod
    def setUpClass(cls):
        cls.world = fault_matrix.World(os.environ["S24_BUILD"], os.environ["S24_FAULTS_LIBRARY"])
        cls.addClassCleanup(cls.world.close)

    def served(self, asks):
        """What a server of a language model is asked; no answer hangs on those before it, and from
        when it listens it allocates for requests alone: with --json it would for its own words."""
        row = fault_rows.Row("talk", "serve talk --socket listens --threads 1 --no-prefixes",
                             between=["listens"], stdout=False, slow=True, asks=asks)
        sweep = fault_matrix.Sweep(row, self.world, False)
        self.addCleanup(sweep.close)
        return sweep

    def test_log_probabilities(self):
        """Of a server that has one token to stream with them the last allocations fail, each once:
        the stream is whole or ends with the error."""
        path, body = fault_rows.MORE_ASKS[-1]
        sweep = self.served([(path, {**body, "max_tokens": 1})])
        sweep.calls("alloc", errno.ENOMEM, lambda count: range(count - 200, count - 80))
        self.assertEqual([str(defect) for defect in sweep.defects], [])
        self.assertGreater(sweep.runs["alloc"], 100)

    def test_the_next_request_is_answered(self):
        """Of a server allocations fail that it makes for its requests, one a run: one request at
        most has no answer, or another than without faults, and those after it have theirs."""
        one = ("/tokenize", {"model": "talk", "inputs": "abc"})
        path, body = fault_rows.MORE_ASKS[-1]
        asks = [one, (path, {**body, "max_tokens": 1}), one,
                (path, {**body, "max_tokens": 1, "stream": False}), one]
        idle, sweep = (self.served(asks) for asks in ([("/health", None)], asks))
        refused = set()
        for at in range(idle.good.counts["alloc"], sweep.good.counts["alloc"], 6):
            sweep.place.set_back()
            run = sweep.place.run(sweep.words, kind="alloc", at=at, action=errno.ENOMEM,
                                  who=fault_matrix.OURS)
            other = [i for i, (answer, good) in enumerate(zip(run.answers, sweep.good.answers))
                     if answer is None or not fault_client.same(answer, good)]
            with self.subTest(at):
                self.assertEqual(len(run.answers), len(asks))
                self.assertLessEqual(len(other), 1)
            refused.update(i for i in other if run.answers[i] and run.answers[i][0] == 503)
        self.assertTrue(refused & {0, 2, 4}, refused)

    def test_some_of_all(self):
        rows = [row for row in fault_rows.ROWS if row.name in ROWS]
        self.assertEqual(len(rows), len(ROWS))
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            # Of a writer every other row replaces what is there.
            found = list(pool.map(lambda i: self.sweep(rows[i], i % 2 and rows[i].writes()),
                                  range(len(rows))))
        for row, (runs, defects) in zip(rows, found):
            with self.subTest(row.name):
                self.assertEqual(defects, [])
                self.assertGreater(runs, 20)


if __name__ == "__main__":
    unittest.main()
