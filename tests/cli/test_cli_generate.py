# SPDX-License-Identifier: Apache-2.0
"""generate: greedy texts against GPT-2 and Llama in plain Python; what is drawn; text that comes in
pieces of characters, stops, ends, interruptions and refusals on a model whose next tokens are
known."""
import json
import os
import random
import signal
import subprocess
import time
import unittest

from cli_case import BUILD, PROGRAM, Scratch, clean_environment, one_object, run
import test_cli_eval
from plain_language import Plain
from test_cli_train_ends import write_llama
from test_cli_train_sets import randomise

FAKE = BUILD / "tests" / "fake"
LETTERS = test_cli_eval.LETTERS
PROMPTS = ("abca", "c", "b ab")


def make(folder):
    test_cli_eval.write_gpt2(folder / "gpt2", width=8)
    write_llama(folder / "llama", width=32)
    for name in ("gpt2", "llama"):
        randomise(folder / name, 3)
    (folder / "prompts").write_text("".join(f"{p}\n" for p in PROMPTS))
    (folder / "ids").write_text("".join(
        " ".join(str(LETTERS.index(c)) for c in p) + "\n" for p in PROMPTS))
    assert run("prune", "llama", "llama-24", "--packed", cwd=folder).returncode == 0


def plain_text(model, prompt, count):
    ids = [LETTERS.index(c) for c in prompt]
    for _ in range(count):
        ids.append(min(range(len(LETTERS)), key=lambda i: model.losses([*ids, i])[-1]))
    return "".join(LETTERS[i] for i in ids[len(prompt):])


class Generate(Scratch):
    make = staticmethod(make)

    def test_greedy_texts_are_the_plain_ones(self):
        for name in ("gpt2", "llama"):
            model = Plain(self.folder / name)
            found = self.json("generate", name, "--input", "prompts", "--max-new", "8")
            for prompt, given in zip(PROMPTS, found["prompts"]):
                self.assertEqual(given, {"prompt_tokens": len(prompt), "tokens": 8,
                                         "text": plain_text(model, prompt, 8), "stop": "length"})

    def test_one_prompt_is_a_text_and_several_are_lines(self):
        texts = [p["text"] for p in
                 self.json("generate", "llama", "--input", "prompts", "--max-new", "6")["prompts"]]
        done = self.good("generate", "llama", "--input", "-", "--max-new", "6",
                         text="\n".join(PROMPTS))
        self.assertEqual(done.stdout, "".join(t.replace("\n", "\\n") + "\n" for t in texts))
        self.assertRegex(done.stderr, r"9 prompt tokens in .*, 18 new tokens, .* tokens/s")
        for prompt, text in zip(PROMPTS, texts):
            done = self.good("generate", "llama", "--prompt", prompt, "--max-new", "6", "--quiet")
            self.assertEqual((done.stdout, done.stderr), (text + "\n", ""))

    def test_weights_in_the_order_of_the_kernels(self):
        """Query, key and value of grouped heads too are used where the file has them."""
        done = run("pack", "llama-24", "llama-cpu", "--layout", "cpu", cwd=self.folder)
        if done.returncode:
            self.skipTest("this CPU has no layout of its own")
        words = ("--input", "prompts", "--max-new", "8", "--sparse", "--dtype", "f32")
        self.good("pack", "llama-24", "llama-i4", "--quantize", "int4-g64")
        self.good("pack", "llama-24", "llama-i4-cpu", "--quantize", "int4-g64", "--layout", "cpu")
        for names in (("llama-24", "llama-cpu"), ("llama-i4", "llama-i4-cpu")):
            texts = [[p["text"] for p in self.json("generate", name, *words)["prompts"]]
                     for name in names]
            self.assertEqual(texts[0], texts[1])

    def test_keys_and_values_in_bytes(self):
        def rows(*words):
            found = self.json("generate", "llama", "--input", "prompts", "--max-new", "12",
                              "--logprobs", "1", *words)["prompts"]
            return [row["logprobs"][0]["logprob"] for row in found]
        exact = rows()
        for dtype, bound in (("i8", 0.05), ("e4m3", 0.3)):
            found = rows("--cache-dtype", dtype)
            self.assertNotEqual(found, exact)
            for one, other in zip(found, exact):
                self.assertAlmostEqual(one, other, delta=bound)

    def test_log_probabilities(self):
        """Of each token and of the likeliest in its place, by the model's own logits."""
        words = ("generate", "llama", "--prompt", "abca", "--max-new", "4", "--logprobs", "3",
                 "--temperature", "2", "--repeat-penalty", "1.5", "--seed", "5")
        found, = self.json(*words)["prompts"]
        model, ids = Plain(self.folder / "llama"), [LETTERS.index(c) for c in "abca"]
        self.assertEqual(len(found["logprobs"]), 4)
        for rate in found["logprobs"]:
            losses = [model.losses([*ids, i])[-1] for i in range(len(LETTERS))]
            order = sorted(range(len(LETTERS)), key=lambda i: losses[i])
            self.assertAlmostEqual(rate["logprob"], -losses[rate["id"]], 4)
            self.assertEqual([t["id"] for t in rate["top"]], order[:3])
            for top in rate["top"]:
                self.assertAlmostEqual(top["logprob"], -losses[top["id"]], 4)
            ids.append(rate["id"])
        self.refusals([
            ("too many", [*words[:6], "--logprobs", "1001"], 2,
             r"--logprobs: 1001 is more than 1000"),
        ])
        done = run(*words, cwd=self.folder)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("option --logprobs is for --json", done.stderr)
        many = [*words]
        many[many.index("3")] = "1000"
        found, = self.json(*many)["prompts"]
        self.assertEqual(len(found["logprobs"][0]["top"]), len(LETTERS))

    def test_ids_in_and_out(self):
        texts = self.json("generate", "gpt2", "--input", "prompts", "--max-new", "5")["prompts"]
        ids = [[LETTERS.index(c) for c in t["text"]] for t in texts]
        (self.folder / "gpt2/tokenizer.json").unlink()
        words = ("generate", "gpt2", "--input", "ids", "--ids", "--max-new", "5")
        found = self.json(*words)["prompts"]
        self.assertEqual([p["ids"] for p in found], ids)
        self.assertNotIn("text", found[0])
        self.assertEqual(self.good(*words).stdout,
                         "".join(" ".join(map(str, line)) + "\n" for line in ids))

    def test_more_prompts_than_go_on_at_once(self):
        chance = random.Random(5)
        prompts = ["".join(chance.choices(LETTERS[:3], k=chance.randint(1, 9))) for _ in range(40)]
        (self.folder / "many").write_text("\n".join(prompts))
        found = self.json("generate", "llama", "--input", "many", "--max-new", "4")["prompts"]
        self.assertEqual([p["prompt_tokens"] for p in found], [len(p) for p in prompts])
        for i in (0, 15, 16, 39):
            alone = self.json("generate", "llama", "--prompt", prompts[i], "--max-new", "4")
            self.assertEqual(alone["prompts"][0], found[i])
        for texts in (1, 3, 4096):
            few = self.json("generate", "llama", "--input", "many", "--max-new", "4",
                            "--texts", texts)
            self.assertEqual(few["prompts"], found)
        self.refusals([("too many", ["generate", "llama", "--input", "many", "--texts", "4097"], 2,
                        r"option --texts: 4097 is more than 4096")])

    def test_the_model_has_no_more_positions(self):
        found = self.json("generate", "llama", "--prompt", "abcabcabcabc")["prompts"][0]
        self.assertEqual((found["tokens"], found["stop"]), (5, "length"))
        found = self.json("generate", "llama", "--prompt", "abcabcabcabcabca")["prompts"][0]
        self.assertEqual((found["tokens"], found["stop"]), (1, "length"))

    def test_what_is_drawn(self):
        def drawn(*more, seed=7):
            words = ("generate", "gpt2", "--input", "prompts", "--temperature", "2", "--seed",
                     seed, *more)
            return [p["text"] for p in self.json(*words)["prompts"]]
        first = drawn()
        self.assertEqual(drawn(), first)
        self.assertEqual(drawn("--threads", "1"), first)
        self.assertNotEqual(drawn(seed=8), first)
        greedy = [p["text"] for p in
                  self.json("generate", "gpt2", "--input", "prompts")["prompts"]]
        self.assertNotEqual(first, greedy)
        for way in (("--top-k", "1"), ("--top-p", "1e-9"), ("--min-p", "1")):
            self.assertEqual(drawn(*way), greedy)

    def test_sparse_and_dense_and_dtypes(self):
        words = ("generate", "llama-24", "--prompt", "abca", "--max-new", "6")
        sparse = self.good(*words, "--sparse")
        self.assertIn("7 of 7 2:4 layers ran 2:4", sparse.stderr)
        self.assertEqual(self.good(*words, "--dense").stdout, sparse.stdout)
        for dtype in ("bf16", "i8"):
            found = self.json(*words, "--dtype", dtype, "--sparse")
            self.assertEqual(found["prompts"][0]["tokens"], 6)
            self.assertGreater(found["weight_bytes"], 0)
            self.assertGreater(found["peak_bytes"], found["weight_bytes"])
            for field in ("prefill_ms", "decode_ms", "tokens_per_second"):
                self.assertGreater(found[field], 0)


# Tokens at byte level in the order in which the model says them, by its last norm alone; where none
# may come twice, a text goes through them from the first.
ORDER = ["x", "\u0120y", "\u00c3", "\u00a9", "z", "\u010a", "w", "\u00e2", "\u0124", "v", "u",
         "\u00f0", "A", "t"]
TEXT = "x y\u00e9z\nw\ufffdvu\ufffdAt"  # two of them begin characters that do not go on
WIDTH = 8
ONCE = ("--repeat-penalty", "1e6")


def make_order(folder):
    count = len(ORDER)
    rows = [[float(count - i)] + [0.0] * (WIDTH - 1) for i in range(count)]
    test_cli_eval.write_gpt2(folder / "gpt2", width=WIDTH)
    config = json.loads((folder / "gpt2/config.json").read_text())
    tensors = {"transformer.wte.weight": ([count, WIDTH], sum(rows, [])),
               "transformer.ln_f.bias": ([WIDTH], [1.0] + [0.0] * (WIDTH - 1))}
    old = test_cli_eval.constant
    tensors |= old("transformer.wpe.weight", [4096, WIDTH])
    tensors |= old("transformer.ln_f.weight", [WIDTH])
    for name, rows, cols in (("attn.c_attn", WIDTH, 3 * WIDTH), ("attn.c_proj", WIDTH, WIDTH),
                             ("mlp.c_fc", WIDTH, 4 * WIDTH), ("mlp.c_proj", 4 * WIDTH, WIDTH)):
        tensors |= old(f"transformer.h.0.{name}.weight", [rows, cols], 0.1)
        tensors |= old(f"transformer.h.0.{name}.bias", [cols])
    for name in ("ln_1", "ln_2"):
        tensors |= old(f"transformer.h.0.{name}.weight", [WIDTH], 1.0)
        tensors |= old(f"transformer.h.0.{name}.bias", [WIDTH])
    test_cli_eval.write_model(folder / "order", {**config, "vocab_size": count,
                                                 "n_positions": 4096}, tensors)
    (folder / "order/tokenizer.json").write_text(json.dumps(
        {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
         "model": {"type": "BPE", "vocab": {t: i for i, t in enumerate(ORDER)}, "merges": []}}))
    for name, text in (("empty", ""), ("gap", "x\n\nx\n"), ("bad", "1 2\n1 99\n")):
        (folder / name).write_text(text)
    write_llama(folder / "long")
    randomise(folder / "long", 3)
    path = folder / "long/config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()),
                                "max_position_embeddings": 1 << 18}))


class Texts(Scratch):
    make = staticmethod(make_order)

    def one(self, *more, **options):
        words = ("generate", "order", "--prompt", "t", *ONCE)
        return self.json(*words, *more, **options)["prompts"][0]

    def test_bytes_become_characters(self):
        count = len(ORDER) - 1  # the prompt has come already
        self.assertEqual(self.one("--max-new", count)["text"], TEXT[:-1])
        done = self.good("generate", "order", "--prompt", "t", *ONCE, "--max-new", count)
        self.assertEqual(done.stdout, TEXT[:-1] + "\n")
        # Cut within a character.
        self.assertEqual(self.one("--max-new", "3")["text"], "x y\ufffd")
        self.assertEqual(self.one("--max-new", "4")["text"], "x y\u00e9")

    def test_only_whole_characters_come(self):
        """What is there when the second token of a character has not come: nothing of it."""
        reader, writer = os.pipe()
        process = subprocess.Popen(
            [PROGRAM, "generate", "order", "--prompt", "t", *ONCE, "--max-new", "13"],
            cwd=self.folder, env=clean_environment(), stdout=writer, stderr=subprocess.DEVNULL)
        os.close(writer)
        pieces = []
        while piece := os.read(reader, 1 << 16):
            pieces.append(piece.decode())
        os.close(reader)
        self.assertEqual(process.wait(), 0)
        self.assertEqual("".join(pieces), TEXT[:-1] + "\n")

    def test_stops(self):
        for stop, text, tokens in (("y", "x ", 2), (" y", "x", 2), ("\u00e9z", "x y", 5),
                                   ("x y\u00e9z\nw", "", 7), ("\nw", "x y\u00e9z", 7),
                                   ("z", "x y\u00e9", 5)):
            with self.subTest(stop=stop):
                self.assertEqual(self.one("--stop", stop),
                                 {"prompt_tokens": 1, "tokens": tokens, "text": text,
                                  "stop": "stop"})
                done = self.good("generate", "order", "--prompt", "t", *ONCE, "--stop", stop)
                self.assertEqual(done.stdout, text + "\n")
        # What may have begun a stop, and did not, is there.
        found = self.one("--stop", "z\nv", "--max-new", "7")
        self.assertEqual((found["text"], found["stop"]), ("x y\u00e9z\nw", "length"))
        done = self.good("generate", "order", "--prompt", "t", *ONCE, "--stop", "z\nv",
                         "--max-new", "6")
        self.assertEqual(done.stdout, "x y\u00e9z\n\n")

    def test_the_models_own_end(self):
        config = self.folder / "order/generation_config.json"
        for ids in (4, [9, 4]):
            config.write_text(json.dumps({"eos_token_id": ids}))
            self.assertEqual(self.one(), {"prompt_tokens": 1, "tokens": 5, "text": "x y\u00e9",
                                          "stop": "eos"})
        (self.folder / "ids").write_text(f"{len(ORDER) - 1}\n")
        done = self.good("generate", "order", "--input", "ids", "--ids", *ONCE)
        self.assertEqual(done.stdout, "0 1 2 3 4\n")
        config.write_text('{"eos_token_id": "z"}')
        self.assertRegex(run("generate", "order", "--prompt", "t", cwd=self.folder).stderr,
                         "generation_config.json: \"eos_token_id\" is neither an id nor a list")

    def test_lines_of_several(self):
        (self.folder / "two").write_text("t\nz\n")
        done = self.good("generate", "order", "--input", "two", *ONCE, "--max-new", "6")
        self.assertEqual(done.stdout, "x y\u00e9z\\n\nx y\u00e9\\nw\n")

    def test_it_begins_anew_where_a_blank_is_lost_at_the_front(self):
        """A tokenizer of Llama's kind drops the blank before a text's first word, and no other."""
        blank = "\u2581"
        vocab = {t: i for i, t in enumerate([blank + "a", "b", blank, "<0xC3>", "<0xA9>", "<unk>",
                                             "c", "d", "e", "f", "g", "h", "i", "j"])}
        (self.folder / "order/tokenizer.json").write_text(json.dumps(
            {"normalizer": {"type": "Sequence", "normalizers": [
                {"type": "Prepend", "prepend": blank},
                {"type": "Replace", "pattern": {"String": " "}, "content": blank}]},
             "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": True,
                       "byte_fallback": True, "vocab": vocab, "merges": []}}))
        found = self.json("generate", "order", "--prompt", "j", *ONCE, "--max-new", "4")
        # The prompt is a blank and a letter, so that neither comes again.
        self.assertEqual(found["prompts"][0]["text"], " ab\u00e9")

    # ---- interrupted ---------------------------------------------------------------------------

    def interrupted(self, *more, prompts=("--prompt", "abca")):
        process = subprocess.Popen(
            [PROGRAM, "generate", "long", *prompts, "--max-new", "100000", *more],
            cwd=self.folder, env=clean_environment(), stdout=subprocess.PIPE,
            stderr=subprocess.PIPE)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        return process

    def test_an_interruption_leaves_what_is_there(self):
        process = self.interrupted()
        first = process.stdout.read(20)
        process.send_signal(signal.SIGINT)
        rest, error = process.communicate()
        self.assertEqual(process.returncode, 130, error)
        whole = (first + rest).decode()
        self.assertTrue(whole.endswith("\n"))
        self.assertLess(len(whole), 100000)
        self.assertIn("interrupted", error.decode())

    def test_an_interruption_ends_with_json(self):
        """Nothing tells from without when the text begins: it is given more and more time."""
        (self.folder / "three").write_text("abca\nb\nc\n")
        found = {}
        for seconds in (1, 4, 16, 64):
            process = self.interrupted("--json", "--stop", "never", "--texts", "2",
                                       prompts=("--input", "three"))
            process.stderr.close()
            process.stderr = None
            time.sleep(seconds)
            process.send_signal(signal.SIGINT)
            said = process.communicate()[0].decode()
            if said and "prompts" in (found := one_object(said)):
                break
        self.assertEqual(process.returncode, 130)
        self.assertEqual([p["prompt_tokens"] for p in found["prompts"]], [4, 1, 1])
        for prompt in found["prompts"]:
            self.assertEqual(prompt["stop"], "interrupted")
            self.assertEqual(len(prompt["text"]), prompt["tokens"])
        self.assertEqual(found["prompts"][2]["tokens"], 0)  # it waited

    # ---- refused -------------------------------------------------------------------------------

    def test_refusals(self):
        base = ("generate", "order", "--prompt", "x")
        file = ("generate", "order", "--input")
        self.refusals([
            ("no prompt", base[:2], 2, "generate needs --prompt TEXT or --input FILE"),
            ("two", [*base, "--input", "gap"], 2, "--prompt and --input exclude each other"),
            ("ids of a text", [*base, "--ids"], 2, "option --ids is for --input"),
            ("stop of ids", [*file, "bad", "--ids", "--stop", "x"], 2,
             "option --stop is not for --ids"),
            ("drawn", [*base, "--top-k", "3"], 2, "option --top-k is for --temperature"),
            ("temperature", [*base, "--temperature", "-1"], 2, "--temperature: '-1' is not"),
            ("top-p", [*base, "--temperature", "1", "--top-p", "1.5"], 2,
             "option --top-p: 1.5 is over 1"),
            ("top-p 0", [*base, "--temperature", "1", "--top-p", "0"], 2, "--top-p: '0' is not"),
            ("min-p", [*base, "--temperature", "1", "--min-p", "2"], 2,
             "option --min-p: 2 is over 1"),
            ("penalty", [*base, "--repeat-penalty", "0"], 2, "--repeat-penalty: '0' is not"),
            ("max-new", [*base, "--max-new", "0"], 2, "--max-new: '0' is not"),
            ("dtype", [*base, "--dtype", "f16"], 5,
             "a model runs in f16 on a GPU only; on the CPU f32, bf16 or i8 is expected"),
            ("no dtype", [*base, "--dtype", "f8"], 2, "--dtype: 'f8' is not"),
            ("no cache", [*base, "--cache-dtype", "bf16"], 2, "--cache-dtype: 'bf16' is not"),
            ("no line", [*file, "empty"], 4, "empty: there is no prompt in it"),
            ("empty line", [*file, "gap"], 4,
             "gap: line 1 has 0 tokens; 1 to 4096, the model's positions, fit"),
            ("empty prompt", [*base[:3], ""], 2, "--prompt"),
            ("long", [*base[:3], "x" * 4097], 2,
             "the prompt has 4097 tokens; 1 to 4096, the model's positions, fit"),
            ("ids", [*file, "bad", "--ids"], 4, "bad: line 1"),
            ("no file", [*file, "nowhere"], 3, "nowhere"),
            ("no model", ["generate", "nowhere", "--prompt", "x"], 3, "nowhere"),
        ])

    def test_a_model_without_such_a_head(self):
        test_cli_eval.write_vit(self.folder / "vit")
        done = run("generate", "vit", "--prompt", "x", cwd=self.folder)
        self.assertEqual(done.returncode, 5)
        self.assertIn("vit (vit) has no head for this task; a language model, whose head gives the "
                      "next token, is expected", done.stderr)


@unittest.skipUnless((FAKE / "libsparse24-cuda.so.0").exists(), "no modules in this build")
class Device(Scratch):
    """On a device that is none (tests/support/fake_device.c), whose likeliest token after a text is
    the text's number in the pass."""
    make = staticmethod(make)

    def test_texts(self):
        environment = {"LD_LIBRARY_PATH": str(FAKE), "XDG_CACHE_HOME": str(self.folder / "cache"),
                       "S24_FAKE_REPORT": str(self.folder / "report")}
        for dtype in ("f16", "bf16", "i8", "e4m3"):
            found = self.json("generate", "llama-24", "--input", "prompts", "--max-new", "6",
                              "--device", "cuda", "--dtype", dtype, environment=environment)
            self.assertEqual([p["text"] for p in found["prompts"]],
                             [LETTERS[i] * 6 for i in range(len(PROMPTS))])
            report = one_object('{"version": 1, ' + (self.folder / "report").read_text()[1:])
            self.assertEqual(report["left"], 0)


if __name__ == "__main__":
    unittest.main()
