# SPDX-License-Identifier: Apache-2.0
"""Embeds the lines of a text file with Spark: a pandas UDF, which opens the encoder once for all
batches of a task.

    python3 embed_spark.py FOLDER LINES OUT.npy [MASTER]

MASTER is by default local[2,3]: two workers on this machine; a task that is lost is done again,
three times at most.
"""
import os
import sys
from typing import Iterator

import numpy
import pandas
from pyspark.sql import SparkSession
from pyspark.sql.functions import pandas_udf

import sparse24


def embed_with(folder):
    """The UDF of a model's folder, which each worker must see."""

    @pandas_udf("array<float>")
    def embed(batches: Iterator[pandas.Series]) -> Iterator[pandas.Series]:
        sparse24.set_threads(1)
        encoder = sparse24.Encoder(folder)
        for texts in batches:
            yield pandas.Series(list(encoder.encode_document(texts.tolist())))

    return embed


def main():
    """Reads, embeds and writes the vectors in the order of the lines."""
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    folder, lines, out = sys.argv[1:4]
    master = sys.argv[4] if len(sys.argv) > 4 else "local[2,3]"
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = (SparkSession.builder.master(master).appName("embed")
               .config("spark.driver.bindAddress", "127.0.0.1")
               .config("spark.driver.host", "127.0.0.1")
               .config("spark.ui.enabled", "false").getOrCreate())
    session.sparkContext.setLogLevel("ERROR")
    with open(lines, encoding="utf-8") as file:
        rows = list(enumerate(file.read().splitlines()))
    table = session.createDataFrame(rows, ["line", "text"]).repartition(2)
    vectors = table.select("line", embed_with(folder)("text").alias("vector"))
    found = vectors.orderBy("line").collect()
    numpy.save(out, numpy.array([row.vector for row in found], dtype=numpy.float32))
    print(f"{len(found)} vectors by {master}")
    session.stop()


if __name__ == "__main__":
    main()
