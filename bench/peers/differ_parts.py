#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sparse24's tokenizers and Hugging Face's, part by part: equal ids and offsets, or a refusal.

    python bench/peers/differ_parts.py [--tokenizers 2000] [--texts 20] [--seed 0] [--only N]

Run by a Python that has tokenizers and sparse24. Some small tokenizers of every kind are trained on
the tree's documents; then each of --tokenizers takes one of them and is given, as JSON, other
parts: normalizer, pre_tokenizer, post_processor and decoder, drawn from what well-known models have
or made up of every type at random, the model's own options, added tokens, truncation and padding,
and spellings of older files. Both libraries read the file and encode the same texts, alone and in
pairs, and decode what they gave and ids drawn at random. What sparse24 refuses is counted by its
sentence; what it takes and tokenizers does not is counted too. Exits with 1 where anything differs;
--only makes one of them again and keeps it as differ.json.
"""
import argparse
import base64
import collections
import copy
import json
import pathlib
import random
import sys
import tempfile

import tokenizers
from tokenizers import models, pre_tokenizers, trainers

import sparse24

from differ_texts import LLAMA3, PATTERNS, PIECES, QWEN, letter, words_of_tree

SPECIAL = ["<unk>", "<s>", "</s>", "<pad>", "[UNK]", "[CLS]", "[SEP]", "<mask>", "<|im_start|>"]
MORE = [r"\p{N}", r"\d", r"[0-9][0-9][0-9]", r"\s?\p{L}+", r"\s?\p{P}+", r"[\r\n]", r" ?\p{Han}+",
        r"\p{Lu}", "a|e|i", r"\b", r"(?=[A-Z])", r"^.", r".$", r"(.)\1", r"\p{Script=Greek}+",
        r"[[:punct:]]", r"\h+", "[^ab]{2}", r"\X", r"(?<=e)s", "\\\\", r"\x{e9}",
        r"[\p{L}&&[^a-m]]"]
BLANK = "\u2581"
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
META = {"type": "Metaspace", "replacement": BLANK, "prepend_scheme": "always", "split": True}


def regex(text):
    return {"Regex": text}


def split(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


def steps(name, *parts):
    return {"type": "Sequence", name: list(parts)}


def replace(pattern, content):
    return {"type": "Replace", "pattern": pattern, "content": content}


def charsmap():
    """XLM-R's, where golden vectors are; else one that changes nothing is not to be had."""
    import os
    path = pathlib.Path(os.environ.get("SPARSE24_GOLDEN", "."),
                        "encoders/unigram-tokenizer/tokenizer.json")
    if not path.exists():
        return []
    found = json.loads(path.read_text())["normalizer"]
    found = found.get("normalizers", [found])
    return [part for part in found if part["type"] == "Precompiled"]


PRECOMPILED = charsmap()

# ---- what well-known models have ----------------------------------------------------------------

BERT = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
        "strip_accents": None, "lowercase": True}
LLAMA2 = steps("normalizers", {"type": "Prepend", "prepend": BLANK},
               replace({"String": " "}, BLANK))
KNOWN_NORMALIZERS = [
    None, BERT, {"type": "NFC"}, LLAMA2, replace({"String": " "}, BLANK),
    steps("normalizers", {"type": "NFC"}, replace(regex(r"\s+"), " "), {"type": "Lowercase"}),
    steps("normalizers", replace({"String": "``"}, '"'), replace({"String": "''"}, '"'),
          {"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"}),
    steps("normalizers", {"type": "Strip", "strip_left": False, "strip_right": True},
          replace(regex(" {2,}"), BLANK)),
    steps("normalizers", {"type": "Nmt"}, {"type": "NFKC"}, replace(regex(" {2,}"), " ")),
    steps("normalizers", replace({"String": "\n"}, " "), {"type": "NFKC"}),
    {"type": "ByteLevel"}, steps("normalizers", {"type": "NFC"}, {"type": "ByteLevel"}),
    steps("normalizers"),
]
KNOWN_WORDS = [
    None, {"type": "BertPreTokenizer"}, META, {"type": "Whitespace"}, {"type": "WhitespaceSplit"},
    steps("pretokenizers", {"type": "WhitespaceSplit"}, META),
    steps("pretokenizers", split(regex(LLAMA3)), BYTES),
    steps("pretokenizers", split(regex(QWEN)), BYTES),
    steps("pretokenizers", split(regex(PATTERNS[0])), BYTES),
    steps("pretokenizers", split(regex(PATTERNS[1])), BYTES),
    steps("pretokenizers", split(regex(r"\p{N}{1,3}")), split(regex(PATTERNS[3])),
          split(regex(PATTERNS[2])), BYTES),
    steps("pretokenizers", split(regex(r"[\r\n]")), split(regex(r"\s?\p{L}+")),
          split(regex(r"\s?\p{P}+")), split(regex("[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+")),
          {"type": "Digits", "individual_digits": True}, BYTES),
    split({"String": " "}, "MergedWithPrevious"),
    steps("pretokenizers", {"type": "Digits", "individual_digits": True},
          {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}),
    steps("pretokenizers", {"type": "Punctuation", "behavior": "Contiguous"},
          {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
          {"type": "Digits", "individual_digits": False},
          split(regex("[0-9][0-9][0-9]"))),
    steps("pretokenizers", split(regex(PATTERNS[5]), "Removed", True), dict(BYTES, use_regex=True)),
    steps("pretokenizers", split(regex(r" ?[^(\s|[.,!?…。，、।۔،])]+")), BYTES),
    steps("pretokenizers", {"type": "UnicodeScripts"}, META),
    steps("pretokenizers", {"type": "Split", "pattern": {"String": " "},
                            "behavior": "Removed", "invert": False}),
    dict(BYTES, use_regex=True), dict(BYTES, use_regex=True, add_prefix_space=True),
]

# ---- parts at random ----------------------------------------------------------------------------


def yes(draw, chance=0.5):
    return draw.random() < chance


def some_pattern(draw):
    if yes(draw, 0.35):
        return {"String": draw.choice([" ", "e", "--", "the", ".", BLANK, "\u0301", "ab"])}
    return regex(draw.choice(PATTERNS + MORE))


def some_normalizer(draw, depth=0):
    rows = [
        lambda: {"type": draw.choice(["NFC", "NFD", "NFKC", "NFKD"])},
        lambda: {"type": draw.choice(["Lowercase", "StripAccents", "Nmt", "ByteLevel"])},
        lambda: {"type": "Strip", "strip_left": yes(draw), "strip_right": yes(draw)},
        lambda: {"type": "Prepend", "prepend": draw.choice([BLANK, " ", "ab"])},
        lambda: replace(some_pattern(draw),
                        draw.choice(["", " ", "x", BLANK, "\u0301", "e\u0301"])),
        lambda: {"type": "BertNormalizer", "clean_text": yes(draw),
                 "handle_chinese_chars": yes(draw), "lowercase": yes(draw),
                 "strip_accents": draw.choice([None, True, False])},
        lambda: copy.deepcopy(draw.choice(KNOWN_NORMALIZERS)) or {"type": "NFC"},
    ]
    if PRECOMPILED:
        rows.append(lambda: draw.choice(PRECOMPILED))
    if depth < 2:
        rows.append(lambda: steps("normalizers", *[some_normalizer(draw, depth + 1)
                                                   for _ in range(draw.randint(0, 3))]))
    return draw.choice(rows)()


BEHAVIORS = ["Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"]


def without(draw, part, *keys):
    """The part, now and then without keys that older files do not have."""
    for key in keys:
        if yes(draw, 0.2):
            part.pop(key, None)
    return part


def metaspace(draw):
    if yes(draw, 0.2):  # before prepend_scheme was
        return without(draw, {"type": "Metaspace", "replacement": BLANK, "str_rep": BLANK,
                              "add_prefix_space": yes(draw)}, "str_rep")
    part = {"type": "Metaspace", "replacement": draw.choice([BLANK, BLANK, BLANK, "_"]),
            "prepend_scheme": draw.choice(["always", "first", "never"]), "split": yes(draw, 0.7)}
    if yes(draw, 0.2):
        part["add_prefix_space"] = part["prepend_scheme"] != "never"
    return without(draw, part, "split")


def byte_level(draw):
    return without(draw, {"type": "ByteLevel", "add_prefix_space": yes(draw),
                          "trim_offsets": yes(draw), "use_regex": yes(draw)}, "use_regex")


def some_words(draw, depth=0):
    rows = [
        lambda: {"type": draw.choice(["BertPreTokenizer", "Whitespace", "WhitespaceSplit"])},
        lambda: {"type": draw.choice(["UnicodeScripts", "Whitespace"])},
        lambda: without(draw, {"type": "Punctuation", "behavior": draw.choice(BEHAVIORS)},
                        "behavior"),
        lambda: {"type": "Digits", "individual_digits": yes(draw)},
        lambda: {"type": "CharDelimiterSplit", "delimiter": draw.choice("e -_")},
        lambda: {"type": "FixedLength", "length": draw.choice([1, 3, 5])},
        lambda: metaspace(draw), lambda: metaspace(draw),
        lambda: byte_level(draw), lambda: byte_level(draw),
        lambda: split(some_pattern(draw), draw.choice(BEHAVIORS), yes(draw, 0.3)),
        lambda: split(some_pattern(draw), draw.choice(BEHAVIORS), yes(draw, 0.3)),
        lambda: copy.deepcopy(draw.choice(KNOWN_WORDS)) or {"type": "Whitespace"},
    ]
    if depth < 2:
        rows.append(lambda: steps("pretokenizers", *[some_words(draw, depth + 1)
                                                     for _ in range(draw.randint(0, 3))]))
        rows.append(rows[-1])
    return draw.choice(rows)()


def template(draw, made):
    names = [token["content"] for token in made["added_tokens"]]
    ids = {token["content"]: token["id"] for token in made["added_tokens"]}
    used = draw.sample(names, min(3, len(names)))

    def piece():
        return {"SpecialToken": {"id": draw.choice(used), "type_id": draw.randint(0, 1)}}

    def text(name):
        return {"Sequence": {"id": name, "type_id": draw.randint(0, 1)}}

    def around(*texts):
        found = []
        for one in (*texts, None):
            found += [piece() for _ in range(draw.choice([0, 1, 1, 2]))]
            found += [one] if one else []
        return found

    return {"type": "TemplateProcessing", "single": around(text("A")),
            "pair": around(text("A"), text("B")),
            "special_tokens": {name: {"id": name, "ids": [ids[name]], "tokens": [name]}
                               for name in used}}


def some_processor(draw, made, depth=0):
    ids = {token["content"]: token["id"] for token in made["added_tokens"]}

    def pair(name):
        return [name, ids[name]]

    rows = [
        lambda: template(draw, made), lambda: template(draw, made),
        lambda: {"type": "BertProcessing", "sep": pair("[SEP]"), "cls": pair("[CLS]")},
        lambda: {"type": "RobertaProcessing", "sep": pair("</s>"), "cls": pair("<s>"),
                 "trim_offsets": yes(draw), "add_prefix_space": yes(draw)},
        lambda: byte_level(draw),
    ]
    if depth < 1:
        rows.append(lambda: steps("processors", *[some_processor(draw, made, depth + 1)
                                                  for _ in range(draw.randint(0, 2))]))
    return draw.choice(rows)()


def some_decoder(draw, depth=0):
    rows = [
        lambda: {"type": "ByteLevel", "add_prefix_space": yes(draw), "trim_offsets": yes(draw),
                 "use_regex": yes(draw)},
        lambda: {"type": draw.choice(["Fuse", "ByteFallback"])},
        lambda: {"type": "WordPiece", "prefix": draw.choice(["##", "@@"]), "cleanup": yes(draw)},
        lambda: {"type": "BPEDecoder", "suffix": "</w>"},
        lambda: metaspace(draw),
        lambda: replace(some_pattern(draw), draw.choice([" ", "", "x"])),
        lambda: {"type": "Strip", "content": draw.choice([" ", " ", "e"]),
                 "start": draw.randint(0, 2), "stop": draw.randint(0, 1)},
        lambda: {"type": "CTC", "pad_token": "<pad>", "word_delimiter_token": "|", "cleanup": True},
        lambda: steps("decoders", replace({"String": BLANK}, " "), {"type": "ByteFallback"},
                      {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}),
        lambda: steps("decoders", replace({"String": BLANK}, " "), {"type": "ByteFallback"},
                      {"type": "Fuse"}),
        lambda: steps("decoders", {"type": "ByteFallback"}, {"type": "Fuse"},
                      replace({"String": BLANK}, " ")),
    ]
    if depth < 1:
        rows.append(lambda: steps("decoders", *[some_decoder(draw, depth + 1)
                                                for _ in range(draw.randint(0, 3))]))
    return draw.choice(rows)()


# ---- a file -------------------------------------------------------------------------------------

ADDED = ["the", "Is", "12345", "é", "don't", "--", "<x>", "of the", "tHe", " the", "\n", "  ", "①",
         "É", "日本", "ab ", "<|im_end|>", "İ"]


def add_tokens(draw, made):
    """More added tokens, of the vocabulary's words and of others, and other flags of some."""
    vocabulary = made["model"]["vocab"]
    vocabulary = [t[0] for t in vocabulary] if isinstance(vocabulary, list) else list(vocabulary)
    known = {token["content"] for token in made["added_tokens"]}
    place = {token: i for i, token in enumerate(vocabulary)}
    if isinstance(made["model"]["vocab"], dict):
        place = made["model"]["vocab"]
    for name in draw.sample(ADDED + draw.sample(vocabulary, 4), draw.choice([0, 1, 2, 4])):
        if name in known or not name:
            continue
        known.add(name)
        number = max([*place.values(), *[t["id"] for t in made["added_tokens"]]]) + 1
        made["added_tokens"].append({
            "id": place.get(name, number), "content": name, "single_word": yes(draw, 0.3),
            "lstrip": yes(draw, 0.3), "rstrip": yes(draw, 0.3), "normalized": yes(draw),
            "special": yes(draw, 0.3)})
    for token in made["added_tokens"]:
        if yes(draw, 0.15):
            key = draw.choice(["lstrip", "rstrip", "normalized", "single_word", "special"])
            token[key] = not token[key]


def change_model(draw, made):
    model = made["model"]
    if model["type"] == "BPE":
        for key in ("fuse_unk", "byte_fallback", "ignore_merges"):
            if yes(draw, 0.3):
                model[key] = not model.get(key)
        without(draw, model, "ignore_merges", "byte_fallback", "dropout")
        if yes(draw, 0.3):
            model["unk_token"] = draw.choice([None, "<unk>"])
        if yes(draw, 0.3):
            merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
            if all(m.count(" ") == 1 for m in merges):
                model["merges"] = merges
    elif model["type"] == "WordPiece":
        if yes(draw, 0.2):
            model["max_input_chars_per_word"] = draw.choice([5, 20, 200])
    elif model["type"] == "Unigram":
        if yes(draw, 0.2):
            model["byte_fallback"] = yes(draw)
        without(draw, model, "byte_fallback")
    if yes(draw, 0.15):
        del model["type"]  # as files of 2020 are


def change(draw, base):
    made = copy.deepcopy(base)
    if yes(draw, 0.75):
        made["normalizer"] = copy.deepcopy(draw.choice(KNOWN_NORMALIZERS)) if yes(draw, 0.4) \
            else some_normalizer(draw)
    if yes(draw, 0.75):
        made["pre_tokenizer"] = copy.deepcopy(draw.choice(KNOWN_WORDS)) if yes(draw, 0.4) \
            else some_words(draw)
    add_tokens(draw, made)
    change_model(draw, made)
    made["post_processor"] = some_processor(draw, made) if yes(draw, 0.6) else None
    if yes(draw):
        made["decoder"] = some_decoder(draw) if yes(draw, 0.8) else None
    if yes(draw, 0.2):
        made["truncation"] = {"direction": "Right", "max_length": 8, "strategy": "LongestFirst",
                              "stride": 0}
    if yes(draw, 0.2):
        made["padding"] = {"strategy": {"Fixed": 128}, "direction": "Right", "pad_to_multiple_of":
                           None, "pad_id": 3, "pad_type_id": 0, "pad_token": "<pad>"}
    return made


def bases(lines):
    """A tokenizer of each kind and spelling, trained as JSON."""
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    kinds = [
        ("wordpiece", models.WordPiece(unk_token="[UNK]"), pre_tokenizers.BertPreTokenizer(),
         trainers.WordPieceTrainer, {}),
        ("bytes", models.BPE(), pre_tokenizers.ByteLevel(add_prefix_space=False),
         trainers.BpeTrainer, {"initial_alphabet": alphabet}),
        ("fallback", models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True),
         pre_tokenizers.Metaspace(), trainers.BpeTrainer, {}),
        ("suffix", models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"),
         pre_tokenizers.Whitespace(), trainers.BpeTrainer, {"end_of_word_suffix": "</w>"}),
        ("prefix", models.BPE(unk_token="<unk>", continuing_subword_prefix="##"),
         pre_tokenizers.Whitespace(), trainers.BpeTrainer, {"continuing_subword_prefix": "##"}),
        ("unigram", models.Unigram(), pre_tokenizers.Metaspace(), trainers.UnigramTrainer,
         {"unk_token": "<unk>"}),
        ("unigram_plain", models.Unigram(), pre_tokenizers.WhitespaceSplit(),
         trainers.UnigramTrainer, {"unk_token": "<unk>"}),
        ("wordlevel", models.WordLevel(unk_token="<unk>"), pre_tokenizers.Whitespace(),
         trainers.WordLevelTrainer, {}),
    ]
    found = []
    for name, model, words, trainer, more in kinds:
        special = SPECIAL + ([f"<0x{b:02X}>" for b in range(256)] if name == "fallback" else [])
        for size in (400, 1500):
            made = tokenizers.Tokenizer(model)
            made.pre_tokenizer = words
            made.train_from_iterator(lines, trainer(vocab_size=size + len(special),
                                                    show_progress=False, special_tokens=special,
                                                    **more))
            whole = json.loads(made.to_str())
            whole["decoder"] = {
                "wordpiece": {"type": "WordPiece", "prefix": "##", "cleanup": True},
                "bytes": dict(BYTES), "suffix": {"type": "BPEDecoder", "suffix": "</w>"},
                "fallback": steps("decoders", replace({"String": BLANK}, " "),
                                  {"type": "ByteFallback"}, {"type": "Fuse"},
                                  {"type": "Strip", "content": " ", "start": 1, "stop": 0}),
                "unigram": META}.get(name)
            whole["added_tokens"] = [t for t in whole["added_tokens"] if t["content"] in SPECIAL]
            found.append((f"{name} {size}", whole))
    return found


# ---- both ---------------------------------------------------------------------------------------


def text_of(draw, words, made):
    names = [token["content"] for token in made["added_tokens"]]
    parts = []
    for _ in range(draw.randint(0, 14)):
        way = draw.random()
        parts.append(draw.choice(words) if way < 0.4 else draw.choice(PIECES) if way < 0.7 else
                     letter(draw) if way < 0.82 else draw.choice(names))
    return draw.choice(["", " ", " "]).join(parts)


def guarded(call, *words, **named):
    """What a call gives, or the name of a panic of theirs."""
    try:
        return call(*words, **named)
    except BaseException as error:  # a panic of theirs is no Exception
        if type(error).__name__ in ("PanicException", "Exception", "TypeError", "ValueError"):
            return None
        raise


def others(path, given):
    """What they make of it when they are loaded again: of added tokens that the normalizer makes
    alike tokenizers takes any."""
    for _ in range(8):
        theirs = tokenizers.Tokenizer.from_file(str(path))
        theirs.no_truncation()
        theirs.no_padding()
        found = theirs.encode(*given)
        yield list(zip(found.ids, found.type_ids, found.offsets))


def differences(draw, ours, theirs, made, words, texts, decodes, path):
    """What is not alike. Added tokens are left out of what is decoded, for tokenizers 0.23 shows
    special ones that its normalizer changes, and so is what ends within a character; WordPiece
    without a post_processor has BERT's here."""
    size = min(len(ours), theirs.get_vocab_size())
    added = {token["id"] for token in made["added_tokens"]}
    for _ in range(texts):
        given = [text_of(draw, words, made) for _ in range(draw.choice([1, 1, 2]))]
        other = guarded(theirs.encode, *given)
        if other is None:
            continue
        try:
            mine = ours.encode(*given)
        except sparse24.Error as error:
            if len(given) == 2 and "pair" in str(error):
                continue
            yield given, str(error), other.ids
            continue
        one = list(zip(mine.ids.tolist(), mine.types.tolist(), map(tuple, mine.offsets.tolist())))
        two = list(zip(other.ids, other.type_ids, other.offsets))
        bert = made["post_processor"] is None and "max_input_chars_per_word" in made["model"]
        without = [token for token in one if token[2] != (0, 0)]
        if one != two and not (bert and without == two) and one not in others(path, given):
            first = next((i for i, pair in enumerate(zip(one, two)) if pair[0] != pair[1]),
                         min(len(one), len(two)))
            yield given, f"token {first}: {one[first:first + 4]}", two[first:first + 4]
        for ids in (other.ids, [draw.randrange(size) for _ in range(6)]) if decodes else ():
            ids = [i for i in ids if i not in added]
            text = guarded(theirs.decode, ids)
            mine = ours.decode(ids)
            if text is not None and mine != text and "\ufffd" not in mine + text:
                yield ids, mine, text


def load(path, made):
    path.write_text(json.dumps(made), encoding="utf-8")
    theirs = guarded(tokenizers.Tokenizer.from_file, str(path))
    if theirs:
        theirs.no_truncation()
        theirs.no_padding()
    try:
        return sparse24.Tokenizer(path), theirs, None
    except (OSError, ValueError, sparse24.Error) as error:
        return None, theirs, str(error).split(": ", 1)[-1][:120]


def parts_of(made):
    shown = {key: made[key] for key in ("normalizer", "pre_tokenizer", "post_processor", "decoder")}
    shown["model"] = {k: v for k, v in made["model"].items() if k not in ("vocab", "merges")}
    shown["added"] = [t for t in made["added_tokens"] if t["content"] not in SPECIAL]
    for part in PRECOMPILED:
        return json.dumps(shown, ensure_ascii=False).replace(part["precompiled_charsmap"], "…")
    return json.dumps(shown, ensure_ascii=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokenizers", type=int, default=2000)
    parser.add_argument("--texts", type=int, default=20, help="of each tokenizer")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int)
    parser.add_argument("--refused", help="show the numbers of those whose sentence has it")
    parser.add_argument("--show", type=int, default=10)
    options = parser.parse_args()
    text, words = words_of_tree()
    lines = text.splitlines()
    pool = bases(random.Random(0).sample(lines, len(lines) // 4))
    refused, taken, faults, ran, encoded = collections.Counter(), [], [], 0, 0
    numbers = range(options.tokenizers) if options.only is None else [options.only]
    with tempfile.TemporaryDirectory() as folder:
        for number in numbers:
            draw = random.Random(f"{options.seed} {number}")
            name, base = draw.choice(pool)
            made = change(draw, base)
            if options.only is not None:
                pathlib.Path("differ.json").write_text(json.dumps(made), encoding="utf-8")
            path = pathlib.Path(folder, "tokenizer.json")
            ours, theirs, why = load(path, made)
            if not ours:
                refused[why] += bool(theirs)
                if theirs and options.refused and options.refused in why:
                    print(number, why)
                continue
            if not theirs:
                taken.append(number)
                continue
            ran += 1
            decodes = made["decoder"] == base["decoder"] is not None
            found = list(differences(draw, ours, theirs, made, words, options.texts, decodes,
                                     path))
            if not found:
                continue
            faults.append(number)
            if len(faults) <= options.show:
                print(f"{number} ({name}): {len(found)} differ; {parts_of(made)}", flush=True)
                for given, one, two in sorted(found, key=lambda f: len(str(f[0])))[:2]:
                    print(f"    {given!r}\n        {one}\n        {two}", flush=True)
    for why, times in refused.most_common():
        print(f"    {times} refused: {why}")
    print(f"{ran} tokenizers ran, {len(faults)} differ {faults[:30]}; {sum(refused.values())} "
          f"refused; {len(taken)} taken that tokenizers refuses {taken[:20]}")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
