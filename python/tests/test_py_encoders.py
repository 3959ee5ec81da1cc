# SPDX-License-Identifier: Apache-2.0
"""compile_encoder over random models of transformers: each head gives what transformers' gives, or
is refused by its name. Skips where there is none."""
import pathlib
import shutil
import tempfile
import unittest

import numpy as np

try:
    import torch
    import transformers
except ImportError as missing:
    raise unittest.SkipTest("no PyTorch or no transformers here") from missing

import sparse24
import sparse24.torch as st
from py_support import tiny_bert

SIZES = {"vocab_size": 96, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
         "intermediate_size": 128, "max_position_embeddings": 48, "pad_token_id": 0}
SMALL = {
    "Bert": {}, "Roberta": {"type_vocab_size": 1}, "XLMRoberta": {"type_vocab_size": 1},
    "Electra": {"embedding_size": 64}, "Ernie": {"use_task_id": False},
    "MPNet": {"pad_token_id": 1},
    "DistilBert": {"dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 128},
    "ModernBert": {"local_attention": 8, "cls_token_id": 1, "sep_token_id": 2,
                   "bos_token_id": 1, "eos_token_id": 2},
}


def made(name, kind="Model", **options):
    torch.manual_seed(1)
    config = getattr(transformers, f"{name}Config")(**{**SIZES, **SMALL.get(name, {}), **options})
    return getattr(transformers, name + kind)(config).eval()


def texts(left=False, lengths=(5, 17, 1, 30)):
    """Ids and mask of texts with padding at the right or at the left."""
    torch.manual_seed(2)
    ids = torch.zeros(len(lengths), max(lengths), dtype=torch.long)
    mask = torch.zeros_like(ids)
    for i, n in enumerate(lengths):
        at = slice(max(lengths) - n, None) if left else slice(0, n)
        ids[i, at] = torch.randint(3, 96, (n,))
        mask[i, at] = 1
    return ids, mask


class Case(unittest.TestCase):
    def setUp(self):
        guard = torch.inference_mode()
        guard.__enter__()
        self.addCleanup(guard.__exit__, None, None, None)

    def near(self, one, two):
        torch.testing.assert_close(one, two, atol=5e-4, rtol=5e-4)


class Encoders(Case):
    def test_states(self):
        ids, mask = texts()
        left_ids, left_mask = texts(left=True)
        for name in SMALL:
            with self.subTest(name):
                model = made(name)
                st.prune_(model, "magnitude")
                native = st.compile_encoder(model, max_tokens=40)
                self.assertGreater(native.native.info["sparse_layers"], 7)
                expected, result = model(ids, attention_mask=mask), native(ids, mask)
                here = mask.bool()
                self.near(result.last_hidden_state[here], expected.last_hidden_state[here])
                self.assertEqual(float(result[0][~here].abs().max()), 0)
                left = native(input_ids=left_ids, attention_mask=left_mask)
                self.near(left.last_hidden_state[left_mask.bool()],
                          expected.last_hidden_state[here])
                if expected.get("pooler_output") is None:
                    self.assertIsNone(result.pooler_output)
                else:
                    self.near(result.pooler_output, expected.pooler_output)
                    self.near(left[1], expected.pooler_output)

    def test_masks(self):
        model = made("Bert")
        native, (ids, mask) = st.compile_encoder(model), texts(lengths=(12, 12, 12))
        mask[0, 4:6] = 0
        mask[2, 9:] = 0
        here = mask.bool()
        self.near(native(ids, mask)[0][here], model(ids, mask)[0][here])
        mask[0] = 1
        mask[1] = 0  # a text without a token
        here = mask.bool()
        result = native(ids, mask)
        self.near(result[0][here], model(ids, mask)[0][here])
        self.near(result.pooler_output[[0, 2]], model(ids, mask).pooler_output[[0, 2]])
        self.assertEqual(float(result[0][1].abs().max()), 0)
        self.assertEqual(float(native(ids, torch.zeros_like(mask))[0].abs().max()), 0)
        with self.assertRaisesRegex(ValueError, r"attention_mask is \[3, 5\]; expected \[3, 12\]"):
            native(ids, mask[:, :5])

    def test_types(self):
        model, (ids, mask) = made("Bert"), texts()
        kinds = (torch.arange(ids.shape[1]) > 6).long().expand(ids.shape)
        here = mask.bool()
        self.near(st.compile_encoder(model)(ids, mask, kinds)[0][here],
                  model(ids, mask, kinds)[0][here])

    def test_arguments(self):
        native, (ids, mask) = st.compile_encoder(made("Bert")), texts()
        for name, value in (("position_ids", ids), ("inputs_embeds", torch.zeros(4, 30, 64)),
                            ("output_hidden_states", True), ("output_attentions", True),
                            ("labels", ids), ("head_mask", mask), ("nothing", 1)):
            with self.assertRaisesRegex(ValueError, f"{name}: NativeEncoder of bert"):
                native(ids, mask, **{name: value})
        plain = native(ids, mask, output_hidden_states=False, head_mask=None, return_dict=False)
        self.assertIsInstance(plain, tuple)
        self.near(plain[0], native(ids, mask)[0])
        with self.assertRaisesRegex(ValueError, "input_ids: expected"):
            native(attention_mask=mask)


class WordWeights(Case):
    def test_heads_for_words(self):
        lines = tiny_bert.sentences(12)
        vocabulary = tiny_bert.vocabulary()
        for name in ("Bert", "Ernie", "DistilBert", "Roberta", "XLMRoberta"):
            with self.subTest(name), tempfile.TemporaryDirectory() as place:
                model = made(name, "ForMaskedLM", vocab_size=len(vocabulary),
                             max_position_embeddings=80)
                model.save_pretrained(place)
                (pathlib.Path(place) / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
                found = sparse24.Encoder(place, pooling="splade").encode_sparse(lines).dense()
                tokenizer = sparse24.Tokenizer(place)
                for line, row in zip(lines, found):
                    ids = torch.from_numpy(np.array(tokenizer.encode(line).ids, np.int64))[None]
                    logits = model(ids).logits[0]
                    self.near(torch.from_numpy(row), logits.relu().log1p().max(0).values)


class Heads(Case):
    def served(self, model, inputs, fields=("logits",), here=None):
        native = st.compile_encoder(model)
        expected, result = model(**inputs), native(**inputs)
        for field in fields:
            one, two = getattr(result, field), getattr(expected, field)
            self.near(*(x if here is None else x[here] for x in (one, two)))
        return native, result

    def test_of_texts_and_tokens(self):
        ids, mask = texts()
        inputs, here = {"input_ids": ids, "attention_mask": mask}, mask.bool()
        for name in SMALL:
            for head, where in (("ForSequenceClassification", None),
                                ("ForTokenClassification", here), ("ForMaskedLM", here)):
                with self.subTest(name + head):
                    model = made(name, head, **({} if "LM" in head else {"num_labels": 5}))
                    native, _ = self.served(model, inputs, here=where)
                    self.assertIsInstance(getattr(native, model.base_model_prefix),
                                          st.NativeEncoder)
                    self.assertNotIsInstance(getattr(model, model.base_model_prefix),
                                             st.NativeEncoder)

    def test_losses(self):
        ids, mask = texts()
        inputs = {"input_ids": ids, "attention_mask": mask}
        self.served(made("Bert", "ForSequenceClassification", num_labels=3),
                    {**inputs, "labels": torch.tensor([0, 1, 2, 0])}, ("logits", "loss"))

    def test_answers(self):
        ids, mask = texts()
        for name in ("Bert", "Roberta", "DistilBert", "Electra"):
            with self.subTest(name):
                self.served(made(name, "ForQuestionAnswering"),
                            {"input_ids": ids, "attention_mask": mask},
                            ("start_logits", "end_logits"), mask.bool())

    def test_choices(self):
        ids, mask = texts()
        self.served(made("Bert", "ForMultipleChoice"),
                    {"input_ids": ids.view(2, 2, -1), "attention_mask": mask.view(2, 2, -1)})
        self.served(made("Bert", "ForNextSentencePrediction"),
                    {"input_ids": ids, "attention_mask": mask})

    def test_language_models(self):
        ids, mask = texts()
        left_ids, left_mask = texts(left=True)
        gpt2 = transformers.GPT2LMHeadModel(transformers.GPT2Config(
            vocab_size=96, n_embd=64, n_layer=2, n_head=4, n_positions=48, bos_token_id=1,
            eos_token_id=2)).eval()
        for model in (gpt2, made("Llama", "ForCausalLM", num_key_value_heads=2),
                      made("Qwen2", "ForCausalLM", num_key_value_heads=2)):
            with self.subTest(type(model).__name__):
                native, _ = self.served(model, {"input_ids": ids, "attention_mask": mask},
                                        here=mask.bool())
                left = native(left_ids, left_mask).logits
                self.near(left[left_mask.bool()], model(ids, mask).logits[mask.bool()]
                          if model is not gpt2 else native(ids, mask).logits[mask.bool()])
                with self.assertRaisesRegex(ValueError, "use_cache"):
                    native(ids, use_cache=True)

    def image_model(self, name, kind="Model", activation=None):
        """Random, its norms, biases and scales too."""
        torch.manual_seed(1)
        sizes = {key: value for key, value in SIZES.items() if key != "vocab_size"}
        config = getattr(transformers, f"{name}Config")
        if activation:
            sizes["hidden_act"] = activation
        model = getattr(transformers, name + kind)(config(**sizes, image_size=32, patch_size=8))
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.3)
        return model.eval()

    def test_images(self):
        pixels, states = torch.randn(3, 3, 32, 32), ("last_hidden_state", "pooler_output")
        for name, kind, fields, *activation in (
                ("ViT", "Model", states), ("ViT", "ForImageClassification", ("logits",)),
                ("DeiT", "Model", states), ("DeiT", "ForImageClassification", ("logits",)),
                ("Dinov2", "Model", states), ("Dinov2WithRegisters", "Model", states),
                ("CLIPVision", "Model", states), ("SiglipVision", "Model", states),
                ("SiglipVision", "Model", states, "relu2")):  # in its head, too
            with self.subTest((name, kind, *activation)):
                model = self.image_model(name, kind, *activation)
                native, _ = self.served(model, {"pixel_values": pixels}, fields)
                with self.assertRaisesRegex(ValueError, "interpolate_pos_encoding"):
                    native(pixels, interpolate_pos_encoding=True)

    def test_texts_and_images_in_one_space(self):
        sizes = {key: value for key, value in SIZES.items() if key != "vocab_size"}
        with tempfile.TemporaryDirectory() as place:
            words = pathlib.Path(tiny_bert.write(place + "/words"))
            folder = pathlib.Path(place) / "clip"
            model = transformers.CLIPModel(transformers.CLIPConfig(
                text_config={**sizes, "vocab_size": len(tiny_bert.vocabulary()),
                             "bos_token_id": 2, "eos_token_id": 3},
                vision_config={**sizes, "image_size": 32, "patch_size": 8},
                projection_dim=32)).eval()
            model.save_pretrained(folder)
            for name in ("vocab.txt", "tokenizer_config.json"):
                shutil.copyfile(words / name, folder / name)
            image = np.random.default_rng(1).integers(0, 256, (32, 32, 3), np.uint8)
            encoder = sparse24.Encoder(folder)
            got = encoder.encode(["a file", image, "a thread"])
            pixels = torch.from_numpy((image / 255.0 - 0.5) / 0.5).float().permute(2, 0, 1)
            pixels = pixels.contiguous()[None]
            expected = model.get_image_features(pixel_values=pixels)
            expected = getattr(expected, "pooler_output", expected)
            self.near(torch.from_numpy(got[1:2]), torch.nn.functional.normalize(expected))
            np.testing.assert_array_equal(encoder.encode(["a file", "a thread"]), got[::2])
            np.testing.assert_array_equal(encoder.share().encode(image), got[1])
            np.testing.assert_allclose(encoder.encode_pixels(pixels.numpy())[0], got[1], atol=1e-5)
            with self.assertRaisesRegex(ValueError, "encoder of texts"):
                sparse24.Encoder(folder, images=False).encode(image)
            with self.assertRaisesRegex(NotImplementedError, "CLIPModel has a model of texts and"):
                st.compile_encoder(model)
            self.near(st.compile_encoder(model.vision_model)(pixels).pooler_output,
                      model.vision_model(pixels).pooler_output)
            alone = sparse24.Encoder(folder, images=True)
            np.testing.assert_array_equal(alone.encode([image])[0], got[1])
            pruned = pathlib.Path(place) / "pruned"
            layers = sparse24.prune_model(folder, pruned, "wanda", images=pixels.numpy(),
                                          include="vision_model.*_proj.*,vision_model.*.fc*")
            self.assertEqual({layer.name.split(".")[0] for layer in layers}, {"vision_model"})
            with self.assertRaisesRegex(ValueError, "calibration texts were expected, too"):
                sparse24.prune_model(folder, pruned, "wanda", images=pixels.numpy(), force=True)

    def test_refusals(self):
        for name, head in (("Bert", "ForPreTraining"), ("Electra", "ForPreTraining"),
                           ("ViT", "ForMaskedImageModeling")):
            options = {"image_size": 32, "patch_size": 16} if name == "ViT" else {}
            with self.assertRaisesRegex(NotImplementedError, f"{name}{head}: its head"):
                st.compile_encoder(made(name, head, **options))
        with self.assertRaisesRegex(NotImplementedError, "Dinov2ForImageClassification: of images"):
            st.compile_encoder(self.image_model("Dinov2", "ForImageClassification"))
        with self.assertRaisesRegex(NotImplementedError, "T5Model: its decoder"):
            st.compile_encoder(transformers.T5Model(transformers.T5Config(
                vocab_size=96, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4)))
        with self.assertRaises(sparse24.Error):
            st.compile_encoder(made("Bert", "LMHeadModel", is_decoder=True))


if __name__ == "__main__":
    unittest.main()
