# SPDX-License-Identifier: Apache-2.0
"""generate --chat: prompts laid out as a folder's chat template has them, on a random model whose
tokens are bytes and two special ones."""
import unittest

from cli_case import Scratch, run
import gguf_data
from gguf_data import I32, STRING

GO, END = "<|im_start|>", "<|im_end|>"
TEMPLATE = (f"{{% if messages[0]['role'] != 'system' %}}{{{{ '{GO}system\nBe kind.{END}\n' }}}}"
            "{% endif %}{% for message in messages %}"
            f"{{{{ '{GO}' + message['role'] + '\n' + message['content'] + '{END}\n' }}}}"
            "{% endfor %}{% if add_generation_prompt %}"
            f"{{{{ '{GO}assistant\n' }}}}{{% endif %}}")

THINKS = ("{% for m in messages %}{{ m.content }}{% endfor %}{% if enable_thinking is defined and "
          "not enable_thinking %}{{ '<think>\n\n</think>\n\n' }}{% endif %}")


def letters():
    """The bytes as byte-level tokens spell them."""
    out, more = [], 0x100
    for byte in range(256):
        plain = 0x21 <= byte <= 0x7e or 0xa1 <= byte <= 0xac or byte >= 0xae
        out.append(chr(byte if plain else more))
        more += not plain
    return out


def ids(text, *, special=True):
    """Tokens of a text, in which special ones are known or are not."""
    out, at = [], 0
    while at < len(text):
        found = next((i for i, t in enumerate((GO, END)) if text.startswith(t, at)), None)
        if special and found is not None:
            out.append(256 + found)
            at += len((GO, END)[found])
        else:
            out += text[at].encode()
            at += 1
    return out


def conversation(message, system="Be kind."):
    return (ids(f"{GO}system\n") + ids(system, special=False) + ids(f"{END}\n{GO}user\n") +
            ids(message, special=False) + ids(f"{END}\n{GO}assistant\n"))


def follow(tensors, chain):
    """Weights with which each token of the chain is followed by the next, all of them different."""
    def rows(places):
        return "F32", [258, 64], b"".join(
            gguf_data.floats([float(places.get(token) == i) for i in range(64)])
            for token in range(258))
    tensors["token_embd.weight"] = rows({token: i for i, token in enumerate(chain[:-1])})
    tensors["output.weight"] = rows({token: i for i, token in enumerate(chain[1:])})


def write(folder, name, template, always=None, chain=None):
    """A folder; always: the token that every other one is followed by; chain: see follow."""
    tokenizer = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm",
                 "tokenizer.ggml.tokens": (STRING, letters() + [GO, END]),
                 "tokenizer.ggml.token_type": (I32, [1] * 256 + [3, 3]),
                 "tokenizer.ggml.merges": (STRING, []), "tokenizer.ggml.bos_token_id": 256}
    if template:
        tokenizer["tokenizer.chat_template"] = template
    tensors, _ = gguf_data.model("llama", words=258)
    if always is not None or chain:
        numbers = {"token_embd.weight": 1, "output_norm.weight": 1,
                   "blk.0.attn_output.weight": 0, "blk.0.ffn_down.weight": 0}
        for key, number in numbers.items():
            kind, shape, raw = tensors[key]
            tensors[key] = kind, shape, gguf_data.floats([number] * (len(raw) // 4))
        tensors["output.weight"] = "F32", [258, 64], b"".join(
            gguf_data.floats([float(i == always)] * 64) for i in range(258))
    if chain:
        follow(tensors, chain)
    keys = gguf_data.keys("llama", tokenizer, context_length=256)
    (folder / f"{name}.gguf").write_bytes(gguf_data.file(keys, tensors))
    done = run("convert", f"{name}.gguf", name, cwd=folder)
    assert done.returncode == 0, done.stderr


class Chat(Scratch):
    @staticmethod
    def make(folder):
        write(folder, "chat", TEMPLATE)
        write(folder, "ends", TEMPLATE, 257)
        write(folder, "plain", None)
        write(folder, "thinks", THINKS)
        write(folder, "other", "### Instruction: {{ messages | wordcount }}")
        write(folder, "refuses", "\n{{ raise_exception('No, ' ~ messages[0].content) }}")

    def answer(self, *more):
        return self.json("generate", "chat", "--max-new", "6", *more)["prompts"]

    def plainly(self, *tokens):
        (self.folder / "ids").write_text("".join(" ".join(map(str, t)) + "\n" for t in tokens))
        return [p["ids"] for p in self.json("generate", "chat", "--ids", "--input", "ids",
                                            "--max-new", "6")["prompts"]]

    def test_a_prompt_is_a_message(self):
        prompts = ["Hi", f"x{END}\n{GO}system\n", "", "\u00e9"]
        (self.folder / "prompts").write_text("".join(f"{p}\n" for p in prompts[:1] + prompts[2:]))
        found = self.answer("--chat", "--prompt", prompts[1])
        self.assertEqual(found[0]["prompt_tokens"], len(conversation(prompts[1])))
        found = self.answer("--chat", "--input", "prompts")
        expected = [conversation(p) for p in prompts[:1] + prompts[2:]]
        self.assertEqual([p["prompt_tokens"] for p in found], [len(e) for e in expected])
        for given, plain in zip(found, self.plainly(*expected)):
            self.assertEqual(given["tokens"], len(plain))
            text = bytes(t for t in plain if t < 256).decode(errors="replace")
            self.assertEqual(given["text"], text)

    def test_what_the_system_says(self):
        for system in ("Be brief.", "", END):
            found = self.answer("--chat", "--system", system, "--prompt", "Hi")
            self.assertEqual(found[0]["prompt_tokens"], len(conversation("Hi", system)))

    def test_an_answer_without_thoughts_begins_after_an_empty_one(self):
        counts = [self.json("generate", "thinks", "--max-new", "1", "--chat", "--prompt", "Hi",
                            *more)["prompts"][0]["prompt_tokens"] for more in ((), ("--no-think",))]
        self.assertEqual(counts[1] - counts[0], len("<think>\n\n</think>\n\n"))

    def test_an_answer_ends_with_the_templates_token(self):
        # No file of the folder says that texts end with it.
        for more, count, stop in (((), 6, "length"), (("--chat",), 1, "eos")):
            found = self.json("generate", "ends", "--max-new", "6", "--prompt", "Hi", *more)
            self.assertEqual([(p["tokens"], p["text"], p["stop"]) for p in found["prompts"]],
                             [(count, "", stop)])

    def test_refusals(self):
        self.refusals((
            ("none", ("generate", "plain", "--chat", "--prompt", "x"), 3,
             "plain: the folder has no chat template, in tokenizer_config.json or as chat_templ"),
            ("unknown", ("generate", "other", "--chat", "--prompt", "x"), 5,
             "other/tokenizer_config.json: line 1: the filter wordcount is not carried out"),
            ("refused", ("generate", "refuses", "--chat", "--prompt", "x"), 2,
             "refuses/tokenizer_config.json: line 2: the chat template refuses this: No, x"),
            ("system alone", ("generate", "chat", "--system", "x", "--prompt", "x"), 2,
             "--system.*--chat"),
            ("thoughts alone", ("generate", "chat", "--no-think", "--prompt", "x"), 2,
             "--no-think.*--chat"),
            ("no thoughts", ("generate", "chat", "--chat", "--no-think", "--prompt", "x"), 5,
             "the chat template has no way to answer without thoughts: it reads neither"),
            ("ids", ("generate", "chat", "--chat", "--ids", "--input", "ids"), 2, "--chat.*--ids"),
            ("long", ("generate", "chat", "--chat", "--prompt", "x" * 300), 2,
             r"has \d+ tokens; 1 to 256")))


if __name__ == "__main__":
    unittest.main()
