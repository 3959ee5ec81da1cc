# SPDX-License-Identifier: Apache-2.0
"""serve with language models of random weights, whose tokens are bytes: completions and
conversations, whole and streamed, are those of generate."""
import concurrent.futures
import json
import signal
import socket
import unittest

from cli_case import PATIENCE, Scratch
import test_cli_chat
from test_cli_serve import Server
import tiny_bert

HI = [{"role": "user", "content": "Hi"}]


LONG = "The quick brown fox jumps over the lazy dog, " * 4


def request(body, path="/v1/completions"):
    """The bytes of a request."""
    sent = json.dumps(body).encode()
    return (b"POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s"
            % (path.encode(), len(sent), sent))


def metric(server, name, model="chat"):
    """A number of /metrics, of a model or (None) of the server."""
    label = f'{{model="{model}"}}' if model else ""
    line = next(line for line in server.good("/metrics").splitlines()
                if line.startswith(f"sparse24_{name}{label} "))
    return float(line.split()[-1])


def at_once(server, requests):
    """What is read of connections whose requests all are there before the server looks."""
    plain = [server.socket() for _ in requests]
    server.stop()
    for one, sent in zip(plain, requests):
        one.sendall(sent)
    server.go_on()
    found = []
    for one in plain:
        with one:
            text = b""
            while more := one.recv(1 << 16):
                text += more
        head, _, body = text.partition(b"\r\n\r\n")
        found.append((int(head.split()[1]), head, json.loads(body)))
    return found


def greedy(prompt=None, **more):
    body = {"temperature": 0, "max_tokens": 6, **more}
    return body if prompt is None else {"prompt": prompt, **body}


# What the template is told, as its text: so many bytes are so many tokens.
TOOLS = ("{{ tools | tojson }}{% for m in messages %}{{ m.role }}{{ m.content }}{{ m.tool_calls | "
         "tojson if m.tool_calls }}{% endfor %}{{ enable_thinking }}{{ reasoning_effort }}")


# Each token is followed by the next one: from the line end of a prompt to the answer's end.
THINKS = ("{% for m in messages %}{{ m.content.split('</think>')[-1] }}{% endfor %}"
          "{{ '<|im_end|>' if not add_generation_prompt }}{{ '<think>' if opens }}"
          "{{ '</think>' if enable_thinking is false }}{{ '\\n' }}")
OPENED = list(b"\nab </think>\tYes") + [257]
CLOSED = list(b"\n<think>ab") + [257]


class Language(Scratch):
    @staticmethod
    def make(folder):
        tiny_bert.write(folder / "model")
        test_cli_chat.write(folder, "chat", test_cli_chat.TEMPLATE)
        test_cli_chat.write(folder, "ends", test_cli_chat.TEMPLATE, 257)
        test_cli_chat.write(folder, "plain", None)
        test_cli_chat.write(folder, "tools", TOOLS)
        test_cli_chat.write(folder, "opened", THINKS, chain=OPENED)
        test_cli_chat.write(folder, "closed", THINKS, chain=CLOSED)

    def serve(self, *arguments):
        return Server(self, *arguments)

    def generate(self, *arguments):
        return self.json("generate", *arguments)["prompts"][0]

    def events(self, server, path, body):
        """The objects of a stream, [DONE] at its end."""
        status, headers, text = server.ask(path, {**body, "stream": True})
        self.assertEqual((status, headers["Content-Type"]), (200, "text/event-stream"), text)
        lines = text.split("\n\n")
        self.assertEqual(lines[-2:], ["data: [DONE]", ""])
        return [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]

    def test_completions_are_those_of_generate(self):
        server = self.serve("chat", "model")
        for prompt in ("Hello", "x", "\u00e9\U0001f600"):
            expected = self.generate("chat", "--prompt", prompt, "--max-new", "6")
            value = server.good("/v1/completions", greedy(prompt))
            choice = value["choices"][0]
            self.assertEqual((value["object"], value["model"]), ("text_completion", "chat"))
            self.assertEqual((choice["text"], choice["finish_reason"]),
                             (expected["text"], "length"))
            self.assertEqual(value["usage"], {
                "prompt_tokens": expected["prompt_tokens"], "completion_tokens": 6,
                "total_tokens": expected["prompt_tokens"] + 6})
            tokens = server.good("/tokenize", {"inputs": prompt, "model": "chat"})[0]
            ids = [t["id"] for t in tokens]
            for same in (ids, [ids], [prompt]):
                again = server.good("/v1/completions", greedy(same))
                self.assertEqual(again["choices"], value["choices"])
        self.assertEqual(len(server.good("/embed", {"inputs": "a"})[0]), tiny_bert.WIDTH)

    def test_conversations(self):
        server = self.serve("chat", "ends")
        for system in (None, "Be brief."):
            more = ["--system", system] if system else []
            expected = self.generate("chat", "--chat", "--prompt", "Hi", "--max-new", "6", *more)
            said = [{"role": "system", "content": system}] * bool(system)
            value = server.good("/v1/chat/completions", greedy(messages=said + HI))
            self.assertEqual(value["object"], "chat.completion")
            self.assertEqual(value["choices"][0]["message"],
                             {"role": "assistant", "content": expected["text"]})
            self.assertEqual(value["usage"]["prompt_tokens"], expected["prompt_tokens"])
        parts = [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]
        self.assertEqual(server.good("/v1/chat/completions", greedy(messages=parts))["choices"],
                         server.good("/v1/chat/completions", greedy(messages=HI))["choices"])
        value = server.good("/v1/chat/completions", greedy(messages=HI, model="ends"))
        self.assertEqual((value["choices"][0]["message"]["content"],
                          value["choices"][0]["finish_reason"]), ("", "stop"))

    def test_what_a_template_is_told(self):
        server = self.serve("tools")
        call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
        object_call = {"function": {"arguments": {"a": 1}, "name": "f"}, "id": "1",
                       "type": "function"}
        tool = {"type": "function", "function": {"name": "f"}}
        for body, text in (
                ({"messages": HI}, "nulluserHi"),
                ({"messages": HI, "tools": [tool]}, json.dumps([tool]) + "userHi"),
                ({"messages": HI, "tools": [tool], "tool_choice": "none"}, "nulluserHi"),
                ({"messages": [{"role": "developer", "content": "a"}] + HI}, "nullsystemauserHi"),
                ({"messages": HI, "reasoning_effort": "low"}, "nulluserHilow"),
                ({"messages": HI, "reasoning_effort": "none"}, "nulluserHiFalsenone"),
                ({"messages": HI, "chat_template_kwargs": {"enable_thinking": True, "x": 1}},
                 "nulluserHiTrue"),
                ({"messages": HI + [{"role": "assistant", "content": None, "tool_calls": [call]},
                                    {"role": "tool", "content": "7", "tool_call_id": "1"}]},
                 "nulluserHiassistant" + json.dumps([object_call]) + "tool7")):
            with self.subTest(body=body):
                value = server.good("/v1/chat/completions", greedy(**body))
                self.assertEqual(value["usage"]["prompt_tokens"], len(text))
        for key, value in (("tools", {}), ("tools", [3]), ("tool_choice", "required"),
                           ("chat_template_kwargs", [1]), ("reasoning_effort", 3)):
            asked = greedy(messages=HI, **{key: value})
            status, _, found = server.ask("/v1/chat/completions", asked)
            self.assertEqual((status, found["error"]["param"]), (422, key))

    def test_what_an_answer_thinks_is_told_apart(self):
        server = self.serve("opened", "closed")
        opens = {"chat_template_kwargs": {"opens": True}}
        for model, more, thought, said in (
                ("opened", opens, "ab", "Yes"),
                ("opened", {"reasoning_effort": "none"}, None, "ab </think>\tYes"),
                ("opened", {}, None, "ab </think>\tYes"),
                ("opened", {**opens, "max_tokens": 2}, "ab", ""),
                ("opened", {**opens, "max_tokens": 6}, "ab </t", ""),
                ("opened", {**opens, "stop": "b"}, "a", ""),
                ("opened", {**opens, "stop": "e"}, "ab", "Y"),
                ("closed", {}, "ab", ""),
                ("closed", {"max_tokens": 4}, None, "<thi"),
                ("closed", {"max_tokens": 7}, None, "")):
            with self.subTest(model=model, more=more):
                body = {"model": model, "temperature": 0, "max_tokens": 40,
                        "messages": [{"role": "user", "content": "x"}], **more}
                choice = server.good("/v1/chat/completions", body)["choices"][0]
                self.assertEqual(choice["message"].get("reasoning_content"), thought)
                self.assertEqual(choice["message"]["content"], said)
                parts = [e["choices"][0]["delta"] for e in self.events(
                    server, "/v1/chat/completions", body) if e["choices"]]
                self.assertEqual("".join(p.get("reasoning_content", "") for p in parts),
                                 thought or "")
                self.assertEqual("".join(p.get("content", "") for p in parts), said)

    def test_streams_are_the_same_texts(self):
        server = self.serve("chat")
        whole = server.good("/v1/completions", greedy("Hello", max_tokens=40))
        events = self.events(server, "/v1/completions", greedy("Hello", max_tokens=40))
        self.assertEqual("".join(e["choices"][0]["text"] for e in events),
                         whole["choices"][0]["text"])
        self.assertGreater(len(events), 3)
        self.assertEqual([e["choices"][0]["finish_reason"] for e in events],
                         [None] * (len(events) - 1) + ["length"])
        self.assertTrue(all("usage" not in e for e in events))
        whole = server.good("/v1/chat/completions", greedy(messages=HI))
        events = self.events(server, "/v1/chat/completions",
                             greedy(messages=HI, stream_options={"include_usage": True}))
        self.assertEqual("".join(e["choices"][0]["delta"]["content"] for e in events[:-1]),
                         whole["choices"][0]["message"]["content"])
        self.assertEqual((events[-1]["choices"], events[-2]["choices"][0]["finish_reason"]),
                         ([], "length"))
        self.assertEqual([e["usage"] for e in events[:-1]], [None] * (len(events) - 1))
        self.assertEqual({e["object"] for e in events}, {"chat.completion.chunk"})
        # Clients join what parts say, so that one says who speaks.
        self.assertEqual([e["choices"][0]["delta"].get("role") for e in events[:-1]],
                         ["assistant"] + [None] * (len(events) - 2))
        self.assertEqual(events[-1]["usage"], whole["usage"])

    def test_openai_package(self):
        try:
            import openai  # pylint: disable=import-outside-toplevel
        except ImportError:
            self.skipTest("the Python package openai is not installed")
        server = self.serve("chat")
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
        asked = {"model": "chat", "messages": HI, "temperature": 0, "max_tokens": 12}
        whole = client.chat.completions.create(**asked)
        self.assertEqual(whole.choices[0].message.role, "assistant")
        parts = list(client.chat.completions.create(
            **asked, stream=True, stream_options={"include_usage": True}))
        self.assertEqual("".join(p.choices[0].delta.content for p in parts[:-1]),
                         whole.choices[0].message.content)
        self.assertEqual("".join(p.choices[0].delta.role or "" for p in parts[:-1]), "assistant")
        self.assertEqual((parts[-2].choices[0].finish_reason, parts[-1].usage),
                         ("length", whole.usage))
        text = client.completions.create(model="chat", prompt="Hi", temperature=0, max_tokens=12)
        parts = client.completions.create(model="chat", prompt="Hi", temperature=0, max_tokens=12,
                                          stream=True)
        self.assertEqual("".join(p.choices[0].text for p in parts), text.choices[0].text)
        for more, key in (({"n": 2}, "n"), ({"max_tokens": 0}, "max_tokens"),
                          ({"messages": []}, "messages")):
            with self.assertRaises(openai.UnprocessableEntityError) as raised:
                client.chat.completions.create(**{**asked, **more})
            self.assertEqual(raised.exception.param, key)

    def test_a_stop_and_a_seed(self):
        server = self.serve("chat")
        whole = server.good("/v1/completions", greedy("Hello", max_tokens=40))
        text = whole["choices"][0]["text"]
        stop = text[5:7]
        expected = self.generate("chat", "--prompt", "Hello", "--max-new", "40", "--stop", stop)
        for given in (stop, [stop], [text[8:12], stop], ["none", stop, text]):
            body = greedy("Hello", max_tokens=40, stop=given)
            value = server.good("/v1/completions", body)["choices"][0]
            self.assertEqual((value["text"], value["finish_reason"]), (expected["text"], "stop"))
            events = self.events(server, "/v1/completions", body)
            self.assertEqual("".join(e["choices"][0]["text"] for e in events), expected["text"])
        drawn = [server.good("/v1/completions", {"prompt": "a", "max_tokens": 20, "seed": seed,
                                                 "top_k": 50, "top_p": 0.9})["choices"]
                 for seed in (1, 1, 2)]
        self.assertEqual(drawn[0], drawn[1])
        self.assertNotEqual(drawn[0], drawn[2])
        drawn = [server.good("/v1/completions", {"prompt": "a", "max_tokens": 20, "seed": 1, **how})
                 ["choices"] for how in ({}, {"top_k": 0}, {"top_k": -1})]
        self.assertEqual(drawn, drawn[:1] * 3)
        drawn = [server.good("/v1/completions", {"prompt": "a", "max_tokens": 20, "seed": seed})
                 ["choices"] for seed in (0, 0, -3, -3)]
        self.assertEqual(drawn[:1] + drawn[2:3], drawn[1:2] + drawn[3:])
        self.assertNotEqual(drawn[0], drawn[2])
        none = server.good("/v1/completions", {"prompt": "Hello", "max_tokens": 40, "top_p": 0})
        self.assertEqual(none["choices"], whole["choices"])

    def test_log_probabilities_are_those_of_generate(self):
        server = self.serve("chat")
        rates = self.generate("chat", "--prompt", "Hello", "--max-new", "6", "--logprobs", "3")
        rates = rates["logprobs"]
        body = greedy("Hello", logprobs=3)
        choice = server.good("/v1/completions", body)["choices"][0]
        told = choice["logprobs"]
        for rate, own in zip(rates, told["token_logprobs"], strict=True):
            self.assertAlmostEqual(rate["logprob"], own, places=4)
        for rate, token, top in zip(rates, told["tokens"], told["top_logprobs"], strict=True):
            self.assertAlmostEqual(rate["top"][0]["logprob"], top[token], places=4)
            self.assertAlmostEqual(rate["top"][0]["logprob"], max(top.values()), places=4)
        whole = choice["text"]
        for place, token in zip(told["text_offset"], told["tokens"]):
            if "\ufffd" not in token:
                self.assertEqual(whole[place:place + len(token)], token)
        events = self.events(server, "/v1/completions", body)
        parts = [e["choices"][0]["logprobs"] for e in events]
        for key in told:
            self.assertEqual([x for part in parts for x in part[key]], told[key])
        self.assertIsNone(server.good("/v1/completions", greedy("Hello", logprobs=0))
                          ["choices"][0]["logprobs"]["top_logprobs"])
        self.assertIsNone(server.good("/v1/completions", greedy("Hello"))["choices"][0]["logprobs"])
        value = server.good("/v1/chat/completions",
                            greedy(messages=HI, logprobs=True, top_logprobs=2))["choices"][0]
        content = value["logprobs"]["content"]
        self.assertEqual(len(content), 6)
        for one in content:
            self.assertEqual(one["top_logprobs"][0], {k: one[k] for k in
                                                      ("token", "logprob", "bytes")})
            self.assertEqual(len(one["top_logprobs"]), 2)
        said = bytes(byte for one in content for byte in one["bytes"])
        self.assertEqual(said.decode(errors="replace"), value["message"]["content"])

    def test_messages_of_parts_and_other_words_of_openai(self):
        server = self.serve("chat")
        lines = [{"role": "user", "content": [{"type": "text", "text": text}
                                              for text in ("Hi", "", "you")]}]
        asked = greedy(messages=[{"role": "user", "content": "Hi\n\nyou"}])
        self.assertEqual(server.good("/v1/chat/completions", greedy(messages=lines))["choices"],
                         server.good("/v1/chat/completions", asked)["choices"])
        body = {**asked, "response_format": {"type": "text"}, "n": 1, "user": "me"}
        server.good("/v1/chat/completions", body)
        self.assertEqual(server.good("/v1/models/chat"), server.good("/v1/models")["data"][0])
        status, _, value = server.ask("/v1/models/none")
        self.assertEqual((status, value["error"]["code"]), (404, "model_not_found"))
        self.assertEqual(server.ask("/v1/models/")[0], 404)
        self.assertEqual(server.ask("/v1/models/chat", {})[0], 405)

    def test_refusals(self):
        server = self.serve("plain", "model", "--max-tokens", "64")
        for code, param, path, body in (
                (422, "prompt", "/v1/completions", {}),
                (422, "prompt", "/v1/completions", {"prompt": ["a", "b"]}),
                (422, "prompt", "/v1/completions", {"prompt": [1, 258]}),
                (422, "prompt", "/v1/completions", {"prompt": []}),
                (422, "prompt", "/v1/completions", {"prompt": "a" * 65}),
                (422, "max_tokens", "/v1/completions", {"prompt": "a", "max_tokens": 0}),
                (422, "temperature", "/v1/completions", {"prompt": "a", "temperature": -1}),
                (422, "top_p", "/v1/completions", {"prompt": "a", "top_p": "x"}),
                (422, "top_k", "/v1/completions", {"prompt": "a", "top_k": -2}),
                (422, "n", "/v1/completions", {"prompt": "a", "n": 2}),
                (422, "tools", "/v1/completions", {"prompt": "a", "tools": [{}]}),
                (422, "stop", "/v1/completions", {"prompt": "a", "stop": ["a", ""]}),
                (422, "stop", "/v1/completions", {"prompt": "a", "stop": ["a"] * 17}),
                (422, "seed", "/v1/completions", {"prompt": "a", "seed": 0.5}),
                (422, "logprobs", "/v1/completions", {"prompt": "a", "logprobs": 21}),
                (422, "logprobs", "/v1/completions", {"prompt": "a", "logprobs": True}),
                (422, "response_format", "/v1/completions",
                 {"prompt": "a", "response_format": {"type": "json_object"}}),
                (422, "stop_token_ids", "/v1/completions", {"prompt": "a", "stop_token_ids": [3]}),
                (422, "ignore_eos", "/v1/completions", {"prompt": "a", "ignore_eos": True}),
                (422, "guided_json", "/v1/completions", {"prompt": "a", "guided_json": {"a": 1}}),
                (422, "stream", "/v1/completions", {"prompt": "a", "stream": 1}),
                (422, "model", "/v1/completions", {"prompt": "a", "model": "model"}),
                (422, "model", "/embed", {"inputs": "a", "model": "plain"}),
                (422, "model", "/v1/chat/completions", {"messages": HI})):
            with self.subTest(path=path, body=str(body)[:50]):
                status, _, value = server.ask(path, body)
                self.assertEqual((status, value["error"]["param"]), (code, param), value)
        server = self.serve("chat")
        for messages in ([], "x", [{}], [{"role": "robot", "content": "x"}],
                         [{"role": "user", "content": 3}], HI + HI[:0] + [{"role": "assistant"}],
                         [{"role": "tool", "content": None}], [3]):
            with self.subTest(messages=messages):
                status, _, value = server.ask("/v1/chat/completions", {"messages": messages})
                self.assertEqual((status, value["error"]["param"]), (422, "messages"), value)
        for param, more in (("top_logprobs", {"top_logprobs": 1}), ("logprobs", {"logprobs": 1}),
                            ("add_generation_prompt", {"add_generation_prompt": False}),
                            ("continue_final_message", {"continue_final_message": True}),
                            ("top_logprobs", {"logprobs": True, "top_logprobs": 21})):
            status, _, value = server.ask("/v1/chat/completions", {"messages": HI, **more})
            self.assertEqual((status, value["error"]["param"]), (422, param), value)
        self.assertEqual(server.ask("/embed", {"inputs": "a"})[0], 404)

    def test_many_at_once_and_clients_that_leave(self):
        server = self.serve("chat")
        bodies = [greedy(prompt, max_tokens=30) for prompt in ("a", "bc", "def", "\u00e9")]
        expected = [server.good("/v1/completions", body)["choices"] for body in bodies]
        for body in bodies * 3:
            with server.socket() as plain:
                sent = json.dumps({**body, "stream": True, "max_tokens": 250}).encode()
                plain.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d"
                              b"\r\n\r\n%s" % (len(sent), sent))
                plain.recv(100)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            whole = pool.map(lambda b: server.good("/v1/completions", b)["choices"], bodies * 4)
            parts = pool.map(lambda b: self.events(server, "/v1/completions", b), bodies * 4)
            self.assertEqual(list(whole), expected * 4)
            texts = ["".join(e["choices"][0]["text"] for e in events) for events in parts]
        self.assertEqual(texts, [e[0]["text"] for e in expected] * 4)

    # ---- a running batch ---------------------------------------------------------------------

    def test_texts_run_together_and_stay_their_own(self):
        server = self.serve("chat", "--texts", "3")
        bodies = [{"prompt": prompt, "max_tokens": 40, "seed": seed, **how}
                  for seed, prompt in enumerate(("a", LONG, "bc", LONG[7:150]), 1)
                  for how in ({"temperature": 0}, {"top_k": 40, "repetition_penalty": 1.2})]
        alone = [server.good("/v1/completions", body) for body in bodies]
        for _ in range(20):
            batches, tokens = metric(server, "batches_total"), metric(server, "tokens_total")
            found = at_once(server, [request(body) for body in bodies])
            for (status, _, value), expected in zip(found, alone):
                self.assertEqual((status, value["choices"], value["usage"]),
                                 (200, expected["choices"], expected["usage"]))
            batches = metric(server, "batches_total") - batches
            self.assertEqual(metric(server, "tokens_total") - tokens,
                             sum(value["usage"]["total_tokens"] for value in alone))
            if batches < 40 * len(bodies):
                break
        self.assertLess(batches, 40 * len(bodies))  # of texts one after the other
        self.assertEqual(metric(server, "running_texts"), 0)
        self.assertEqual(metric(server, "waiting_texts"), 0)

    def test_a_client_who_went_away_is_not_answered(self):
        server = self.serve("chat", "--texts", "1")
        whole = server.good("/v1/completions", greedy("a"))

        def leave(stream, first):
            """Tokens that were computed for a client who closed before the server looked, whose
            prompt begins as no other's."""
            plain, tokens = server.socket(), metric(server, "tokens_total")
            server.stop()
            plain.sendall(request(greedy(first + LONG, max_tokens=40, stream=stream)))
            plain.close()
            server.go_on()
            self.assertEqual(server.good("/v1/completions", greedy("a"))["choices"],
                             whole["choices"])
            return metric(server, "tokens_total") - tokens

        self.assertLess(leave(False, "b"), len(LONG) + 40)
        for stream in (False, True):
            leave(stream, "f")
            self.assertEqual(metric(server, "running_texts"), 0)

    def test_a_client_who_closes_one_side_is_told(self):
        """No part of a text passes for the whole."""
        server = self.serve("chat")
        with server.socket() as plain:
            server.stop()
            plain.sendall(request(greedy(LONG, max_tokens=60)))
            plain.shutdown(socket.SHUT_WR)
            server.go_on()
            text = b""
            while more := plain.recv(1 << 16):
                text += more
        self.assertTrue(text.startswith(b"HTTP/1.1 499 ") and b"closed its side" in text, text)
        self.assertIn('{route="/v1/completions",code="499"} 1\n', server.good("/metrics"))

    def test_what_does_not_fit(self):
        server = self.serve("chat", "--texts", "1", "--queue", "2", "--max-tokens", "200")
        self.assertIn("chat: 1 text of up to 200 tokens at a time, 4 kept; keys and values take up "
                      "to",
                      (self.folder / "log").read_text())
        cache = server.good("/info")["models"][0]["cache_bytes"]
        other = self.serve("chat", "--texts", "2", "--no-prefixes", "--max-tokens", "200")
        self.assertEqual(other.good("/info")["models"][0]["cache_bytes"] * 5, cache * 2)
        status, _, value = server.ask("/v1/completions", greedy("a" * 201))
        self.assertEqual((status, value["error"]["param"]), (422, "prompt"))
        # The text ends where the cache does.
        whole = server.good("/v1/completions", greedy("a" * 190, max_tokens=100))
        self.assertEqual(whole["usage"]["completion_tokens"], 11)
        body = greedy("a", max_tokens=150)
        expected = server.good("/v1/completions", body)["choices"]
        for _ in range(20):
            found = at_once(server, [request(body)] * 12)
            for status, head, value in found:
                self.assertEqual(value.get("choices", expected), expected)
                self.assertEqual(status == 429, b"Retry-After" in head)
            codes = {status for status, _, _ in found}
            self.assertLessEqual(codes, {200, 429})
            if 429 in codes:
                break
        self.assertEqual(codes, {200, 429})

    # ---- beginnings in common ----------------------------------------------------------------

    def test_a_beginning_is_computed_once_and_answers_stay_the_same(self):
        bodies = [greedy(LONG[:count] + tail, **how)
                  for count in (100, 180, 15) for tail in ("a", "bc", "d" * 30)
                  for how in ({}, {"temperature": 1, "seed": 3, "repetition_penalty": 1.3})]
        without = self.serve("chat", "--no-prefixes")
        expected = [without.good("/v1/completions", body) for body in bodies]
        self.assertEqual(metric(without, "prefix_texts_total"), 0)
        server = self.serve("chat", "--prefixes", "2", "--texts", "2")
        for turn in range(2):
            for body, value in zip(bodies, expected):
                found = server.good("/v1/completions", body)
                self.assertEqual((found["choices"], found["usage"]),
                                 (value["choices"], value["usage"]))
        self.assertGreaterEqual(metric(server, "prefix_texts_total"), 20)
        self.assertGreaterEqual(metric(server, "prefix_tokens_total"), 20 * 100)
        found = at_once(server, [request(body) for body in bodies])
        self.assertEqual([value["choices"] for _, _, value in found],
                         [value["choices"] for value in expected])

    def test_the_longest_unused_beginning_leaves_first(self):
        server = self.serve("chat", "--prefixes", "2", "--texts", "1")

        def hits(letter):
            before = metric(server, "prefix_tokens_total")
            server.good("/v1/completions", greedy(letter * 50, max_tokens=1))
            return metric(server, "prefix_tokens_total") - before

        self.assertEqual([hits(letter) for letter in "abc"], [0, 0, 0])
        self.assertEqual(hits("a"), 49)  # all but the last token, whose logits are asked for
        self.assertEqual(hits("d"), 0)   # in the place of b
        self.assertEqual([hits(letter) for letter in "acd"], [49, 49, 49])
        self.assertEqual(hits("b"), 0)   # in the place of a
        self.assertEqual([hits(letter) for letter in "cdb"], [49, 49, 49])
        # A conversation goes on from what was said.
        said = server.good("/v1/completions", greedy("e" * 50, max_tokens=20))
        ids = [t["id"] for t in server.good("/tokenize", {"inputs": "e" * 50})[0]]
        before = metric(server, "prefix_tokens_total")
        server.good("/v1/completions", greedy(ids[:20] + [70] + ids, max_tokens=1))
        self.assertEqual(metric(server, "prefix_tokens_total") - before, 20)
        self.assertEqual(said["usage"]["completion_tokens"], 20)

    def test_sigterm_ends_a_stream_that_was_taken(self):
        server = self.serve("chat", "--threads", "1")
        with server.socket() as plain:
            sent = json.dumps(greedy("a", max_tokens=250, stream=True)).encode()
            plain.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d"
                          b"\r\n\r\n%s" % (len(sent), sent))
            text = plain.recv(100)
            server.process.send_signal(signal.SIGTERM)
            while more := plain.recv(1 << 16):
                text += more
        self.assertIn(b"data: [DONE]", text)
        self.assertEqual(server.process.wait(PATIENCE), 0)


if __name__ == "__main__":
    unittest.main()
