// SPDX-License-Identifier: Apache-2.0
/*
 * Which tensors the 2:4 commands touch: by globs over names, or by default the linear layers of a
 * transformer's blocks. The default goes by the names that Hugging Face models use and errs on
 * the side of leaving a tensor alone: c_attn, c_proj and c_fc are taken where the model type says
 * how they are stored, as GPT-2 does, [in, out], or as Starcoder 2 does, [out, in].
 */
#include <string.h>

#include "sparse24/nn.h"

/* Does class "[…]" at pattern take the character? *end: after the ']', NULL if there is none. */
static int class_takes(const char *pattern, const char *pattern_end, char character,
                       const char **end)
{
    const char *p = pattern + 1;
    int is_negated = p < pattern_end && (*p == '!' || *p == '^'), is_taken = 0;
    p += is_negated;
    for (const char *first = p; p < pattern_end && (*p != ']' || p == first); p++) {
        if (p + 2 < pattern_end && p[1] == '-' && p[2] != ']') {
            is_taken |= *p <= character && character <= p[2];
            p += 2;
        } else {
            is_taken |= *p == character;
        }
    }
    *end = p < pattern_end ? p + 1 : NULL;
    return is_taken != is_negated;
}

/* One step: does pattern's first element take the character? *next: after that element. */
static int element_takes(const char *pattern, const char *pattern_end, char character,
                         const char **next)
{
    *next = pattern + 1;
    if (*pattern == '?') return 1;
    if (*pattern == '[') {
        const char *end;
        int is_taken = class_takes(pattern, pattern_end, character, &end);
        if (end) {
            *next = end;
            return is_taken;
        }
    }
    return *pattern == character;
}

/* On a mismatch only the last '*' is stretched, so this takes at most |pattern|·|name| steps. */
static int glob_matches(const char *pattern, const char *pattern_end, const char *name)
{
    const char *star = NULL, *star_name = NULL, *next;
    while (*name) {
        if (pattern < pattern_end && *pattern == '*') {
            star = ++pattern;
            star_name = name;
        } else if (pattern < pattern_end && element_takes(pattern, pattern_end, *name, &next)) {
            pattern = next;
            name++;
        } else if (star) {
            pattern = star;
            name = ++star_name;
        } else {
            return 0;
        }
    }
    while (pattern < pattern_end && *pattern == '*')
        pattern++;
    return pattern == pattern_end;
}

/* Does one of the globs, separated by commas, match? */
static int any_glob_matches(const char *globs, const char *name)
{
    for (;;) {
        const char *end = globs + strcspn(globs, ",");
        if (end > globs && glob_matches(globs, end, name)) return 1;
        if (!*end) return 0;
        globs = end + 1;
    }
}

/* Is the component name[0 … length) one of a list of words that ends with NULL? */
static int is_word(const char *name, size_t length, const char *const *words)
{
    for (; *words; words++)
        if (strlen(*words) == length && !memcmp(name, *words, length)) return 1;
    return 0;
}

static int contains_word(const char *name, size_t length, const char *word)
{
    size_t word_length = strlen(word);
    for (size_t i = 0; i + word_length <= length; i++)
        if (!memcmp(name + i, word, word_length)) return 1;
    return 0;
}

/* A component that makes a weight inside a block something else than a plain linear layer. */
static int is_special(const char *name, size_t length, int is_known)
{
    static const char *const exact[] = {"ln",
                                        "ln_1",
                                        "ln_2",
                                        "ln_f",
                                        "gate",
                                        "router",
                                        "score",
                                        "lm_head",
                                        "pooler",
                                        "classifier",
                                        "shared_expert_gate",
                                        NULL};
    static const char *const either_way[] = {"c_attn", "c_fc", "c_proj", "q_attn", NULL};
    return (!is_known && is_word(name, length, either_way)) || is_word(name, length, exact) ||
           contains_word(name, length, "embed") ||
           contains_word(name, length, "relative_attention_bias");
}

static int is_norm(const char *name, size_t length)
{
    return contains_word(name, length, "norm") || contains_word(name, length, "Norm");
}

/* "….layer.7.….weight" and kin, without a special component. */
static int is_linear_of_block(const char *name, int is_known)
{
    static const char *const blocks[] = {"layer",  "layers",        "h", "block",
                                         "blocks", "albert_layers", NULL};
    int was_block_word = 0, is_in_block = 0;
    for (;;) {
        size_t length = strcspn(name, ".");
        int is_number = length > 0 && strspn(name, "0123456789") == length;
        if (!name[length]) return is_in_block && length == 6 && !memcmp(name, "weight", 6);
        if (is_special(name, length, is_known)) return 0;
        /* Models have names, too: roberta_prelayernorm's blocks are no norms. */
        if (is_in_block && is_norm(name, length)) return 0;
        is_in_block |= was_block_word && is_number;
        was_block_word = is_word(name, length, blocks);
        name += length + 1;
    }
}

int s24_tensor_is_selected(const s24_tensor *tensor, const char *include, const char *exclude)
{
    if (!tensor || tensor->rank != 2 || !s24_dtype_can_be_two_four(tensor->dtype)) return 0;
    if (exclude && any_glob_matches(exclude, tensor->name)) return 0;
    if (include) return any_glob_matches(include, tensor->name);
    return tensor->linear >= 0 &&
           is_linear_of_block(tensor->name, tensor->transposed == 1 || tensor->linear);
}
