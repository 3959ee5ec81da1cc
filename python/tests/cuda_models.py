# SPDX-License-Identifier: Apache-2.0
"""Whole models on a GPU: layers that become 2:4 ones, and native sessions among other work."""
import copy

import torch
import sparse24.torch as st

from cuda_case import Case, dense


class Models(Case):
    def test_accelerate(self):
        model = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.Linear(1024, 1024),
                                    torch.nn.Linear(1024, 1024)).half().cuda()
        st.prune_(model, filter_fn=lambda _, name: name != "1")
        expected, x = copy.deepcopy(model), dense(2048, 1024)
        choices = st.accelerate_(model, tokens=2048)
        self.assertEqual(choices[1].why, "its weight is not 2:4")
        self.assertRegex(choices[0].why, r"[0-9.]+x dense at 2048 tokens")
        self.near(model(x), expected(x), torch.float16, 8)
        self.assertEqual(st.accelerate_(torch.nn.Sequential(torch.nn.Linear(8, 8).cuda()))[0].kind,
                         "dense")

    def encoder(self, kind="BertModel", **more):
        """A small BERT, 2:4, and a native session of it; a ViT by its name."""
        try:
            import transformers  # pylint: disable=import-outside-toplevel
        except ImportError:
            self.skipTest("no transformers here")
        sizes = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2,
                 "intermediate_size": 256, **more}
        config = transformers.ViTConfig(image_size=32, patch_size=8, num_labels=5, **sizes) \
            if kind.startswith("ViT") else \
            transformers.BertConfig(vocab_size=100, max_position_embeddings=64, **sizes)
        model = getattr(transformers, kind)(config).eval().half().cuda()
        st.prune_(model)
        return model, st.compile_encoder(model, max_tokens=256)

    @torch.inference_mode()
    def test_encoders(self):
        model, native = self.encoder()
        for lengths, left in (((5, 17, 1, 40), False), ((16, 16), False), ((5, 17, 9), True),
                              ((40,) * 9, False)):
            mask = torch.arange(max(lengths))[None, :] < torch.tensor(lengths)[:, None]
            mask = (mask.flip(1) if left else mask).long().cuda()
            ids = torch.randint(1, 100, mask.shape).cuda()
            places = (mask.cumsum(1) - 1).clamp(min=0)
            expected = model(ids, attention_mask=mask, position_ids=places)
            for _ in range(3):  # alone, captured, from the graph
                for given in ((ids, mask), (ids.cpu(), mask.cpu())):
                    result = native(*given)
                    states = result.last_hidden_state
                    self.assertTrue(states.is_cuda)
                    self.near(states[mask.bool()], expected.last_hidden_state[mask.bool()],
                              torch.float16, 16)
                    if not left:
                        self.near(result.pooler_output, expected.pooler_output, torch.float16, 16)
        mask[0, 3], kinds = 0, torch.randint(0, 2, mask.shape).cuda()
        expected = model(ids, attention_mask=mask, token_type_ids=kinds).last_hidden_state
        self.near(native(ids, mask, kinds).last_hidden_state[mask.bool()], expected[mask.bool()],
                  torch.float16, 16)

    @torch.inference_mode()
    def test_heads_and_images(self):
        ids = torch.randint(1, 100, (3, 20)).cuda()
        model, native = self.encoder("BertForQuestionAnswering")
        one, two = model(ids), native(ids)
        self.near(two.start_logits, one.start_logits, torch.float16, 16)
        self.near(two.end_logits, one.end_logits, torch.float16, 16)
        model, native = self.encoder("BertForSequenceClassification")
        self.near(native(ids).logits, model(ids).logits, torch.float16, 16)
        pixels = dense(17 * 3 * 32, 32).view(17, 3, 32, 32)  # more than one pass
        for kind, field in (("ViTModel", "last_hidden_state"),
                            ("ViTForImageClassification", "logits")):
            model, native = self.encoder(kind)
            for _ in range(3):
                self.near(native(pixels)[field], model(pixels)[field], torch.float16, 16)

    @torch.inference_mode()
    def test_encoders_among_other_work(self):
        _, native = self.encoder()
        ids = torch.randint(1, 100, (4, 30)).cuda()
        expected = [native(ids).last_hidden_state for _ in range(3)][-1]
        self.near(self.does_not_wait(lambda: native(ids)).last_hidden_state, expected,
                  torch.float16)
        host = ids.cpu()
        self.near(self.does_not_wait(lambda: native(host)).last_hidden_state, expected,
                  torch.float16)
        streams, results = [torch.cuda.Stream() for _ in range(3)], []
        for i in range(60):
            with torch.cuda.stream(streams[i % 3]):
                torch.cuda._sleep(10000 * (i % 7))
                rolled = ids.roll(i, 0)
                results.append((i, native(rolled).last_hidden_state))
        torch.cuda.synchronize()
        for i, result in results:
            self.near(result, expected.roll(i, 0), torch.float16)
