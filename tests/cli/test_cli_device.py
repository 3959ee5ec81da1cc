# SPDX-License-Identifier: Apache-2.0
"""--device cuda where a GPU seldom is: on a device that is none (tests/support/fake_device.c),
whose memory ends, which is lost, and which counts. The first element of a text's vector is its
number of tokens."""
import json
import re
import unittest

from cli_case import BUILD, Scratch, one_object, run
from cli_data import floats, read
import tiny_bert

FAKE = BUILD / "tests" / "fake"
NVML = BUILD / "tests" / "fake_nvml"
WORDS = [w for w in tiny_bert.WORDS if len(w) > 1]
LENGTHS = [i * 7 % 23 for i in range(700)] + [0, 200, 1]  # in words


def make_model(folder):
    tiny_bert.write(folder / "model")
    lines = [" ".join(WORDS[(i + w) % len(WORDS)] for w in range(n)) for i, n in enumerate(LENGTHS)]
    (folder / "texts").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "broken").write_bytes(b"good\nb\xffd\n")
    (folder / "gold").write_text("".join(f"{i}\n" for i in range(len(LENGTHS))))


@unittest.skipUnless((FAKE / "libsparse24-cuda.so.0").exists(), "no modules in this build")
class Device(Scratch):
    make = staticmethod(make_model)
    EMBED = ("embed", "model", "--input", "texts", "--output", "v.safetensors", "--device", "cuda")
    # Tokens of each text: its words, [CLS], [SEP], cut as sentence_bert_config.json says.
    TOKENS = [min(n + 2, 48) for n in LENGTHS]

    def environment(self, **more):
        return {"LD_LIBRARY_PATH": str(FAKE), "XDG_CACHE_HOME": str(self.folder / "cache"),
                **{f"S24_FAKE_{name.upper()}": str(value) for name, value in more.items()}}

    def tokens(self):
        tensors, _ = read(self.folder / "v.safetensors")
        _, shape, raw = tensors["embeddings"]
        values = floats(raw)
        return [int(values[i]) for i in range(0, len(values), shape[1])]

    def fails(self, words, code, sentence, **more):
        """It says so, and leaves nothing."""
        done = run(*words, cwd=self.folder, environment=self.environment(**more))
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertRegex(done.stderr, sentence)
        left = {p.name for p in self.folder.iterdir()} - {"cache"}
        self.assertEqual(left, {"model", "texts", "broken", "gold"})
        return done

    def test_prune_holds_one_block_of_any_number(self):
        report, config = self.folder / "report", self.folder / "model" / "config.json"
        (self.folder / "few").write_text("".join(f"{word}\n" for word in WORDS[:3]))
        most = []
        whole = json.loads(config.read_text())
        for count in (1, whole["num_hidden_layers"]):
            config.write_text(json.dumps({**whole, "num_hidden_layers": count}))
            self.json("prune", "model", f"out-{count}", "--method", "wanda", "--calibration", "few",
                      "--device", "cuda", "--include", "*.layer.0.*",
                      environment=self.environment(report=report))
            most.append(one_object('{"version": 1, ' + report.read_text()[1:])["bytes"])
        self.assertGreater(whole["num_hidden_layers"], 1)
        self.assertEqual(most[0], most[1])

    def test_every_text_in_its_place(self):
        """Short and long, empty and cut, in two streams, whatever batch they were in."""
        report = self.folder / "report"
        found = self.json(*self.EMBED, environment=self.environment(report=report))
        self.assertEqual((found["texts"], found["tokens"]), (len(LENGTHS), sum(self.TOKENS)))
        self.assertEqual(self.tokens(), self.TOKENS)
        counts = one_object('{"version": 1, ' + report.read_text()[1:])
        self.assertEqual((counts["streams"], counts["left"]), (2, 0))

    def test_in_8_bits(self):
        for dtype in ("i8", "e4m3"):
            self.good(*self.EMBED, "--force", "--dtype", dtype, environment=self.environment())
            self.assertEqual(self.tokens(), self.TOKENS)

    def test_a_batch_that_does_not_fit(self):
        """Halved until it does, and said once."""
        done = self.good(*self.EMBED, environment=self.environment(memory=78_000_000))
        said = re.findall(r"batches of (\d+) tokens instead of (\d+)", done.stderr)
        self.assertEqual(len(said), 1, done.stderr)
        self.assertLess(int(said[0][0]), int(said[0][1]))
        self.assertEqual(self.tokens(), self.TOKENS)

    def test_no_memory_at_all(self):
        for memory in (0, 10_000, 40_000_000):
            with self.subTest(memory):
                self.fails(self.EMBED, 3, "out of device memory", memory=memory)

    def test_the_device_is_lost(self):
        """At the first wait, while loading, and in the middle of the texts."""
        search = ("search", "model", "--documents", "texts", "--query", "read", "--device", "cuda")
        evaluate = ("eval", "model", "--task", "retrieval", "--queries", "texts", "--documents",
                    "texts", "--gold", "gold", "--device", "cuda")
        found = set()
        for waits in (0, 20, 60):
            for words in (self.EMBED, search, evaluate):
                done = run(*words, cwd=self.folder, environment=self.environment(waits=waits))
                found.add(done.returncode)
                if done.returncode:
                    self.fails(words, 5, "the device is lost", waits=waits)
                (self.folder / "v.safetensors").unlink(missing_ok=True)
        self.assertIn(5, found)

    def test_a_stream_keeps_what_it_answered(self):
        words = ("embed", "model", "--input", "texts", "--stream", "--device", "cuda")
        report = self.folder / "report"
        whole = self.good(*words, environment=self.environment(report=report)).stdout
        waited = one_object('{"version": 1, ' + report.read_text()[1:])["waits"]
        lost = []
        for waits in (1, waited // 2, waited - 12, waited - 8, waited - 4):
            done = run(*words, cwd=self.folder, environment=self.environment(waits=waits))
            self.assertTrue(whole.startswith(done.stdout))
            self.assertTrue(done.stdout.endswith("\n") or not done.stdout)
            self.assertEqual(done.returncode, 5)
            self.assertRegex(done.stderr, "the device is lost")
            lost.append(len(done.stdout))
        self.assertEqual(lost[0], 0)
        self.assertTrue(0 < max(lost) < len(whole), lost)

    BENCH = ("bench", "--model", "model", "--batch", "2", "--seq", "4", "--device", "cuda",
             "--rounds", "1", "--min-ms", "1", "--peers", "none")

    def test_energy(self):
        """Five watts are as many millijoules a text as half of a pass has times 5 ms."""
        with_nvml = {**self.environment(), "LD_LIBRARY_PATH": f"{FAKE}:{NVML}"}
        row, = self.json(*self.BENCH, "--energy", environment=with_nvml)["rows"]
        for key in ("dense_mj", "sparse_mj"):
            self.assertGreater(row[key], 0)
        self.assertNotIn("dense_mj", self.json(*self.BENCH, environment=with_nvml)["rows"][0])
        table = self.good(*self.BENCH, "--energy", environment=with_nvml).stdout
        self.assertRegex(table, r"dense mJ +2:4 mJ")

    def test_energy_that_nobody_counts(self):
        """A dash, and why."""
        broken = {**self.environment(nvml_fails=1), "LD_LIBRARY_PATH": f"{FAKE}:{NVML}"}
        done = self.good(*self.BENCH, "--energy", environment=broken)
        self.assertRegex(done.stderr, "no energy is measured: NVML cannot be started")
        self.assertRegex(done.stdout, r"- +- +\d+ of \d+")
        row, = self.json(*self.BENCH, "--energy", environment=broken)["rows"]
        self.assertIsNone(row["sparse_mj"])

    def test_what_is_no_text(self):
        words = [*self.EMBED]
        words[3] = "broken"
        self.fails(words, 4, r"line 1\b.*UTF-8")

    def test_a_rank_has_its_own(self):
        """Of several devices that of its number on the machine; where there is one alone, that."""
        for devices, local, opens in (1, 0, 1), (1, 1, 1), (2, 1, 1), (2, 2, 0):
            with self.subTest(devices=devices, local=local):
                rank = {"RANK": "1", "WORLD_SIZE": "3", "LOCAL_RANK": str(local)}
                done = run("train", "model", "out", "--text", "texts", "--comm", "mpi",
                           "--device", "cuda", cwd=self.folder,
                           environment=self.environment(devices=devices) | rank)
                self.assertEqual("there are fewer devices" not in done.stderr, opens, done.stderr)
                self.assertNotEqual(done.returncode, 0)  # one is no world of three

    def test_shapes_that_come_again(self):
        """Run from graphs, once they came twice; none is left."""
        report = self.folder / "report"
        found = self.json("bench", "--model", "bert-tiny", "--batch", "1,2", "--seq", "16",
                          "--device", "cuda", "--rounds", "3", "--min-ms", "1",
                          environment=self.environment(report=report))
        self.assertEqual([row["sparse_layers"] for row in found["rows"]], [12, 12])
        counts = one_object('{"version": 1, ' + report.read_text()[1:])
        self.assertEqual((counts["captures"], counts["left"]), (4, 0))
        self.assertGreater(counts["launches"], 4)


if __name__ == "__main__":
    unittest.main()
