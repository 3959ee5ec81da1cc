// SPDX-License-Identifier: Apache-2.0
/* The small ViT of the golden vectors, for tests of models on the CPU and on a device. Include
   after support.h. */
#ifndef S24_TEST_NN_VIT_SUPPORT_H
#define S24_TEST_NN_VIT_SUPPORT_H

#include <math.h>
#include <string.h>

#include "safetensors_mini.h"
#include "sparse24/nn.h"

enum {
    VIT_IMAGES = 2,
    VIT_POSITIONS = 65,
    VIT_TOKENS = VIT_IMAGES * VIT_POSITIONS,
    VIT_WIDTH = 64,
    VIT_LAYERS = 3,
    VIT_CLASSES = 10
};

typedef struct vit_golden {
    char folder[512];
    mini_file io;
    s24_batch batch;
} vit_golden;

static inline int vit_golden_open(vit_golden *g)
{
    char path[600];
    if (!golden_path(g->folder, sizeof g->folder, "models/vit")) return 0;
    snprintf(path, sizeof path, "%s/io.safetensors", g->folder);
    g->io = mini_open(path);
    g->batch =
        (s24_batch){.texts = VIT_IMAGES, .pixels = mini_get(&g->io, "input.pixel_values").data};
    return 1;
}

typedef struct vit_results {
    float hidden[VIT_TOKENS * VIT_WIDTH], blocks[(VIT_LAYERS + 1) * VIT_TOKENS * VIT_WIDTH];
    float embeddings[VIT_IMAGES * VIT_WIDTH], logits[VIT_IMAGES * VIT_CLASSES];
} vit_results;

/* The largest difference over the expected tensor's largest magnitude; a NaN is far off. */
static inline double vit_distance(const float *expected, const float *got, int64_t count)
{
    double most = 0, off = 0;
    for (int64_t i = 0; i < count; i++) {
        const double difference = fabs((double)expected[i] - (double)got[i]);
        most = fmax(most, fabs((double)expected[i]));
        if (!(difference <= off)) off = difference == difference ? difference : 1e9;
    }
    assert_true(most > 0);
    return off / most;
}

static inline void vit_near(const float *expected, const float *got, int64_t count, double bound,
                            const char *what)
{
    const double off = vit_distance(expected, got, count);
    if (!(off <= bound)) fail_msg("%s is %.2e off, %.1e was expected", what, off, bound);
}

#endif
