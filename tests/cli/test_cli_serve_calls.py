# SPDX-License-Identifier: Apache-2.0
"""serve tells calls of tools apart from what an answer says, whole and streamed, by what the chat
template shows of a call; the models' tokens are parts of answers, each followed by the next."""
import json
import unittest
import unittest.mock

from cli_case import Scratch
import test_cli_chat
from test_cli_serve import Server

END = 257
FIRST = 200  # of tokens whose bytes no text here has
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
# What a template writes of a conversation: all texts, and calls in the model's way.
TOLD = ("{%% for m in messages %%}{{ m.content }}{%% for c in m.tool_calls %%}%s{%% endfor %%}"
        "{%% endfor %%}{{ '<|im_end|>' if not add_generation_prompt }}{{ '\\n' }}")
OBJECT = ('{"name": "{{ c.function.name }}", "%s": {{ c.function.arguments | tojson }}}')
WAYS = {
    "hermes": "<tool_call>\n" + OBJECT % "arguments" + "\n</tool_call>",
    "list": "[TOOL_CALLS] [" + OBJECT % "arguments" + "]",
    "named": "[TOOL_CALLS]{{ c.function.name }}[ARGS]{{ c.function.arguments | tojson }}",
    "llama": OBJECT % "parameters",
    "other": "<function>{{ c.function.name }}</function>"}
LOOK = {"name": "look", "arguments": '{"a":[1,"x"]}'}
FIND = {"name": "find", "arguments": "{}"}
# name: (way, the answer's tokens, what it says, its calls)
ANSWERS = {
    "one": ("hermes", ["<tool_", "call>\n", '{"name": "look", "argu', 'ments": {"a": [1, ',
                       '"x"]}}', "\n</tool", "_call>"], None, [LOOK]),
    "two": ("hermes", ["I look.", "\n<tool_call>",
                       '{"name": "look", "arguments": {"a": [1, "x"]}}', "</tool_call>\n",
                       '<tool_call>\n{"name": "find", "arguments": {}}\n',
                       "</tool_call>  "], "I look.", [LOOK, FIND]),
    "broken": ("hermes", ["<tool_call>", '{"name": '], '<tool_call>{"name": ', []),
    "none": ("hermes", ["Just ", "<tool", " words"], "Just <tool words", []),
    "listed": ("list", ["[TOOL_CALLS]", ' [{"name": "look", "arguments": {"a": [1, "x"]}}, ',
                        '{"name": "find", "arguments": "{}"}]'], None, [LOOK, FIND]),
    "named": ("named", ["[TOOL_CALLS]", "look", "[CALL_ID]abc", '[ARGS]{"a": [1, ', '"x"]}',
                        "[TOOL_CALLS]find[ARGS]{}"], None, [LOOK, FIND]),
    "llama": ("llama", ['{"name": "look", "para', 'meters": {"a": [1, "x"]}}', "; ",
                        '{"name": "find", "parameters": {}}'], None, [LOOK, FIND]),
    "spoken": ("llama", ["Say: ", '{"name": "look", "parameters": {}}'],
               'Say: {"name": "look", "parameters": {}}', []),
    "other": ("other", ["<function>look", "</function>"], "<function>look</function>", [])}


def spelled(text):
    return "".join(LETTERS[byte] for byte in text.encode())


LETTERS = test_cli_chat.letters()


def make(folder):
    for name, (way, parts, _, _) in ANSWERS.items():
        letters = list(LETTERS)
        for i, part in enumerate(parts):
            letters[FIRST + i] = spelled(part)
        with unittest.mock.patch.object(test_cli_chat, "letters", lambda made=letters: made):
            chain = [10, *range(FIRST, FIRST + len(parts)), END]
            test_cli_chat.write(folder, name, TOLD % WAYS[way], chain=chain)


class Calls(Scratch):
    make = staticmethod(make)

    def setUp(self):
        super().setUp()
        self.server = Server(self, *ANSWERS)

    def body(self, model, **more):
        return {"model": model, "messages": [{"role": "user", "content": "Hi"}], "temperature": 0,
                "max_tokens": 20, "tools": TOOLS, **more}

    def bare(self, calls):
        self.assertEqual(len({call["id"] for call in calls}), len(calls))
        self.assertEqual({call["type"] for call in calls}, {"function"} if calls else set())
        return [call["function"] for call in calls]

    def test_whole_answers(self):
        for name, (_, _, content, calls) in ANSWERS.items():
            with self.subTest(name):
                choice = self.server.good("/v1/chat/completions", self.body(name))["choices"][0]
                message = choice["message"]
                self.assertEqual(message["content"], content)
                self.assertEqual(self.bare(message.get("tool_calls", [])), calls)
                self.assertEqual(choice["finish_reason"], "tool_calls" if calls else "stop")

    def test_streams(self):
        for name, (_, _, content, calls) in ANSWERS.items():
            with self.subTest(name):
                status, _, text = self.server.ask("/v1/chat/completions",
                                                  self.body(name, stream=True))
                self.assertEqual(status, 200, text)
                lines = [json.loads(line.removeprefix("data: "))
                         for line in text.split("\n\n") if line[:7] == "data: {"]
                deltas = [line["choices"][0]["delta"] for line in lines]
                found = [call for delta in deltas for call in delta.get("tool_calls", [])]
                self.assertEqual([call.pop("index") for call in found], list(range(len(calls))))
                self.assertEqual(self.bare(found), calls)
                self.assertEqual("".join(delta.get("content", "") for delta in deltas),
                                 content or "")
                self.assertEqual(lines[-1]["choices"][0]["finish_reason"],
                                 "tool_calls" if calls else "stop")

    def test_without_tools_all_is_text(self):
        for more in ({"tools": None}, {"tool_choice": "none"}):
            answer = self.server.good("/v1/chat/completions", self.body("one", **more))
            choice = answer["choices"][0]
            self.assertEqual(choice["message"]["content"], "".join(ANSWERS["one"][1]))
            self.assertEqual(choice["finish_reason"], "stop")


if __name__ == "__main__":
    unittest.main()
