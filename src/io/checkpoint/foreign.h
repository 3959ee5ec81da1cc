// SPDX-License-Identifier: Apache-2.0
/*
 * Inputs that are something else than a checkpoint: each is called what it is, with what to do. All
 * of these fail, but for s24i_refuse_foreign on what it does not know.
 */
#ifndef S24_IO_CHECKPOINT_FOREIGN_H
#define S24_IO_CHECKPOINT_FOREIGN_H

#include "io/file/io.h"

/* FORMAT where the bytes at a file's beginning, or its name, are another format's; else OK. */
s24_status s24i_refuse_foreign(s24_ctx *ctx, const char *path, const uint8_t *data, size_t bytes);
/* PyTorch's archives are zip files whose first entry is "NAME/data.pkl". */
int s24i_is_torch_archive(const uint8_t *data, size_t bytes);
/* A path that the system does not give (errno says why), and that may be a model's name on a hub.
   IO. */
s24_status s24i_fail_absent(s24_ctx *ctx, const char *path);
/* A folder without weights that can be read. IO. */
s24_status s24i_fail_weightless(s24_ctx *ctx, const char *folder);

#endif
