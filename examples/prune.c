// SPDX-License-Identifier: Apache-2.0
/*
 * A model folder becomes a 2:4 one, packed: SparseGPT with the passages of a text file, a line
 * each.
 *   cc prune.c $(pkg-config --cflags --libs sparse24-nn) -o prune
 *   ./prune MODEL OUT PASSAGES
 */
#include <sparse24/nn.h>
#include <stdio.h>

static void tell(void *user, const s24_layer_report *layer)
{
    int *count = user;
    ++*count;
    printf("%-48s %lld x %lld, output error %.4f\n", layer->name, (long long)layer->rows,
           (long long)layer->cols, layer->output_error);
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: prune MODEL OUT PASSAGES\n");
        return 2;
    }
    const char *model = argv[1], *out = argv[2], *passages = argv[3];
    int count = 0;
    // shown: begin
    s24_ctx *ctx = NULL;
    s24_lines *lines = NULL;
    s24_checkpoint *in = NULL;
    s24_status status = s24_ctx_create(&ctx, NULL);
    if (status == S24_OK) status = s24_lines_read(&lines, ctx, passages);
    if (status == S24_OK) status = s24_checkpoint_open(&in, ctx, model);
    if (status == S24_OK) {
        s24_model_prune_opts opts = {.size = sizeof opts, .packed = 1};
        opts.prune.criterion = "sparsegpt";
        opts.texts = s24_lines_texts(lines);
        opts.text_count = s24_lines_count(lines);
        opts.report = tell; // called for each layer
        opts.user = &count;
        status = s24_model_prune(ctx, in, out, &opts);
    }
    // shown: end
    if (status == S24_OK)
        printf("%d layers are 2:4 in %s\n", count, out);
    else
        fprintf(stderr, "prune: %s\n", ctx ? s24_ctx_error(ctx) : s24_status_text(status));
    s24_checkpoint_close(in);
    s24_lines_destroy(lines);
    s24_ctx_destroy(ctx);
    return status == S24_OK ? 0 : 1;
}
