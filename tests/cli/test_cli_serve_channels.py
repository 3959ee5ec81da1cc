# SPDX-License-Identifier: Apache-2.0
"""Answers in channels, as gpt-oss gives them: generate marks what an answer thinks, serve tells it
apart from what the answer says and from calls of tools, whole and streamed. The models are GPT-2s
whose positions alone choose the next token, so that an answer may be any."""
import json
import math
import struct
import unittest

from cli_case import Scratch
from cli_data import tensor, write
import test_cli_chat
from test_cli_serve import Server

START, CHANNEL, MESSAGE, END, CALL, CONSTRAIN, RETURN = SPECIAL = [
    "<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|call|>", "<|constrain|>", "<|return|>"]
FIRST = 256 + len(SPECIAL)  # of the tokens that are an answer's pieces of text
WIDTH, POSITIONS = 64, 400
TEMPLATE = """\
{%- for m in messages %}
    {%- if m.role == 'assistant' %}
        {%- if '<|channel|>' in m.content %}{{ raise_exception('marks in a message') }}{% endif %}
        {%- if m.tool_calls %}
            {%- if m.thinking %}
                {{- '<|start|>assistant<|channel|>analysis<|message|>' + m.thinking + '<|end|>' }}
            {%- endif %}
            {{- '<|start|>assistant to=functions.' + m.tool_calls[0].function.name }}
            {{- '<|channel|>commentary json<|message|>' }}
            {{- m.tool_calls[0].function.arguments|tojson + '<|call|>' }}
        {%- else %}
            {{- '<|start|>assistant<|channel|>final<|message|>' + m.content }}
            {{- '<|return|>' if loop.last and not add_generation_prompt else '<|end|>' }}
        {%- endif %}
    {%- else %}
        {{- '<|start|>' + m.role + '<|message|>' + m.content + '<|end|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}"""
THOUGHT, FINAL = [CHANNEL, "analysis", MESSAGE], [CHANNEL, "final", MESSAGE]
AGAIN = [END, START, "assistant"]
BEGUN = [*THOUGHT, "a", *AGAIN, " to=functions.look", CHANNEL, "commentary", MESSAGE, '{"a": ']
NEW = 56
LOOK = {"name": "look", "arguments": '{"a":[1,"x"]}'}
# name: (the answer's tokens, what it thinks, what it says, its calls, why it ends, generate's text)
ANSWERS = {
    "said": ([*THOUGHT, "We ", "think.", *AGAIN, *FINAL, "Yes", " \u00e9.", RETURN],
             "We think.", "Yes \u00e9.", [], "stop",
             "<think>\nWe think.\n</think>\n\nYes \u00e9."),
    "called": ([*THOUGHT, " Look! ", *AGAIN, CHANNEL, "commentary", " to=functions.look ",
                CONSTRAIN, "json", MESSAGE, '{"a": [1, ', '"x"]}', CALL],
               "Look!", None, [LOOK], "tool_calls",
               '<think>\n Look! \n</think>\n\n<tool_call>\n{"name": "look", "arguments": '
               '{"a": [1, "x"]}'),
    "to": ([*THOUGHT, "hm", *AGAIN, " to=", "functions.look", CHANNEL, "commentary", " json",
            MESSAGE, '{"a": [1, "x"]}', CALL],
           "hm", None, [LOOK], "tool_calls",
           '<think>\nhm\n</think>\n\n<tool_call>\n{"name": "look", "arguments": {"a": [1, "x"]}'),
    "begins": ([" to", "=functions.look", CHANNEL, "commentary", MESSAGE, '{"a": [1, "x"]}', CALL],
               None, None, [LOOK], "tool_calls",
               '<tool_call>\n{"name": "look", "arguments": {"a": [1, "x"]}'),
    "words": ([CHANNEL, "analysis", " to=python code", MESSAGE, "1 + 1", CALL],
              None, None, [{"name": "python", "arguments": "1 + 1"}], "tool_calls",
              '<tool_call>\n{"name": "python", "arguments": 1 + 1'),
    "much": ([*THOUGHT, "a", *AGAIN, CHANNEL, "commentary", MESSAGE, "I look. ", *AGAIN, *THOUGHT,
              "b", *AGAIN, *THOUGHT, *AGAIN, *FINAL, "One", *AGAIN, *FINAL, "two", END, START,
              "assistant to=functions.look", CHANNEL, "commentary", MESSAGE, '{"a": [1, "x"]}', END,
              *FINAL, "three", RETURN],
             "a\nb", "I look.\nOne\ntwo\nthree", [LOOK], "tool_calls",
             "<think>\na\n</think>\n\nI look. <think>\nb\n</think>\n\n<think>\n\n</think>\n\nOne\n"
             'two<tool_call>\n{"name": "look", "arguments": {"a": [1, "x"]}}\n</tool_call>\nthree'),
    "plain": (["\n", "To", " say", " it", RETURN], None, "\nTo say it", [], "stop", "\nTo say it"),
    "short": ([MESSAGE, "Yes", RETURN], None, "Yes", [], "stop", "Yes"),
    "marks": ([*FINAL, "<|end", "|>", "<think>", " a", RETURN], None, "<|end|><think> a", [],
              "stop", "<|end|><think> a"),
    "cut": ([*BEGUN, *["1"] * 50], "a", None,
            [{"name": "look", "arguments": '{"a": ' + "1" * (NEW - len(BEGUN))}], "length",
            '<think>\na\n</think>\n\n<tool_call>\n{"name": "look", "arguments": {"a": ' +
            "1" * (NEW - len(BEGUN)))}


def spelled(text):
    return "".join(test_cli_chat.letters()[byte] for byte in text.encode())


def prompt_tokens(message):
    """Of a conversation of one message, up to its answer."""
    return len(f"user{message}assistant".encode()) + 4


def make_one(folder, name, answer):
    """A folder of a GPT-2 that goes on with the answer after the message Hi."""
    pieces = sorted({part for part in answer if part not in SPECIAL})
    ids = {part: 256 + i for i, part in enumerate(SPECIAL)}
    ids.update({part: FIRST + i for i, part in enumerate(pieces)})
    words, begin = FIRST + len(pieces), prompt_tokens("Hi") - 1
    head, places = [[0.0] * WIDTH for _ in range(words)], [[0.0] * WIDTH for _ in range(POSITIONS)]
    for i, part in enumerate(answer):
        head[ids[part]][i] = 1.0
        places[begin + i][i] = 1000.0

    def floats(shape, values):
        return tensor("f32", shape, struct.pack(f"<{len(values)}f", *values))

    def zeros(*shape):
        return floats(shape, [0.0] * math.prod(shape))

    def ones():
        return floats([WIDTH], [1.0] * WIDTH)
    tensors = {"wte.weight": floats([words, WIDTH], sum(head, [])),
               "wpe.weight": floats([POSITIONS, WIDTH], sum(places, [])),
               "ln_f.weight": ones(), "ln_f.bias": zeros(WIDTH),
               "h.0.ln_1.weight": ones(), "h.0.ln_1.bias": zeros(WIDTH),
               "h.0.ln_2.weight": ones(), "h.0.ln_2.bias": zeros(WIDTH)}
    for layer, n, k in (("attn.c_attn", 3 * WIDTH, WIDTH), ("attn.c_proj", WIDTH, WIDTH),
                        ("mlp.c_fc", 4 * WIDTH, WIDTH), ("mlp.c_proj", WIDTH, 4 * WIDTH)):
        tensors[f"h.0.{layer}.weight"] = zeros(k, n)
        tensors[f"h.0.{layer}.bias"] = zeros(n)
    (folder / name).mkdir()
    write(folder / name / "model.safetensors", tensors)
    config = {"model_type": "gpt2", "n_embd": WIDTH, "n_layer": 1, "n_head": 4, "vocab_size": words,
              "n_positions": POSITIONS, "layer_norm_epsilon": 1e-5, "architectures":
              ["GPT2LMHeadModel"], "activation_function": "gelu_new", "n_inner": None}
    vocabulary = {letter: i for i, letter in enumerate(test_cli_chat.letters())}
    vocabulary.update({spelled(part): ids[part] for part in pieces})
    tokenizer = {"model": {"type": "BPE", "vocab": vocabulary, "merges": []},
                 "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
                 "decoder": {"type": "ByteLevel"},
                 "added_tokens": [{"id": ids[part], "content": part, "special": True}
                                  for part in SPECIAL]}
    for file, value in (("config", config), ("tokenizer", tokenizer), ("tokenizer_config", {})):
        (folder / name / f"{file}.json").write_text(json.dumps(value))
    (folder / name / "chat_template.jinja").write_text(TEMPLATE)


class Channels(Scratch):
    @staticmethod
    def make(folder):
        for name, (answer, *_) in ANSWERS.items():
            make_one(folder, name, answer)

    def body(self, model, **more):
        return {"model": model, "messages": [{"role": "user", "content": "Hi"}], "temperature": 0,
                "max_tokens": NEW, **more}

    def bare(self, calls):
        self.assertEqual(len({call["id"] for call in calls}), len(calls))
        return [call["function"] for call in calls]

    def test_generate(self):
        for name, (answer, _, _, _, why, text) in ANSWERS.items():
            with self.subTest(name):
                found = self.json("generate", name, "--chat", "--prompt", "Hi", "--max-new",
                                  str(NEW))["prompts"][0]
                self.assertEqual(found["prompt_tokens"], prompt_tokens("Hi"))
                self.assertEqual(found["text"], text)
                self.assertEqual(found["stop"], "length" if why == "length" else "eos")
                self.assertEqual(found["tokens"], min(NEW, len(answer)))

    def test_whole_answers(self):
        server = Server(self, *ANSWERS)
        for name, (_, thought, said, calls, why, _) in ANSWERS.items():
            with self.subTest(name):
                choice = server.good("/v1/chat/completions", self.body(name))["choices"][0]
                message = choice["message"]
                self.assertEqual(message.get("reasoning_content"), thought)
                self.assertEqual(message["content"], said)
                self.assertEqual(self.bare(message.get("tool_calls", [])), calls)
                self.assertEqual(choice["finish_reason"], why)

    def test_streams(self):
        server = Server(self, *ANSWERS)
        for name, (_, thought, said, calls, why, _) in ANSWERS.items():
            with self.subTest(name):
                status, _, text = server.ask("/v1/chat/completions", self.body(name, stream=True))
                self.assertEqual(status, 200, text)
                lines = [json.loads(line.removeprefix("data: "))
                         for line in text.split("\n\n") if line[:7] == "data: {"]
                deltas = [line["choices"][0]["delta"] for line in lines]
                found = [call for delta in deltas for call in delta.get("tool_calls", [])]
                self.assertEqual([call.pop("index") for call in found], list(range(len(calls))))
                self.assertEqual(self.bare(found), calls)
                for key, expected in (("reasoning_content", thought), ("content", said)):
                    self.assertEqual("".join(delta.get(key, "") for delta in deltas),
                                     expected or "")
                self.assertEqual(lines[-1]["choices"][0]["finish_reason"], why)

    def test_stops_and_other_routes(self):
        server = Server(self, "said")
        choice = server.good("/v1/chat/completions", self.body("said", stop="think"))["choices"][0]
        self.assertEqual(choice["message"], {"role": "assistant", "content": "",
                                             "reasoning_content": "We"})
        found = server.good("/v1/completions", {"prompt": "user" + "x" * 7, "temperature": 0})
        self.assertNotIn("\ufffd", found["choices"][0]["text"])

    def test_what_was_thought_and_called_goes_to_the_template(self):
        server = Server(self, "said")
        call = {"id": "1", "type": "function",
                "function": {"name": "look", "arguments": '{"a": 1}'}}
        user = {"role": "user", "content": "Hi"}
        for more in ({}, {"content": None}, {"content": ""}):
            messages = [user, {"role": "assistant", "reasoning_content": "hm", "tool_calls": [call],
                               **more}, {"role": "tool", "tool_call_id": "1", "content": "2"}]
            found = server.good("/v1/chat/completions", self.body("said", messages=messages))
            told = ('userHiassistantanalysishmassistant to=functions.lookcommentary json{"a": 1}'
                    "tool2assistant")
            self.assertEqual(found["usage"]["prompt_tokens"], len(told) + 3 + 4 + 4 + 3 + 1)


if __name__ == "__main__":
    unittest.main()
