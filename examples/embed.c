// SPDX-License-Identifier: Apache-2.0
/*
 * Texts to vectors with a model folder, dense or packed 2:4, and how alike the first is to each
 * other.
 *   cc embed.c $(pkg-config --cflags --libs sparse24-nn) -o embed
 *   ./embed MODEL 'a text' 'another one' …
 */
#include <sparse24/nn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static float cosine(const float *a, const float *b, int64_t width)
{
    float sum = 0; // the vectors have length 1
    for (int64_t i = 0; i < width; i++)
        sum += a[i] * b[i];
    return sum;
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: embed MODEL TEXT TEXT…\n");
        return 2;
    }
    const int64_t count = argc - 2;
    s24_text *texts = malloc((size_t)count * sizeof *texts);
    float *vectors = NULL;
    if (!texts) {
        fprintf(stderr, "embed: no memory for the texts\n");
        return 1;
    }
    for (int64_t i = 0; i < count; i++)
        texts[i] = (s24_text){argv[2 + i], strlen(argv[2 + i])};

    // shown: begin
    s24_ctx *ctx = NULL;
    s24_encoder *encoder = NULL;
    int64_t tokens = 0, width = 0;
    s24_status status = s24_ctx_create(&ctx, NULL);
    if (status == S24_OK) status = s24_encoder_open(&encoder, ctx, argv[1], NULL);
    if (status == S24_OK) {
        width = s24_encoder_width(encoder);
        vectors = malloc((size_t)(count * width) * sizeof *vectors); // [count, width]
        status = vectors ? s24_encoder_embed(vectors, &tokens, encoder, ctx, texts, count)
                         : s24_ctx_fail(ctx, S24_ERROR_MEMORY, "no memory for the vectors");
    }
    // shown: end
    if (status == S24_OK) {
        printf("%lld texts, %lld tokens, vectors of %lld numbers\n", (long long)count,
               (long long)tokens, (long long)width);
        for (int64_t i = 1; i < count; i++)
            printf("%7.4f  %s\n", (double)cosine(vectors, vectors + i * width, width), argv[2 + i]);
    } else {
        fprintf(stderr, "embed: %s\n", ctx ? s24_ctx_error(ctx) : s24_status_text(status));
    }
    s24_encoder_close(encoder);
    s24_ctx_destroy(ctx);
    free(vectors);
    free(texts);
    return status == S24_OK ? 0 : 1;
}
