// SPDX-License-Identifier: Apache-2.0
/*
 * Models with a tower of texts and others, of images or sounds. config.json has what is said of the
 * texts in its text_config, with a model_type of its own, whose row runs; of the tensors those of
 * the other towers are left out. A row with key_tower (CLIP) knows its towers itself.
 */
#ifndef S24_MODEL_TOWER_H
#define S24_MODEL_TOWER_H

#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/config.h"
#include "model/model.h"

/* The row of a checkpoint's model, or of its tower of texts; NULL: there is none. */
const s24i_architecture *s24i_architecture_of(const s24_checkpoint *checkpoint);

/* Fails with a sentence that names the model_type, and that of its texts, and the rows that `takes`
   wants. UNSUPPORTED. */
s24_status s24i_architecture_unknown(s24_ctx *ctx, const s24_checkpoint *checkpoint,
                                     int (*takes)(const s24i_architecture *architecture));

/* checkpoint->text_names, and which tensors are left out (s24_tensor.linear). */
void s24i_towers_find(s24_checkpoint *checkpoint, const s24i_architecture *arch);

/* A line of the log on what is left out, where anything is. */
void s24i_towers_log(s24_ctx *ctx, const s24_checkpoint *checkpoint);

/* What may stand before the names of texts' tensors, a longer one first; NULL after the last. */
const char *s24i_tower_before(int index);

/* Bytes of a tensor's name before those of the tower of texts. */
size_t s24i_tower_names(const char *name);

/* What config.json says of the row's model: all of it, or its part for texts. *usual: what a part
   leaves out; free it with s24i_config_free after the last use. */
s24_status s24i_tower_config(s24i_config *out, s24i_config *usual, const s24i_config *whole,
                             const s24i_architecture *arch);

#endif
