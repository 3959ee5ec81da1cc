#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A server of OpenAI's /v1/embeddings on another engine, to compare `sparse24 serve` with: what
waits runs next, the longest texts first, as many together as fill --batch-tokens padded.

    bench/peers/http_server.py onnxruntime MODEL.ONNX TOKENIZER.JSON [--threads 2] [--int8 OUT]
    bench/peers/http_server.py sentence-transformers FOLDER TOKENIZER.JSON [--dtype float16]

ONNX Runtime serves a model as `sparse24 convert --to onnx` makes it, on the CPU; --int8 first
writes the model with dynamic int8 weights to OUT, and serves that. sentence-transformers serves a
folder on a GPU, with sdpa attention. Both get ids, so that texts become tokens in one way. Needs
aiohttp, numpy, tokenizers and the engine (onnxruntime and onnx, or torch and
sentence-transformers).
"""
import argparse
import asyncio
import base64
import concurrent.futures

import numpy
import tokenizers
from aiohttp import web


def padded(texts):
    """Ids and mask of texts, padded to the longest."""
    ids = numpy.zeros((len(texts), max(map(len, texts))), numpy.int64)
    mask = numpy.zeros_like(ids)
    for row, text in enumerate(texts):
        ids[row, :len(text)] = text
        mask[row, :len(text)] = 1
    return ids, mask


class OnnxRuntime:
    def __init__(self, options):
        import onnxruntime
        path = options.model
        if options.int8:
            from onnxruntime.quantization import QuantType, quantize_dynamic
            quantize_dynamic(path, options.int8, weight_type=QuantType.QInt8)
            path = options.int8
        own = onnxruntime.SessionOptions()
        own.intra_op_num_threads = options.threads
        self.session = onnxruntime.InferenceSession(path, own, providers=["CPUExecutionProvider"])
        self.names = {one.name for one in self.session.get_inputs()}

    def run(self, texts):
        ids, mask = padded(texts)
        feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": numpy.zeros_like(ids)}
        return self.session.run(["sentence_embedding"], {key: feed[key] for key in self.names})[0]


class SentenceTransformers:
    def __init__(self, options):
        import sentence_transformers
        import torch
        self.torch = torch
        self.model = sentence_transformers.SentenceTransformer(
            options.model, device="cuda", model_kwargs={
                "torch_dtype": getattr(torch, options.dtype), "attn_implementation": "sdpa"})
        self.model.eval()

    def run(self, texts):
        with self.torch.inference_mode():
            ids, mask = (self.torch.from_numpy(a).to("cuda") for a in padded(texts))
            found = self.model({"input_ids": ids, "attention_mask": mask})
            return found["sentence_embedding"].float().cpu().numpy()


ENGINES = {"onnxruntime": OnnxRuntime, "sentence-transformers": SentenceTransformers}


def some(waiting, most):
    """Takes the longest texts, as many as fill `most` padded tokens, of those that came first."""
    waiting.sort(key=lambda one: -len(one[0]))
    count = max(1, most // len(waiting[0][0]))
    taken = waiting[:count]
    del waiting[:count]
    return taken


async def work(app):
    loop = asyncio.get_running_loop()
    pool = concurrent.futures.ThreadPoolExecutor(1)
    queue, engine, most = app["queue"], app["engine"], app["most"]
    while True:
        waiting = [await queue.get()]
        while not queue.empty():
            waiting.append(queue.get_nowait())
        while waiting:
            taken = some(waiting, most)
            vectors = await loop.run_in_executor(pool, engine.run, [ids for ids, _ in taken])
            for (_, answer), vector in zip(taken, vectors):
                if not answer.cancelled():
                    answer.set_result(vector)


async def embeddings(request):
    body = await request.json()
    texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
    app, loop, data = request.app, asyncio.get_running_loop(), []
    answers = []
    for text in texts:
        answers.append(loop.create_future())
        app["queue"].put_nowait((app["tokenizer"].encode(text).ids, answers[-1]))
    for index, vector in enumerate(await asyncio.gather(*answers)):
        whole = vector.astype("<f4")
        said = (base64.b64encode(whole.tobytes()).decode()
                if body.get("encoding_format") == "base64" else whole.tolist())
        data.append({"object": "embedding", "index": index, "embedding": said})
    text = web.json_response({"object": "list", "data": data}).text
    return web.Response(text=text.replace('"embedding": ', '"embedding":'),
                        content_type="application/json")


async def start(app):
    app["queue"] = asyncio.Queue()
    app["worker"] = asyncio.create_task(work(app))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("model")
    parser.add_argument("tokenizer")
    parser.add_argument("--port", type=int, default=7998)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--int8", metavar="OUT")
    parser.add_argument("--dtype", default="float16")
    options = parser.parse_args()
    app = web.Application()
    app["engine"], app["most"] = ENGINES[options.engine](options), options.batch_tokens
    app["tokenizer"] = tokenizers.Tokenizer.from_file(options.tokenizer)
    app["tokenizer"].no_padding()
    app["tokenizer"].enable_truncation(256)
    app.router.add_post("/v1/embeddings", embeddings)
    app.on_startup.append(start)
    web.run_app(app, host="127.0.0.1", port=options.port)


if __name__ == "__main__":
    main()
