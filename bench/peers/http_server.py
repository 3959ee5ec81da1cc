#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A server of OpenAI's /v1/embeddings on ONNX Runtime, to compare `sparse24 serve` with: what waits
runs next, the longest texts first, as many together as fill --batch-tokens with what is padded.

    bench/peers/ort_server.py MODEL.ONNX TOKENIZER.JSON [--port 7998] [--threads 2] [--int8 OUT]

--int8 first writes the model with dynamic int8 weights to OUT, and serves that. The model is as
`sparse24 convert --to onnx` makes it. Needs onnxruntime, onnx, tokenizers, numpy and aiohttp.
"""
import argparse
import asyncio
import base64
import concurrent.futures

import numpy
import onnxruntime
import tokenizers
from aiohttp import web

OUTPUT = "sentence_embedding"


def quantised(source, target):
    from onnxruntime.quantization import QuantType, quantize_dynamic
    quantize_dynamic(source, target, weight_type=QuantType.QInt8)
    return target


def session_of(path, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def run(session, texts):
    """The vectors of texts of ids, padded to the longest."""
    longest = max(map(len, texts))
    ids = numpy.zeros((len(texts), longest), numpy.int64)
    mask = numpy.zeros_like(ids)
    for row, text in enumerate(texts):
        ids[row, :len(text)] = text
        mask[row, :len(text)] = 1
    feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": numpy.zeros_like(ids)}
    names = {one.name for one in session.get_inputs()}
    return session.run([OUTPUT], {key: feed[key] for key in names})[0]


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
    queue, session, most = app["queue"], app["session"], app["most"]
    while True:
        waiting = [await queue.get()]
        while not queue.empty():
            waiting.append(queue.get_nowait())
        while waiting:
            taken = some(waiting, most)
            vectors = await loop.run_in_executor(pool, run, session, [ids for ids, _ in taken])
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
    parser.add_argument("model")
    parser.add_argument("tokenizer")
    parser.add_argument("--port", type=int, default=7998)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--int8", metavar="OUT")
    options = parser.parse_args()
    path = quantised(options.model, options.int8) if options.int8 else options.model
    app = web.Application()
    app["session"], app["most"] = session_of(path, options.threads), options.batch_tokens
    app["tokenizer"] = tokenizers.Tokenizer.from_file(options.tokenizer)
    app["tokenizer"].no_padding()
    app["tokenizer"].enable_truncation(256)
    app.router.add_post("/v1/embeddings", embeddings)
    app.on_startup.append(start)
    web.run_app(app, host="127.0.0.1", port=options.port)


if __name__ == "__main__":
    main()
