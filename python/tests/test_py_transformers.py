# SPDX-License-Identifier: Apache-2.0
"""Models of transformers. Skips where there is none."""
import copy
import multiprocessing.context
import pickle
import unittest

try:
    import torch
    import transformers
except ImportError as missing:
    raise unittest.SkipTest("no PyTorch or no transformers here") from missing

import sparse24
import sparse24.torch as st


def bert(kind=transformers.BertModel, **options):
    torch.manual_seed(1)
    config = transformers.BertConfig(vocab_size=100, hidden_size=64, num_hidden_layers=2,
                                     num_attention_heads=4, intermediate_size=128,
                                     max_position_embeddings=64, **options)
    return kind(config).eval()


def padded(lengths):
    ids = torch.zeros(len(lengths), max(lengths), dtype=torch.long)
    mask = torch.zeros_like(ids)
    for i, n in enumerate(lengths):
        ids[i, :n] = torch.randint(1, 100, (n,))
        mask[i, :n] = 1
    return ids, mask


class Encoders(unittest.TestCase):
    def same(self, one, two, mask):
        torch.testing.assert_close(one[mask.bool()], two[mask.bool()], atol=2e-4, rtol=2e-4)

    @torch.inference_mode()
    def test_native(self):
        model, (ids, mask) = bert(), padded([5, 17, 1, 40])
        st.prune_(model.encoder, "magnitude")
        native = st.compile_encoder(model, max_tokens=48)
        self.assertEqual(native.native.info["sparse_layers"], 12)
        expected = model(ids, attention_mask=mask).last_hidden_state
        result = native(input_ids=ids, attention_mask=mask)
        self.same(result.last_hidden_state, expected, mask)
        self.same(result[0], expected, mask)
        self.assertEqual(float(result["last_hidden_state"][2, 1:].abs().max()), 0)
        torch.testing.assert_close(native(ids[:1, :5]).last_hidden_state, expected[:1, :5],
                                   atol=2e-4, rtol=2e-4)

    @torch.inference_mode()
    def test_copies(self):
        model, ids = bert(), padded([9, 9])[0]
        native = st.compile_encoder(model, max_tokens=48)
        for twin in (copy.copy(native), copy.deepcopy(native)):
            self.assertIs(twin.native, native.native)
            self.assertTrue(torch.equal(twin(ids).pooler_output, native(ids).pooler_output))
        self.assertIsNot(twin.pooler, native.pooler)
        with self.assertRaisesRegex(TypeError, "NativeEncoder holds a native session, which is"):
            pickle.dumps(native)
        # As for a process that is being spawned.
        multiprocessing.context.set_spawning_popen(object())
        self.addCleanup(multiprocessing.context.set_spawning_popen, None)
        sent = pickle.dumps(native)
        multiprocessing.context.set_spawning_popen(None)
        there = pickle.loads(sent)
        self.assertIsNot(there.native, native.native)
        self.assertTrue(torch.equal(there(ids).pooler_output, native(ids).pooler_output))
        with self.assertRaisesRegex(NotImplementedError, "save the model that it was made of"):
            native.save_pretrained("nowhere")
        with self.assertRaisesRegex(NotImplementedError, "NativeEncoder runs on cpu"):
            native.to("meta")
        self.assertIs(native.to("cpu"), native)
        self.assertIs(native.half()(ids).last_hidden_state.dtype, torch.float16)
        self.assertIs(native.float()(ids).last_hidden_state.dtype, torch.float32)

    def test_in_sentence_transformers(self):
        class Part(torch.nn.Module):
            """As sentence-transformers has it; before 6 auto_model was no property."""

            def __init__(self, model):
                super().__init__()
                self.model = model

            auto_model = property(lambda self: self.model)

        class Before(torch.nn.Module):
            """And so before."""

            def __init__(self, model):
                super().__init__()
                self.auto_model = model

        for part in (Part, Before):
            sentences = torch.nn.Sequential(part(bert()))
            self.assertIs(st.compile_encoder(sentences), sentences)
            self.assertIsInstance(sentences[0].auto_model, st.NativeEncoder)
            self.assertEqual(len(list(sentences[0].children())), 1)

    @torch.inference_mode()
    def test_answers(self):
        model, (ids, mask) = bert(transformers.BertForQuestionAnswering), padded([9, 30])
        types = (torch.arange(30)[None, :] > 4).long().expand(2, 30)
        result = st.compile_encoder(model)(ids, mask, types)
        expected = model(ids, mask, types)
        self.same(result.start_logits, expected.start_logits, mask)
        self.same(result.end_logits, expected.end_logits, mask)

    @torch.inference_mode()
    def test_images(self):
        config = transformers.ViTConfig(hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
                                        intermediate_size=128, image_size=32, patch_size=8,
                                        num_labels=5)
        model = transformers.ViTForImageClassification(config).eval()
        st.prune_(model.vit)
        native, pixels = st.compile_encoder(model, max_tokens=40), torch.randn(5, 3, 32, 32)
        expected = model(pixels).logits
        torch.testing.assert_close(native(pixels).logits, expected, atol=2e-4, rtol=2e-4)
        torch.testing.assert_close(native(pixels[:1])[0], expected[:1], atol=2e-4, rtol=2e-4)
        with self.assertRaisesRegex(ValueError, "pixels"):
            native(pixels[:, :2])

    @torch.inference_mode()
    def test_layers_in_place(self):
        model, (ids, mask) = bert(), padded([5, 17])
        st.prune_(model.encoder)
        expected = model(ids, attention_mask=mask).last_hidden_state
        choices = st.accelerate_(model.encoder, measure=False)
        self.assertEqual({choice.kind for choice in choices}, {"2:4"})
        self.same(model(ids, attention_mask=mask).last_hidden_state, expected, mask)

    def test_calibrated(self):
        model, (ids, mask) = bert(), padded([20] * 40)
        kept = st.prune_(model, "sparsegpt", filter_fn=lambda _, name: "encoder" in name,
                         calibration=[{"input_ids": ids, "attention_mask": mask}])
        self.assertEqual(len(kept), 12)
        self.assertIsNone(sparse24.check(model.encoder.layer[0].output.dense.weight.detach()))


class Distillation(unittest.TestCase):
    def test_towards_the_dense_model(self):
        dense, pruned = (bert(transformers.BertForQuestionAnswering, initializer_range=0.2)
                         for _ in range(2))
        st.prune_(pruned.bert.encoder)
        kept = st.keep_zeros_(pruned.bert.encoder)
        self.assertEqual(len(kept), 12)

        class Trainer:
            """As much of transformers' as is asked here."""

        trainer = st.distillation_trainer(Trainer, dense, labels=0.0)()
        ids, mask = padded([20] * 16)
        inputs = {"input_ids": ids, "attention_mask": mask}
        optimizer, losses = torch.optim.AdamW(pruned.parameters(), lr=1e-3), []
        for _ in range(40):
            loss, outputs = trainer.compute_loss(pruned, inputs, return_outputs=True)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(float(loss.detach()))
        self.assertLess(losses[-1], losses[0] / 2)
        self.assertEqual(outputs.start_logits.shape, ids.shape)
        weight = pruned.bert.encoder.layer[0].output.dense.weight
        self.assertIsNone(sparse24.check(weight.detach()))

    def test_terms(self):
        model, (ids, mask) = bert(transformers.BertForQuestionAnswering), padded([9, 20])
        same = model(ids, mask, output_hidden_states=True)
        self.assertLess(abs(float(st.distillation_loss(same, same).detach())), 1e-5)
        with self.assertRaisesRegex(ValueError, "output_hidden_states"):
            st.distillation_loss(model(ids, mask), same)
        with self.assertRaisesRegex(ValueError, "nothing to learn"):
            st.distillation_loss(same, same, logits=0, hidden=0)


if __name__ == "__main__":
    unittest.main()
