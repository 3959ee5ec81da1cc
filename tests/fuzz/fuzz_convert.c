// SPDX-License-Identifier: Apache-2.0
/*
 * A checkpoint of another library, safetensors or an archive of PyTorch's, into a form that its
 * size chooses: whatever the bytes are, they are refused with a sentence and nothing is written, or
 * there is a checkpoint that can be read.
 */
#define _GNU_SOURCE /* memfd_create */
#include "fuzz.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sparse24/nn.h"

static void convert(s24_ctx *ctx, const s24_checkpoint *in, const char *out, const char *to)
{
    const s24_convert_opts opts = {.size = sizeof opts, .to = to};
    s24_checkpoint *made;
    const s24_status status = s24_checkpoint_convert(NULL, ctx, in, out, &opts);
    CHECK(status == S24_OK || *s24_ctx_error(ctx));
    CHECK((access(out, F_OK) == 0) == (status == S24_OK));
    if (status != S24_OK) return;
    CHECK(s24_checkpoint_open(&made, ctx, out) == S24_OK);
    s24_checkpoint_close(made);
    CHECK(remove(out) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char folder[] = "/tmp/s24-fuzz-XXXXXX", in[64], out[64];
    const s24_ctx_opts opts = {.size = sizeof opts, .threads = 1};
    s24_ctx *ctx;
    s24_checkpoint *checkpoint;
    const int fd = memfd_create("fuzz", MFD_CLOEXEC);
    CHECK(fd >= 0 && write(fd, data, bytes) == (ssize_t)bytes);
    CHECK(mkdtemp(folder));
    snprintf(in, sizeof in, "/proc/self/fd/%d", fd);
    snprintf(out, sizeof out, "%s/out", folder);
    if (s24_ctx_create(&ctx, &opts) == S24_OK) {
        const s24_status status = s24_checkpoint_open_foreign(&checkpoint, ctx, in);
        CHECK(status == S24_OK || *s24_ctx_error(ctx));
        if (status == S24_OK) convert(ctx, checkpoint, out, s24_convert_target((int)(bytes % 4)));
        s24_checkpoint_close(checkpoint);
        s24_ctx_destroy(ctx);
    }
    CHECK(rmdir(folder) == 0);
    close(fd);
    return 0;
}
