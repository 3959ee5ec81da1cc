// SPDX-License-Identifier: Apache-2.0
/* Declares what files of rows of several lengths have in common: room that grows, and tensors that
   are written together. */
#ifndef SPARSE24_CLI_RAGGED_H
#define SPARSE24_CLI_RAGGED_H

#include "cli.h"

/* Room in *to, a pointer to items of `size` bytes, for `wanted` of them: at least doubled where it
   grows. 0: no memory, and *to is as before. */
int ragged_grow(void *to, int64_t *room, int64_t wanted, size_t size);
/* Refuses a path that is no .safetensors, by the name of what is written. */
int ragged_may_save(cli_app *cli, const char *path, const char *what);
/* Writes tensors; vocabulary: a key of the metadata, 0: none. */
int ragged_save(cli_app *cli, const char *path, const s24_tensor *tensors, const void *const *data,
                int count, int64_t vocabulary);

#endif
