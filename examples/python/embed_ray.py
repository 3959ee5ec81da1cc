# SPDX-License-Identifier: Apache-2.0
"""Embeds the lines of a text file with Ray Data: each actor holds one encoder, on as many cores of
the cluster as there are.

    python3 embed_ray.py FOLDER LINES OUT.npy [ACTORS]

An actor that is lost is started again, and its batches are embedded anew.
"""
import sys

import numpy
import ray

import sparse24


class Embed:
    """One encoder of one thread, kept while batches come."""

    def __init__(self, folder):
        sparse24.set_threads(1)
        self.encoder = sparse24.Encoder(folder)

    def __call__(self, batch):
        texts = [str(text) for text in batch["text"]]
        return {"line": batch["line"], "vector": self.encoder.encode_document(texts)}


def main():
    """Reads, embeds and writes the vectors in the order of the lines."""
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    folder, lines, out = sys.argv[1:4]
    actors = int(sys.argv[4]) if len(sys.argv) > 4 else 2
    with open(lines, encoding="utf-8") as file:
        rows = [{"line": line, "text": text} for line, text in enumerate(file.read().splitlines())]
    ray.init(num_cpus=actors, include_dashboard=False, log_to_driver=False,
             _node_ip_address="127.0.0.1")  # a cluster of this machine; of others: address=...
    ray.data.DataContext.get_current().enable_progress_bars = False
    vectors = ray.data.from_items(rows).map_batches(
        Embed, fn_constructor_args=(folder,), batch_size=32, num_cpus=1,
        compute=ray.data.ActorPoolStrategy(size=actors)).take_all()
    vectors.sort(key=lambda row: row["line"])
    numpy.save(out, numpy.stack([row["vector"] for row in vectors]))
    print(f"{len(vectors)} vectors by {actors} actors")


if __name__ == "__main__":
    main()
