# SPDX-License-Identifier: Apache-2.0
"""Texts that join and leave a running batch."""
import os
import signal
import threading
import unittest

import numpy as np
import sparse24
from py_support import golden, growth

PROMPTS = [[1, 2, 3], [1, 2, 3, 9, 4], [7, 7], [5]]


class Joining(unittest.TestCase):
    def setUp(self):
        self.model = sparse24.Model(golden("language/gpt2"))

    def alone(self, prompt, **options):
        return [token.id for token in sparse24.generate(self.model, [prompt], stops=(), **options)]

    def test_tokens_are_those_of_each_text_alone(self):
        batch = sparse24.Generator(self.model, texts=2, likeliest=2)
        options = [{"max_new": 6}, {"max_new": 4, "temperature": 0.9, "seed": 3}]
        waiting = [(prompt, options[i % 2]) for i, prompt in enumerate(PROMPTS)]
        asked, came = {}, {}
        while waiting or len(batch):
            while waiting and batch.room:
                prompt, how = waiting.pop(0)
                number = batch.join(prompt, stops=(), likeliest=2, **how)
                asked[number], came[number] = (prompt, how), []
            for token in batch.step():
                came[token.prompt].append(token.id)
                self.assertEqual(len(token.likeliest), 2)
                self.assertEqual(token.end, "length" if len(came[token.prompt]) ==
                                 asked[token.prompt][1]["max_new"] else None)
        self.assertEqual(sorted(asked), [0, 1, 2, 3])
        for number, (prompt, how) in asked.items():
            self.assertEqual(came[number], self.alone(prompt, **how), number)

    def test_beginnings_are_taken_over(self):
        batch = sparse24.Generator(self.model, texts=2, tokens=16)
        self.assertGreater(batch.nbytes, 0)
        batch.join(PROMPTS[0], stops=(), max_new=4)
        first = [token.id for token in batch]
        again = PROMPTS[0] + first
        batch.join(again, stops=(), max_new=3)
        second = batch.join(again[:-1] + [8], stops=(), max_new=3)
        rest = {}
        for token in batch:
            rest.setdefault(token.prompt, []).append(token.id)
        self.assertEqual(rest[1], self.alone(again, max_new=3))
        self.assertEqual(rest[second], self.alone(again[:-1] + [8], max_new=3))

    def test_leaving_and_refusing(self):
        batch = sparse24.Generator(self.model, texts=1, tokens=8)
        number = batch.join([1, 2], stops=(), max_new=5)
        self.assertEqual((len(batch), batch.room), (1, 0))
        with self.assertRaisesRegex(ValueError, "room for no more"):
            batch.join([1])
        batch.step()
        batch.leave(number)
        batch.leave(number)
        self.assertEqual((len(batch), batch.step()), (0, []))
        for wrong, sentence in (([1] * 9, "8"), ([], ""), ([-1], "-1"), ([10 ** 6], "1000000")):
            with self.assertRaisesRegex(ValueError, sentence):
                batch.join(wrong)
        with self.assertRaisesRegex(ValueError, "top_p"):
            batch.join([1], top_p=2.0)
        with self.assertRaises(ValueError):
            batch.join([1], likeliest=1)
        self.assertEqual(batch.room, 1)
        with self.assertRaises(ValueError):
            sparse24.Generator(self.model, texts=0)

    def test_texts_join_from_other_threads(self):
        batch = sparse24.Generator(self.model, texts=8)
        threads = [threading.Thread(target=batch.join, args=(prompt,),
                                    kwargs={"stops": (), "max_new": 5}) for prompt in PROMPTS]
        came = []
        for thread in threads:
            thread.start()
        while len(came) < 20:
            came += batch.step()
        for thread in threads:
            thread.join()
        self.assertEqual(sorted(np.bincount([token.prompt for token in came])), [5] * 4)

    def test_ctrl_c_ends_no_text(self):
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, before)
        batch = sparse24.Generator(self.model, texts=1)
        batch.join([1, 2], stops=(), max_new=40)
        with self.assertRaises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            list(batch)
        rest = list(batch)
        self.assertEqual(rest[-1].end, "length")

    def test_memory_stays_flat(self):
        def two_at_a_time():
            batch = sparse24.Generator(self.model, texts=2, tokens=8)
            for i in range(2000):
                batch.join([1, 2 + i % 3], stops=(3, 4), max_new=2)
                list(batch)

        self.assertLess(growth(two_at_a_time, 1), 1 << 20)


if __name__ == "__main__":
    unittest.main()
