// SPDX-License-Identifier: Apache-2.0
/* IBM's Granite: a Llama whose embeddings, scores, sums and logits have factors. */
#include "model/arch/llama_names.h"

const s24i_architecture s24i_granite = {.model_type = "granite",
                                        LLAMA_SHAPED,
                                        .key_embedding_factor = "embedding_multiplier",
                                        .key_residual = "residual_multiplier",
                                        .key_score_factor = "attention_multiplier",
                                        .usual_score_factor = 1.0f,
                                        .key_logits_divisor = "logits_scaling"};
