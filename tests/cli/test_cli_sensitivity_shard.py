# SPDX-License-Identifier: Apache-2.0
"""sensitivity by parts: joined bytes are those of one process, and a budget takes them; parts that
are missing, doubled, of another run or torn are refused by name."""
import json
import unittest

from cli_case import Scratch, run
import tiny_bert

WORDS = ("sensitivity", "model", "--calibration", "texts")


class Shards(Scratch):
    @staticmethod
    def make(folder):
        tiny_bert.write(folder / "model")
        (folder / "texts").write_text("\n".join(tiny_bert.sentences(24)) + "\n")

    def test_joined_parts_are_what_one_process_measures(self):
        for more in ((), ("--method", "wanda", "--patterns", "2:4,5:24,2:4+int8"),
                     ("--exclude", "*.layer.0.*")):
            folder = self.scratch()
            words = (*WORDS, *more)

            def good(*arguments):
                done = run(*arguments, cwd=folder)
                self.assertEqual(done.returncode, 0, done.stderr)
                return done.stdout
            whole = good(*words, "--output", "whole.json")
            for parts in (1, 2, 5):  # more parts than blocks
                names = [f"{parts}-{i}.json" for i in range(1, parts + 1)]
                for i, name in enumerate(names):
                    good(*words, "--shard", f"{i + 1}/{parts}", "--output", name)
                good("join", f"joined-{parts}.json", *reversed(names))
                self.assertEqual((folder / f"joined-{parts}.json").read_bytes(),
                                 (folder / "whole.json").read_bytes())
            self.assertEqual(good(*words, "--from", "joined-2.json"), whole)
            budget = (*words, "--budget", "bytes=0.8", "--json")
            self.assertEqual(json.loads(good(*budget, "--from", "joined-2.json")),
                             json.loads(good(*budget)))

    def test_parts_that_do_not_fit_are_refused(self):
        folder = self.scratch()

        def part(which, output, *more):
            done = run(*WORDS, "--shard", which, "--output", output, *more, cwd=folder)
            self.assertEqual(done.returncode, 0, done.stderr)
        for i in (1, 2):
            part(f"{i}/2", f"{i}.json")
        part("1/3", "third.json")
        part("2/2", "other.json", "--method", "magnitude")
        torn = json.loads((folder / "1.json").read_text())
        for name, change in (("no-part.json", {"part": None}), ("place.json", {"part": "3/2"}),
                             ("run.json", {"run": 5})):
            (folder / name).write_text(json.dumps({**torn, **change}))
        (folder / "text.json").write_text("{")
        self.assertEqual(run(*WORDS, "--output", "whole.json", cwd=folder).returncode, 0)
        whole = json.loads((folder / "whole.json").read_text())
        whole["layers"][0]["name"] = "nothing"
        (folder / "unknown.json").write_text(json.dumps(whole))
        self.refusals(self.wrong(), folder)

    @staticmethod
    def wrong():
        return [
            ("missing", ("join", "out.json", "2.json"), 4, "part 1 of 2 is missing"),
            ("doubled", ("join", "out.json", "1.json", "1.json"), 4,
             "1.json is part 1 of 2, and so is 1.json"),
            ("other number", ("join", "out.json", "1.json", "third.json"), 4,
             "third.json is one of 3 parts, 1.json one of 2"),
            ("other run", ("join", "out.json", "1.json", "other.json"), 4,
             "other.json is of another model, of other passages, options or version than 1.json"),
            ("whole", ("join", "out.json", "whole.json"), 4,
             "whole.json is no part of sensitivity --shard I/N"),
            ("no part", ("join", "out.json", "no-part.json"), 4, "is no part of sensitivity"),
            ("place", ("join", "out.json", "place.json"), 4,
             "place.json: its part is '3/2'; I/N is expected"),
            ("run", ("join", "out.json", "run.json"), 4, "is no part of sensitivity"),
            ("text", ("join", "out.json", "text.json"), 4, "text.json is no JSON"),
            ("there", ("join", "texts", "1.json", "2.json"), 3,
             "texts exists; --force replaces it"),
            ("part as whole", (*WORDS, "--from", "1.json"), 4, "is no whole measurement"),
            ("other options", (*WORDS, "--method", "wanda", "--from", "whole.json"), 4,
             "whole.json is of another model, of other passages, options or version than these"),
            ("layer", (*WORDS, "--from", "unknown.json"), 4,
             "unknown.json: layer 0 is none of this model"),
            ("budget", (*WORDS, "--shard", "1/2", "--output", "o", "--budget", "bytes=0.7"), 2,
             "shard"),
            ("shard", (*WORDS, "--shard", "3/2", "--output", "o"), 2, "'3/2' is not I/N"),
            ("output", (*WORDS, "--shard", "1/2"), 2, "output")]


if __name__ == "__main__":
    unittest.main()
