# SPDX-License-Identifier: Apache-2.0
"""Models of transformers. Skips where there is none."""
import unittest

try:
    import torch
    import transformers
except ImportError as missing:
    raise unittest.SkipTest("no PyTorch or no transformers here") from missing

import sparse24
import sparse24.torch as st


def bert(kind=transformers.BertModel):
    torch.manual_seed(1)
    config = transformers.BertConfig(vocab_size=100, hidden_size=64, num_hidden_layers=2,
                                     num_attention_heads=4, intermediate_size=128,
                                     max_position_embeddings=64)
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
        with self.assertRaisesRegex(ValueError, "at the right"):
            native(ids, mask.flip(1))

    @torch.inference_mode()
    def test_answers(self):
        model, (ids, mask) = bert(transformers.BertForQuestionAnswering), padded([9, 30])
        types = (torch.arange(30)[None, :] > 4).long().expand(2, 30)
        result = st.compile_encoder(model)(ids, mask, types)
        expected = model(ids, mask, types)
        self.same(result.start_logits, expected.start_logits, mask)
        self.same(result.end_logits, expected.end_logits, mask)

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


if __name__ == "__main__":
    unittest.main()
