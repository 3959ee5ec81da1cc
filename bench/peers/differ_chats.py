#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Chat templates as sparse24 and as transformers run them, on random conversations: the same text
and the same ids, or both refuse it. Not needed by anything else: what it found has become tests.

    python bench/peers/differ_chats.py FILE.jinja… [--conversations 500] [--seed 0]

Run by a Python that has transformers and sparse24. Conversations have a system's message or a
developer's, turns of several rounds, calls of tools and what these give back, thoughts, texts in
parts, tools with nested parameters, documents, and the variables that published templates read.
What looks like a special token in a message is text to sparse24 and a token to transformers, so ids
are compared where no message has one. A template that sparse24 refuses is told by its sentence.
Exits with 1 where a conversation differs; --seed and its number make it again.
"""
import argparse
import collections
import json
import pathlib
import random
import re
import sys
import tempfile

import transformers

import sparse24

MARKS = re.compile(r"<[|｜][^<>]{1,40}?[|｜]>|\[/?[A-Z_]{2,20}\]|</?[a-z_]{1,20}>|<[A-Z_]{2,20}>|"
                   r"<</?SYS>>|\]~[a-z!]*~?\[|\[e~\[")
WORDS = ["Hi", "tell", "me", "of", "Zürich", "  ", "\n", "\n\n", "\t", "'", '"', "<b>", "&amp;",
         "{", "}", "{{ x }}", "{% if %}", "日本", "😀", "e\u0301", "\\", "\\n", "/", "\u2028", "\x7f",
         "1.5", "-3", "#", "<think>", "</think>", "<|im_end|>", "[INST]", "<tool_call>",
         "</tool_call>", "None", "True"]


def letters():
    out, more = [], 0x100
    for byte in range(256):
        plain = 0x21 <= byte <= 0x7e or 0xa1 <= byte <= 0xac or byte >= 0xae
        out.append(chr(byte if plain else more))
        more += not plain
    return out


def write_folder(folder, template):
    """A tokenizer of bytes, in which the template's marks are special tokens."""
    special = sorted({"<s>", "</s>", *MARKS.findall(template)})
    tokenizer = {"version": "1.0", "truncation": None, "padding": None, "normalizer": None,
                 "added_tokens": [{"id": 256 + i, "content": mark, "special": True,
                                   "single_word": False, "lstrip": False, "rstrip": False,
                                   "normalized": False} for i, mark in enumerate(special)],
                 "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False,
                                   "trim_offsets": True, "use_regex": True},
                 "post_processor": None, "decoder": {"type": "ByteLevel", "add_prefix_space": True,
                                                     "trim_offsets": True, "use_regex": True},
                 "model": {"type": "BPE", "dropout": None, "unk_token": None, "merges": [],
                           "continuing_subword_prefix": None, "end_of_word_suffix": None,
                           "fuse_unk": False, "byte_fallback": False,
                           "vocab": {letter: i for i, letter in enumerate(letters())}}}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>",
         "model_max_length": 1 << 20}))
    (folder / "chat_template.jinja").write_text(template)
    return special


class Draw(random.Random):
    def flag(self, of=2):
        return self.randrange(of) == 0

    def text(self, most=8):
        return "".join(self.choice(["", " "]) + self.choice(WORDS)
                       for _ in range(self.randrange(most + 1)))

    def content(self):
        if not self.flag(6):
            return self.text()
        return [{"type": "text", "text": self.text()} for _ in range(self.randrange(1, 4))]

    def value(self, depth=2):
        kinds = [lambda: self.text(3), lambda: self.randrange(-9, 99), lambda: 1.5,
                 lambda: self.flag(), lambda: None]
        if depth:
            kinds += [lambda: [self.value(depth - 1) for _ in range(self.randrange(3))],
                      lambda: self.object(depth - 1)]
        return self.choice(kinds)()

    def object(self, depth=2):
        return {self.choice(["a", "city", "unit", "ünit", "n", "list"]): self.value(depth)
                for _ in range(self.randrange(4))}

    def schema(self, depth=2):
        kind = self.choice(["string", "number", "integer", "boolean", "array", "object", "null",
                            ["string", "null"]])
        found = {"type": kind}
        if self.flag():
            found["description"] = self.text()
        if kind == "string" and self.flag():
            found["enum"] = ["a", "b"]
        if self.flag(5):
            found["default"] = self.value(0)
        if self.flag(6):
            found["nullable"] = True
        if kind == "array":
            found["items"] = self.schema(depth - 1) if depth else {"type": "string"}
        if kind == "object" and depth:
            found |= self.parameters(depth - 1)
        if self.flag(9):
            found = {"anyOf": [{"type": "string"}, {"type": "integer"}]}
        return found

    def parameters(self, depth=2):
        names = self.sample(["city", "unit", "n", "when"], self.randrange(4))
        found = {"type": "object", "properties": {name: self.schema(depth) for name in names}}
        if self.flag():
            found["required"] = names[:self.randrange(len(names) + 1)]
        return found

    def tool(self):
        function = {"name": self.choice(["look", "get_weather", "f2"]), "description": self.text(),
                    "parameters": self.parameters()}
        if self.flag(8):
            function["return"] = {"type": "string", "description": "what it found"}
        return {"type": "function", "function": function}

    def calls(self):
        return [{"id": self.choice(["abcdef123", "call_1", "9"]), "type": "function",
                 "function": {"name": self.choice(["look", "f2"]),
                              "arguments": self.object() if not self.flag(5)
                              else json.dumps(self.object())}}
                for _ in range(self.choice([1, 1, 1, 2]))]

    def answer(self):
        found = {"role": "assistant", "content": self.content()}
        if self.flag(3):
            found["reasoning_content"] = found["thinking"] = self.text()
        if self.flag(6):
            found["content"] = f"<think>{self.text()}</think>{self.text()}"
        if self.flag(3):
            found["tool_calls"] = self.calls()
            found["content"] = self.choice([None, "", self.text(), self.content()])
            if self.flag(8):
                del found["content"]
        return found

    def conversation(self):
        messages = []
        if self.flag():
            messages.append({"role": self.choice(["system", "system", "developer"]),
                             "content": self.content()})
        for _ in range(self.randrange(1, 4)):
            messages.append({"role": "user", "content": self.content()})
            if self.flag(9):
                continue
            while True:
                messages.append(self.answer())
                calls = messages[-1].get("tool_calls", [])
                for call in calls:
                    messages.append({"role": "tool", "content": self.content(),
                                     "name": call["function"]["name"], "tool_call_id": call["id"]})
                if not calls or self.flag(3):
                    break
        if self.flag(3):
            messages.append({"role": "user", "content": self.text()})
        return messages

    def variables(self):
        found = {"add_generation_prompt": self.flag()}
        if self.flag():
            found["tools"] = [self.tool() for _ in range(self.randrange(1, 4))]
        for name, values in (("enable_thinking", [True, False]), ("thinking", [True, False]),
                             ("reasoning_effort", ["low", "high", "none"]),
                             ("documents", [[{"title": "a", "text": self.text()}]]),
                             ("date_string", ["26 Jul 2024"]), ("preserve_thinking", [True]),
                             ("builtin_tools", [["python"], ["browser", "python"]]),
                             ("tools_in_user_message", [True, False]),
                             ("xml_tools", [[]]), ("model_identity", ["You are X."]),
                             ("custom_instructions", ["Be brief."]), ("system_message", ["x"])):
            if self.flag(6):
                found[name] = self.choice(values)
        return found


def theirs(tokenizer, messages, variables, tokenize):
    try:
        found = tokenizer.apply_chat_template(messages, tokenize=tokenize, return_dict=False,
                                              **variables)
        return "ran", found
    except Exception as error:  # any kind: the template's own, or what Python says of it
        return "refused", f"{type(error).__name__}: {error}"


def ours(make, messages, variables):
    try:
        return "ran", make(messages, **variables)
    except (ValueError, sparse24.Error) as error:
        return "refused", str(error)


def differs(a, b):
    return a[0] != b[0] or (a[0] == "ran" and a[1] != b[1])


def show(a, b):
    if a[0] == b[0] == "ran":
        at = next((i for i, (x, y) in enumerate(zip(a[1], b[1])) if x != y),
                  min(len(a[1]), len(b[1])))
        a, b = [(kind, part[max(0, at - 60):at + 60]) for kind, part in (a, b)]
    print(f"    transformers {a}\n    sparse24     {b}"[:900])


def run_template(path, options):
    template = path.read_text()
    with tempfile.TemporaryDirectory() as folder:
        special = write_folder(pathlib.Path(folder), template)
        tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
        try:
            chat = sparse24.Chat(folder)
        except sparse24.Error as error:
            print(f"{path.name}: {str(error).replace(folder + '/', '')}")
            return 0
        counts = collections.Counter()
        for number in range(options.first, options.first + options.conversations):
            draw = Draw(f"{options.seed} {number}")
            messages, variables = draw.conversation(), draw.variables()
            a = theirs(tokenizer, messages, variables, False)
            b = ours(chat.render, messages, variables)
            counts[a[0]] += 1
            told = json.dumps([messages, variables], ensure_ascii=False)
            if not differs(a, b) and a[0] == "ran" and not any(mark in told for mark in special):
                a = theirs(tokenizer, messages, variables, True)
                b = ours(chat.encode, messages, variables)
                counts["ids"] += 1
            if differs(a, b):
                counts["differ"] += 1
                if counts["differ"] <= options.show:
                    print(f"{path.name} {number}")
                    show(a, b)
                    if options.verbose:
                        print(told)
        print(f"{path.name}: {counts['ran']} ran, {counts['ids']} of them to ids, "
              f"{counts['refused']} refused, {counts['differ']} differ", flush=True)
        return counts["differ"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("templates", nargs="+", type=pathlib.Path)
    parser.add_argument("--conversations", type=int, default=500)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, default=2, help="conversations that differ, told whole")
    parser.add_argument("--verbose", action="store_true", help="with their messages")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    sys.exit(any([run_template(path, options) for path in options.templates]))


if __name__ == "__main__":
    main()
