// SPDX-License-Identifier: Apache-2.0
/*
 * JSON of a Hugging Face folder through every typed read, and through what positions, windows and
 * experts of every model type are read from: whatever the bytes are, a read gives a value inside
 * its range, or an error with a sentence.
 */
#include "fuzz.h"

#include <stdlib.h>

#include <math.h>

#include "model/text_config.h"

static const char *const keys[] = {"model_type",    "hidden_size", "hidden_act", "layer_norm_eps",
                                   "do_lower_case", "prompts",     "path",       "weight_map"};

static void read_keys(const s24i_config *config)
{
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        int64_t integer = 7;
        double number = 0.5;
        const char *text = NULL;
        int flag = 1;
        s24i_config child;
        if (s24i_config_int(&integer, config, keys[i], S24I_REQUIRED, 1, 65536) != S24_OK)
            CHECK(*s24_ctx_error(config->ctx));
        CHECK(integer >= 1 && integer <= 65536);
        if (s24i_config_double(&number, config, keys[i], S24I_OPTIONAL, 0, 1) != S24_OK)
            CHECK(*s24_ctx_error(config->ctx));
        CHECK(number >= 0 && number <= 1);
        if (s24i_config_string(&text, config, keys[i], S24I_REQUIRED) == S24_OK) CHECK(text);
        (void)s24i_config_bool(&flag, config, keys[i], S24I_OPTIONAL);
        CHECK(flag == 0 || flag == 1);
        if (s24i_config_child(&child, config, keys[i], S24I_REQUIRED) == S24_OK) CHECK(child.json);
    }
}

/* As of a model of LAYERS blocks and POSITIONS positions. */
static void read_text(const s24i_config *config)
{
    enum { LAYERS = 3, POSITIONS = 512, WIDTH = 64 };
    for (int i = 0; s24i_architecture_at(i); i++) {
        s24i_shape shape = {
            .layers = LAYERS, .positions = POSITIONS, .head_width = WIDTH, .intermediate = WIDTH};
        const s24i_architecture *arch = s24i_architecture_at(i);
        if (s24i_rope_read(&shape, config, arch) != S24_OK)
            CHECK(*s24_ctx_error(config->ctx));
        else
            for (int p = 0; arch->rotary && p < WIDTH / 2; p++)
                CHECK(isfinite(s24i_rope_turn(&shape.rope, p, WIDTH)));
        CHECK(isfinite(shape.rope.louder) && shape.positions > 0);
        if (s24i_windows_read(&shape, config, arch) != S24_OK) CHECK(*s24_ctx_error(config->ctx));
        for (int b = 0; b < LAYERS; b++)
            CHECK(s24i_block_sliding(&shape, b) >= 0);
        if (s24i_mixture_read(&shape, config, arch) != S24_OK)
            CHECK(*s24_ctx_error(config->ctx));
        else
            CHECK(!arch->mixture ||
                  (shape.mixture.used >= 1 && shape.mixture.used <= shape.mixture.experts &&
                   s24i_mixture_all(&shape.mixture) <= S24I_MOST_EXPERTS));
        CHECK(s24i_turned(&shape) > 0 && s24i_turned(&shape) <= WIDTH);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    s24_ctx *ctx = fuzz_ctx();
    s24i_config config, item;
    if (s24i_config_parse(&config, ctx, "config.json", data, bytes) == S24_OK) {
        read_keys(&config);
        read_text(&config);
        s24i_json_walk walk = s24i_json_begin(config.json);
        while (s24i_config_item(&item, &config, s24i_json_next(&walk, NULL)))
            read_keys(&item);
    } else {
        CHECK(*s24_ctx_error(ctx) && !config.json);
    }
    s24i_config_free(&config);
    return 0;
}
