# SPDX-License-Identifier: Apache-2.0
"""The nearest passages for a question, as one would with sentence-transformers.

    python3 embed_texts.py FOLDER PASSAGES QUESTION
"""
import sys

import sparse24

if len(sys.argv) != 4:
    sys.exit(__doc__)
folder, passages, question = sys.argv[1:]
with open(passages, encoding="utf-8") as file:
    texts = file.read().splitlines()
encoder = sparse24.Encoder(folder)
indices, scores = sparse24.nearest(encoder.encode_query([question]),
                                   encoder.encode_document(texts), 3)
for index, score in zip(indices[0], scores[0]):
    print(f"{score:.3f}  {texts[index]}")
