#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sparse24's tokenizers and Hugging Face's on random texts: equal ids and offsets, or a refusal.

    python bench/peers/differ_texts.py [--kinds wordpiece,unigram…] [--texts 10000] [--seed 0]
    python bench/peers/differ_texts.py --files A/tokenizer.json,B/tokenizer.json --texts 1000000

Run by a Python that has tokenizers and sparse24. For every kind it trains small tokenizers on the
tree's documents with settings drawn by chance, and gives both the same texts: words of the
documents, letters of many scripts, marks, blanks, digits, controls and special tokens, mixed. One
that sparse24 refuses is counted by its sentence, and is no fault. With --files tokenizers that
others trained take the texts in place of those. Exits with 1 where ids or offsets differ; the kind,
the seed and the number of the tokenizer make it again.
"""
import argparse
import collections
import pathlib
import random
import sys
import tempfile
import unicodedata

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

import sparse24

ROOT = pathlib.Path(__file__).resolve().parents[2]
GPT2 = None  # ByteLevel's own pattern
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
PIECES = ["é", "e\u0301", "ß", "İ", "ǆ", "Σς", "ﬁ", "Ω", "한국", "가", "日本語",
          "，", "。", "ไทย", "नमस्ते", "العربية", "עִברִית",
          "😀", "👩‍👩‍👧", "🇩🇪", "\u00a0", "\u3000", "\u200b", "\u2028",
          "\ufeff", "\t", "\n", "\r\n", "  ", "   ", "\x00", "\x7f", "\x1b", "\ufffd", "½",
          "①", "Ⅷ", "١٢٣", "12345", "3.14", "'s", "'LL", "’t", "don't", "--", "...",
          "…", "$", "€", "#", "@", "_", "<s>", "</s>", "[CLS]", "[MASK]", "[SEP]", "[UNK]",
          "▁", "Ġ", "\U000e0001", "\U0001d504", "ｆｕｌｌ", "Å", "A\u030a"]


def words_of_tree():
    text = "\n".join(path.read_text() for path in sorted((ROOT / "docs").glob("*.md")))
    return text, text.split()


def wordpiece(draw):
    made = tokenizers.Tokenizer(models.WordPiece(
        unk_token="[UNK]", max_input_chars_per_word=draw.choice([100, 100, 10])))
    made.normalizer = normalizers.BertNormalizer(
        clean_text=draw.random() < 0.8, handle_chinese_chars=draw.random() < 0.8,
        strip_accents=draw.choice([None, True, False]), lowercase=draw.random() < 0.6)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    yield made, trainers.WordPieceTrainer(vocab_size=draw.choice([200, 800]), show_progress=False,
                                          special_tokens=special)
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))


def byte_level(draw, pattern, normalizer=None):
    made = tokenizers.Tokenizer(models.BPE(ignore_merges=draw.random() < 0.3))
    if normalizer:
        made.normalizer = normalizer
    if pattern is GPT2:
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=draw.random() < 0.3)
    else:
        made.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated"),
             pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    made.decoder = decoders.ByteLevel()
    yield made, trainers.BpeTrainer(
        vocab_size=draw.choice([300, 1000]), show_progress=False, special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    if draw.random() < 0.3:
        made.post_processor = processors.ByteLevel(trim_offsets=draw.random() < 0.5)


def gpt2(draw):
    return byte_level(draw, GPT2)


def llama3(draw):
    return byte_level(draw, LLAMA3)


def qwen(draw):
    return byte_level(draw, QWEN, draw.choice([None, normalizers.NFC()]))


def roberta(draw):
    made = tokenizers.Tokenizer(models.BPE())
    space, trim = draw.random() < 0.3, draw.random() < 0.7
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=space)
    made.decoder = decoders.ByteLevel()
    yield made, trainers.BpeTrainer(vocab_size=600, show_progress=False,
                                    special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
                                    initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    made.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=trim,
                                                       add_prefix_space=space)


def unigram(draw):
    made = tokenizers.Tokenizer(models.Unigram())
    made.normalizer = draw.choice([normalizers.NFKC(), None,
                                   normalizers.Replace(tokenizers.Regex(" {2,}"), " ")])
    scheme = draw.choice(["always", "first", "never"])
    made.pre_tokenizer = draw.choice([
        pre_tokenizers.Metaspace(prepend_scheme=scheme),
        pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(),
                                 pre_tokenizers.Metaspace(prepend_scheme=scheme)])])
    made.decoder = decoders.Metaspace()
    yield made, trainers.UnigramTrainer(vocab_size=draw.choice([300, 800]), show_progress=False,
                                        special_tokens=["<s>", "<pad>", "</s>", "<unk>"],
                                        unk_token="<unk>")
    made.post_processor = processors.TemplateProcessing(
        "<s> $A </s>", "<s> $A </s> </s> $B </s>", [("<s>", 0), ("</s>", 2)])


def any_normalizer(draw):
    """One to three of the normalizers, in any order."""
    rows = [normalizers.NFC, normalizers.NFD, normalizers.NFKC, normalizers.NFKD,
            normalizers.Lowercase, normalizers.StripAccents, normalizers.Nmt,
            lambda: normalizers.Strip(draw.random() < 0.7, draw.random() < 0.7),
            lambda: normalizers.Prepend(draw.choice(["\u2581", "ab", " "])),
            lambda: normalizers.Replace(*draw.choice([("a", "bc"), (" ", "\u2581"), ("``", '"'),
                                                      ("the", ""), ("\u0301", "'")])),
            lambda: normalizers.BertNormalizer(
                clean_text=draw.random() < 0.5, handle_chinese_chars=draw.random() < 0.5,
                strip_accents=draw.choice([None, True, False]), lowercase=draw.random() < 0.5)]
    return normalizers.Sequence([draw.choice(rows)() for _ in range(draw.randint(1, 3))])


def any_words(draw):
    """One or two of the pre_tokenizers that leave letters as they are."""
    behaviour = draw.choice(["isolated", "removed", "merged_with_previous", "merged_with_next",
                             "contiguous"])
    rows = [pre_tokenizers.Whitespace, pre_tokenizers.WhitespaceSplit,
            pre_tokenizers.BertPreTokenizer, lambda: pre_tokenizers.Punctuation(behaviour),
            lambda: pre_tokenizers.Digits(draw.random() < 0.5),
            lambda: pre_tokenizers.CharDelimiterSplit(draw.choice("e -")),
            lambda: pre_tokenizers.Metaspace(
                prepend_scheme=draw.choice(["always", "first", "never"]),
                split=draw.random() < 0.5),
            lambda: pre_tokenizers.Split(draw.choice([" ", "e", "--"]), behaviour,
                                         draw.random() < 0.3),
            lambda: pre_tokenizers.Split(tokenizers.Regex(draw.choice(PATTERNS)), behaviour,
                                         draw.random() < 0.3)]
    return pre_tokenizers.Sequence([draw.choice(rows)() for _ in range(draw.randint(1, 2))])


PATTERNS = [
    # Mistral's tekken, GPT-4o, DeepSeek (three in turn), CLIP, BLOOM, and what tries the matcher.
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|"
    r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|"
    r"\s+(?!\S)|\s+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"
    r" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r"\p{N}{1,3}",
    r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|"
    r"[^\s\p{L}\p{N}]+",
    r" ?[^(\s|[.,!?…。，、।۔،])]+",
    r"\w+|[^\w\s]+", r"(?:ab|e)*?[a-f]{2,3}", r"(?>\d+)(?=\.)|\S++|\s", r"[^\P{L}a-z]+|(?i:THE)",
    r"(?:\p{Lu}\p{Ll}*){1,2}|.", r"\s*",
]


def add_tokens(draw, made):
    """Added tokens of every kind, some of which stand in the texts."""
    for word in draw.sample(["the", "Is", "12345", "\u00e9", "don't", "--", "<x>", "of the"], 3):
        made.add_tokens([tokenizers.AddedToken(
            word, single_word=draw.random() < 0.4, lstrip=draw.random() < 0.3,
            rstrip=draw.random() < 0.3, normalized=draw.random() < 0.5,
            special=draw.random() < 0.3)])


def chained(draw, made, trainer):
    if draw.random() < 0.8:
        made.normalizer = any_normalizer(draw)
    made.pre_tokenizer = any_words(draw)
    yield made, trainer
    add_tokens(draw, made)


def words_pieces(draw):
    made = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    yield from chained(draw, made, trainers.WordPieceTrainer(
        vocab_size=500, show_progress=False, special_tokens=["[UNK]", "[CLS]", "[SEP]"]))


def words_bpe(draw):
    affixes = draw.choice([{}, {"end_of_word_suffix": "</w>"},
                           {"continuing_subword_prefix": "##"}])
    made = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=draw.random() < 0.5,
                                           **affixes))
    yield from chained(draw, made, trainers.BpeTrainer(
        vocab_size=600, show_progress=False, special_tokens=["<unk>"], **affixes))


def words_unigram(draw):
    yield from chained(draw, tokenizers.Tokenizer(models.Unigram()), trainers.UnigramTrainer(
        vocab_size=500, show_progress=False, special_tokens=["<unk>"], unk_token="<unk>"))


def words_level(draw):
    made = tokenizers.Tokenizer(models.WordLevel(unk_token="<unk>"))
    yield from chained(draw, made, trainers.WordLevelTrainer(
        vocab_size=500, show_progress=False, special_tokens=["<unk>"]))


def patterns(draw):
    """At byte level after one of the patterns, as most of today's language models."""
    made = tokenizers.Tokenizer(models.BPE())
    split = pre_tokenizers.Split(tokenizers.Regex(draw.choice(PATTERNS)),
                                 *draw.choice([("isolated", False), ("removed", True)]))
    made.normalizer = draw.choice([None, normalizers.Replace(tokenizers.Regex(r"\s+"), " ")])
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    yield made, trainers.BpeTrainer(vocab_size=600, show_progress=False, special_tokens=["<s>"],
                                    initial_alphabet=pre_tokenizers.ByteLevel.alphabet())


def words_bytes(draw):
    made = tokenizers.Tokenizer(models.BPE())
    if draw.random() < 0.8:
        made.normalizer = any_normalizer(draw)
    space = draw.random() < 0.6
    last = pre_tokenizers.ByteLevel(add_prefix_space=space, use_regex=draw.random() < 0.5)
    made.pre_tokenizer = draw.choice([last, pre_tokenizers.Sequence([any_words(draw), last])])
    made.decoder = decoders.ByteLevel()
    yield made, trainers.BpeTrainer(vocab_size=600, show_progress=False, special_tokens=["<s>"],
                                    initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    add_tokens(draw, made)
    if draw.random() < 0.5:
        made.post_processor = processors.ByteLevel(trim_offsets=draw.random() < 0.7,
                                                   add_prefix_space=space)


def piece(draw, names):
    return f"{draw.choice(names)}:{draw.randint(0, 1)}"


def templates(draw):
    """Any special tokens around a text and between two, next to what cuts offsets."""
    level = draw.random() < 0.5
    made = tokenizers.Tokenizer(models.BPE() if level else models.WordPiece(unk_token="[UNK]"))
    special = ["[UNK]", "[CLS]", "[SEP]", "<en>", "<eot>"]
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False) if level else \
        pre_tokenizers.BertPreTokenizer()
    kind = trainers.BpeTrainer if level else trainers.WordPieceTrainer
    more = {"initial_alphabet": pre_tokenizers.ByteLevel.alphabet()} if level else {}
    yield made, kind(vocab_size=600, show_progress=False, special_tokens=special, **more)
    names = {name: [draw.randint(0, 599) for _ in range(draw.choice([1, 1, 1, 2, 3]))]
             for name in special[1:]}
    some = [[piece(draw, special[1:]) for _ in range(draw.choice([0, 1, 1, 2, 3]))]
            for _ in range(5)]
    texts = [f"${name}:{draw.randint(0, 1)}" for name in "AAB"]
    adds = draw.choice([
        processors.TemplateProcessing(
            [*some[0], texts[0], *some[1]], [*some[2], texts[1], *some[3], texts[2], *some[4]],
            [{"id": name, "ids": ids, "tokens": [name] * len(ids)} for name, ids in names.items()]),
        processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1)),
        processors.RobertaProcessing(("[SEP]", 2), ("[CLS]", 1), trim_offsets=draw.random() < 0.5,
                                     add_prefix_space=False)])
    if draw.random() < 0.9 or not level:  # WordPiece has BERT's of its own
        made.post_processor = adds if not level or draw.random() < 0.5 else processors.Sequence(
            [processors.ByteLevel(trim_offsets=draw.random() < 0.5, add_prefix_space=False), adds])


KINDS = [wordpiece, gpt2, roberta, llama3, qwen, unigram, words_pieces, words_bpe, words_unigram,
         words_level, words_bytes, patterns, templates]


def make(kind, draw, text, path):
    steps = kind(draw)
    made, trainer = next(steps)
    lines = text.splitlines()
    made.train_from_iterator(draw.sample(lines, len(lines) // 3), trainer)
    next(steps, None)  # what goes around the ids, which the trainer does not want to see
    made.save(str(path))
    return tokenizers.Tokenizer.from_file(str(path))


def letter(draw):
    """Of the characters that this Python knows: what is a letter in newer Unicode is none in older,
    and the libraries have tables of different years."""
    while True:
        found = chr(draw.choice([draw.randint(32, 0x250), draw.randint(0x300, 0xd7ff),
                                 draw.randint(0xe000, 0x2fa1f)]))
        if unicodedata.category(found) != "Cn":
            return found


def text_of(draw, words):
    parts = []
    for _ in range(draw.randint(0, 12)):
        way = draw.random()
        parts.append(draw.choice(words) if way < 0.45 else draw.choice(PIECES) if way < 0.85 else
                     letter(draw))
    return draw.choice(["", " "]).join(parts)


def both(ours, theirs, given, limit):
    """(id, type, offsets) of each token here and there; None where the other library panics."""
    theirs.no_truncation()
    try:
        around = theirs.num_special_tokens_to_add(len(given) == 2)
        if limit > around + 1:
            theirs.enable_truncation(limit)
        mine = ours.encode(*given, max_tokens=limit if limit > around + 1 else 0)
        other = theirs.encode(*given)
    except BaseException as error:  # a panic of theirs is no Exception
        if type(error).__name__ != "PanicException":
            raise
        return None
    return (list(zip(mine.ids, mine.types, map(tuple, mine.offsets))),
            list(zip(other.ids, other.type_ids, other.offsets)))


def run_file(path, options, words):
    """The texts through a tokenizer as it was published, without what pads and cuts."""
    ours, theirs = sparse24.Tokenizer(path), tokenizers.Tokenizer.from_file(str(path))
    theirs.no_padding()
    draw, faults, ran = random.Random(f"{options.seed} files"), 0, 0
    for _ in range(options.texts):
        given = [text_of(draw, words)]
        answer = both(ours, theirs, given, 0)
        ran += answer is not None
        if answer and answer[0] != answer[1]:
            faults += 1
            if faults <= options.show:
                print(f"{path}: {given!r}\n    {answer[0]}\n    {answer[1]}")
    print(f"{path}: {ran} texts, {faults} differ", flush=True)
    return faults


def run_kind(kind, options, text, words):
    refused, faults, ran = collections.Counter(), 0, 0
    for number in range(options.tokenizers):
        draw = random.Random(f"{options.seed} {kind.__name__} {number}")
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "tokenizer.json")
            theirs = make(kind, draw, text, path)
            try:
                ours = sparse24.Tokenizer(path)
            except (OSError, ValueError, sparse24.Error) as error:
                refused[str(error).replace(folder, "…")[:150]] += 1
                continue
        for _ in range(options.texts // options.tokenizers):
            given = [text_of(draw, words)]
            if kind is templates and draw.random() < 0.5:
                given.append(text_of(draw, words))
            limit = draw.choice([0, 20, 40]) if kind is templates else 0
            answer = both(ours, theirs, given, limit)
            if answer is None:
                continue
            ran += 1
            if answer[0] != answer[1]:
                faults += 1
                if faults <= options.show:
                    print(f"{kind.__name__} {number}: {given!r}\n    {answer[0]}\n    {answer[1]}")
    print(f"{kind.__name__}: {ran} texts, {faults} differ", flush=True)
    for sentence, times in refused.most_common():
        print(f"    {times} tokenizers refused: {sentence}", flush=True)
    return faults


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", default=",".join(kind.__name__ for kind in KINDS))
    parser.add_argument("--files", default="", metavar="TOKENIZER.JSON,…", help="in place of kinds")
    parser.add_argument("--texts", type=int, default=10000, help="of each kind, or of each file")
    parser.add_argument("--tokenizers", type=int, default=20, help="of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, default=3, help="of each kind's faults")
    options = parser.parse_args()
    text, words = words_of_tree()
    if options.files:
        sys.exit(any([run_file(pathlib.Path(path), options, words)
                      for path in options.files.split(",")]))
    wanted = options.kinds.split(",")
    sys.exit(any([run_kind(kind, options, text, words) for kind in KINDS
                  if kind.__name__ in wanted]))


if __name__ == "__main__":
    main()
