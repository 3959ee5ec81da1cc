// SPDX-License-Identifier: Apache-2.0
/*
 * Measures what the machine can do at most, in the run that measures what it did: fused
 * multiply-adds out of registers on every thread, and reading memory that no cache holds. The best
 * of several tries counts, as a limit is; a product that memory bounds takes turns with the reads.
 */
#include <stdlib.h>
#include <unistd.h>

#include "bench/bench.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* Shortens the limits under a sanitizer: some fifty times slower, no time means anything there. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FULL(count) ((count) / 256)
#else
#define FULL(count) (count)
#endif

enum {
    CHAINS = 12,           /* independent sums: latency 4 times throughput 2, with room to spare */
    STEPS = FULL(2000000), /* of every chain in one try: some 5 ms */
    TILE_STEPS = 32,       /* of AMX's products one in so many steps: each takes 16 cycles */
    TRIES = 4,
    LINE_PAIR = 128,            /* bytes read in a step */
    READ_LEAST = FULL(1 << 28), /* 256 MiB to 1 GiB are read */
    READ_MOST = FULL(1 << 30)
};

typedef struct bench_probe {
    s24_ctx *ctx;
    s24_dtype dtype;
    uint32_t cpu;
    uint64_t *memory;
    int64_t bytes;        /* of it */
    volatile double sink; /* so that no compiler sees the work as useless */
} probe;

static double chains_portable(void)
{
    float sums[CHAINS] = {0};
    for (int i = 0; i < STEPS; i++)
        for (int c = 0; c < CHAINS; c++)
            sums[c] = sums[c] * 0.999f + 0.5f;
    double total = 0;
    for (int c = 0; c < CHAINS; c++)
        total += (double)sums[c];
    return total;
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) static double chains_avx2(void)
{
    __m256 sums[CHAINS];
    const __m256 a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(0.5f);
    for (int c = 0; c < CHAINS; c++)
        sums[c] = b;
    for (int i = 0; i < STEPS; i++)
#pragma GCC unroll 12
        for (int c = 0; c < CHAINS; c++)
            sums[c] = _mm256_fmadd_ps(sums[c], a, b);
    for (int c = 1; c < CHAINS; c++)
        sums[0] = _mm256_add_ps(sums[0], sums[c]);
    return (double)_mm256_cvtss_f32(sums[0]);
}

__attribute__((target("avx512f"))) static double chains_avx512(void)
{
    __m512 sums[CHAINS];
    const __m512 a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(0.5f);
    for (int c = 0; c < CHAINS; c++)
        sums[c] = b;
    for (int i = 0; i < STEPS; i++)
#pragma GCC unroll 12
        for (int c = 0; c < CHAINS; c++)
            sums[c] = _mm512_fmadd_ps(sums[c], a, b);
    for (int c = 1; c < CHAINS; c++)
        sums[0] = _mm512_add_ps(sums[0], sums[c]);
    return (double)_mm512_cvtss_f32(sums[0]);
}

__attribute__((target("avx512f,avx512bf16"))) static double chains_avx512bf16(void)
{
    __m512 sums[CHAINS];
    const __m512bh a = (__m512bh)_mm512_set1_epi32(0x3f803f80), b = a; /* 1, 1 */
    for (int c = 0; c < CHAINS; c++)
        sums[c] = _mm512_setzero_ps();
    for (int i = 0; i < STEPS; i++)
#pragma GCC unroll 12
        for (int c = 0; c < CHAINS; c++)
            sums[c] = _mm512_dpbf16_ps(sums[c], a, b);
    for (int c = 1; c < CHAINS; c++)
        sums[0] = _mm512_add_ps(sums[0], sums[c]);
    return (double)_mm512_cvtss_f32(sums[0]);
}

__attribute__((target("avx512f,avx512vnni"))) static double chains_avx512vnni(void)
{
    __m512i sums[CHAINS];
    const __m512i a = _mm512_set1_epi8(1), b = a;
    for (int c = 0; c < CHAINS; c++)
        sums[c] = _mm512_setzero_si512();
    for (int i = 0; i < STEPS; i++)
#pragma GCC unroll 12
        for (int c = 0; c < CHAINS; c++)
            sums[c] = _mm512_dpbusd_epi32(sums[c], a, b);
    for (int c = 1; c < CHAINS; c++)
        sums[0] = _mm512_max_epi32(sums[0], sums[c]);
    return (double)_mm_cvtsi128_si32(_mm512_castsi512_si128(sums[0]));
}

/* AMX: four sums, tiles of zeros, CHAINS / 4 products in turn on each. */
static void shape_tiles(void)
{
    struct {
        uint8_t palette, start_row, none[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } shape = {.palette = 1};
    for (int i = 0; i < 6; i++)
        shape.bytes[i] = 64, shape.rows[i] = 16;
    __asm__ volatile("ldtilecfg %0\n\ttilezero %%tmm0\n\ttilezero %%tmm1\n\ttilezero %%tmm2\n\t"
                     "tilezero %%tmm3\n\ttilezero %%tmm4\n\ttilezero %%tmm5" ::"m"(shape));
}

#define FOUR_DOTS(dot)                                                                             \
    __asm__ volatile(dot " %%tmm4,%%tmm5,%%tmm0\n\t" dot " %%tmm4,%%tmm5,%%tmm1\n\t" dot           \
                         " %%tmm4,%%tmm5,%%tmm2\n\t" dot " %%tmm4,%%tmm5,%%tmm3" ::)

static double chains_amx_bf16(void)
{
    shape_tiles();
    for (int i = 0; i < STEPS / TILE_STEPS * CHAINS / 4; i++)
        FOUR_DOTS("tdpbf16ps");
    __asm__ volatile("tilerelease" ::);
    return 1;
}

static double chains_amx_i8(void)
{
    shape_tiles();
    for (int i = 0; i < STEPS / TILE_STEPS * CHAINS / 4; i++)
        FOUR_DOTS("tdpbssd");
    __asm__ volatile("tilerelease" ::);
    return 1;
}

__attribute__((target("avx2"), always_inline)) static inline uint64_t
read_lines(const uint64_t *memory, int64_t words, int ahead)
{
    __m256i sums[4];
    for (int c = 0; c < 4; c++)
        sums[c] = _mm256_setzero_si256();
    for (int64_t i = 0; i + 16 <= words; i += 16) {
        if (ahead) { /* the next page's turn is near */
            _mm_prefetch((const char *)(memory + i + 512), _MM_HINT_T0);
            _mm_prefetch((const char *)(memory + i + 520), _MM_HINT_T0);
        }
        for (int c = 0; c < 4; c++)
            sums[c] = _mm256_xor_si256(
                sums[c], _mm256_load_si256((const __m256i *)(const void *)(memory + i + 4 * c)));
    }
    for (int c = 1; c < 4; c++)
        sums[0] = _mm256_xor_si256(sums[0], sums[c]);
    return (uint64_t)_mm256_extract_epi64(sums[0], 0);
}

__attribute__((target("avx2"))) static uint64_t read_avx2(const uint64_t *memory, int64_t words)
{
    return read_lines(memory, words, 0);
}

__attribute__((target("avx2"))) static uint64_t read_ahead(const uint64_t *memory, int64_t words)
{
    return read_lines(memory, words, 1);
}
#endif

static uint64_t read_portable(const uint64_t *memory, int64_t words)
{
    uint64_t sums[4] = {0};
    for (int64_t i = 0; i + 4 <= words; i += 4)
        for (int c = 0; c < 4; c++)
            sums[c] ^= memory[i + c];
    return sums[0] ^ sums[1] ^ sums[2] ^ sums[3];
}

typedef struct chain_kernel {
    uint32_t cpu;
    s24_dtype dtype; /* of the factors; NONE: any that is computed in f32 */
    double (*run)(void);
    double flops; /* a step of a chain */
} chain_kernel;

/* Finds the first row that fits. */
static const chain_kernel chain_kernels[] = {
#if defined(__x86_64__)
    {S24_CPU_AMX, S24_BF16, chains_amx_bf16, 16384 / TILE_STEPS},
    {S24_CPU_AMX, S24_I8, chains_amx_i8, 32768 / TILE_STEPS},
    {S24_CPU_AVX512VNNI, S24_I8, chains_avx512vnni, 128},
    {S24_CPU_AVX512BF16, S24_BF16, chains_avx512bf16, 64},
    {S24_CPU_AVX512, S24_DTYPE_NONE, chains_avx512, 32},
    {S24_CPU_AVX2, S24_DTYPE_NONE, chains_avx2, 16},
#endif
    {0, S24_DTYPE_NONE, chains_portable, 2},
};

static const chain_kernel *choose(const probe *p)
{
    const chain_kernel *kernel = chain_kernels;
    while ((kernel->cpu & p->cpu) != kernel->cpu ||
           (kernel->dtype != S24_DTYPE_NONE && kernel->dtype != p->dtype))
        kernel++;
    return kernel;
}

static void compute(void *arg, int64_t begin, int64_t end, int thread)
{
    probe *p = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        double total = choose(p)->run();
        if (total < 0) /* never: the sums are positive */
            p->sink = total;
    }
}

static void read_plain(void *arg, int64_t begin, int64_t end, int thread)
{
    probe *p = arg;
    (void)thread;
    uint64_t total;
#if defined(__x86_64__)
    if (p->cpu & S24_CPU_AVX2)
        total = read_avx2(p->memory + 16 * begin, 16 * (end - begin));
    else
#endif
        total = read_portable(p->memory + 16 * begin, 16 * (end - begin));
    if (total == 1) /* the memory holds one value twice as often as needed for 0 */
        p->sink = (double)total;
}

/* Reads the same, with lines asked for 4 KiB early. */
static void read_asked(void *arg, int64_t begin, int64_t end, int thread)
{
#if defined(__x86_64__)
    probe *p = arg;
    if (p->cpu & S24_CPU_AVX2) {
        if (read_ahead(p->memory + 16 * begin, 16 * (end - begin)) == 1) p->sink = 1;
        return;
    }
#endif
    read_plain(arg, begin, end, thread);
}

static int run_plain(void *state)
{
    probe *p = state;
    s24_ctx_parallel_for(p->ctx, p->bytes / LINE_PAIR, read_plain, p);
    return 0;
}

static int run_asked(void *state)
{
    probe *p = state;
    s24_ctx_parallel_for(p->ctx, p->bytes / LINE_PAIR, read_asked, p);
    return 0;
}

void bench_limit_turns(bench_turn turns[BENCH_READS], const bench_table *table)
{
    turns[0] = (bench_turn){.run = run_plain, .state = table->probe};
    turns[1] = (bench_turn){.run = run_asked, .state = table->probe};
}

double bench_limit_read(const bench_turn turns[BENCH_READS], const bench_table *table)
{
    const double plain = turns[0].times.median, asked = turns[1].times.median;
    return (double)table->probe->bytes / (plain < asked ? plain : asked);
}

void bench_limits_free(bench_table *table)
{
    if (table->probe) s24_ctx_free(table->probe->ctx, table->probe->memory);
    free(table->probe);
    free(table->limits);
}

/* Takes twice the last-level cache, within bounds. */
static int64_t read_bytes(void)
{
    int64_t bytes = 0;
#if defined(_SC_LEVEL3_CACHE_SIZE)
    bytes = 2 * (int64_t)sysconf(_SC_LEVEL3_CACHE_SIZE);
#endif
    bytes = bytes < READ_LEAST ? READ_LEAST : bytes > READ_MOST ? READ_MOST : bytes;
    return bytes / READ_LEAST * READ_LEAST;
}

/* Gives a second's worth, at the best try, of fn over count. */
static double best_rate(s24_ctx *ctx, probe *p, int64_t count,
                        void (*fn)(void *arg, int64_t begin, int64_t end, int thread))
{
    double best = 0;
    for (int i = 0; i < TRIES; i++) {
        double start = cli_seconds();
        s24_ctx_parallel_for(ctx, count, fn, p);
        double rate = (double)count / (cli_seconds() - start);
        best = rate > best ? rate : best;
    }
    return best;
}

static double compute_rate(s24_ctx *ctx, probe *p, int threads, s24_dtype dtype)
{
    p->dtype = dtype;
    return best_rate(ctx, p, threads, compute) * choose(p)->flops * CHAINS * STEPS;
}

/* Finds the limit of integers with x in f32: as floats, or with x in three bytes. */
static double mixed_rate(s24_ctx *ctx, probe *p, const bench_limit *limit)
{
    const double floats = compute_rate(ctx, p, limit->threads, S24_F32);
    p->dtype = S24_I8;
    if (choose(p)->dtype != S24_I8) return floats;
    return limit->flops / 3 > floats ? limit->flops / 3 : floats;
}

int bench_limits_measure(cli_app *cli, bench_table *table, const bench_plan *plan)
{
    s24_ctx *ctx = cli->ctx;
    const int64_t bytes = read_bytes();
    probe *p = table->probe = calloc(1, sizeof *p);
    table->limits = calloc((size_t)(plan->dtype_count * plan->thread_count), sizeof *table->limits);
    if (p) *p = (probe){ctx, .cpu = s24_ctx_cpu(ctx), .bytes = bytes};
    if (p) p->memory = s24_ctx_alloc(ctx, (size_t)bytes);
    if (!p || !p->memory || !table->limits)
        return cli_fail(cli, CLI_IO, "out of memory for the %lld bytes of the read test",
                        (long long)bytes);
    for (int64_t i = 0; i < bytes / (int64_t)sizeof *p->memory; i++)
        p->memory[i] = 2; /* every page its own */
    for (int d = 0; d < plan->dtype_count; d++)
        for (int t = 0; t < plan->thread_count; t++) {
            bench_limit *limit = &table->limits[table->limit_count++];
            *limit = (bench_limit){.threads = (int)plan->threads[t],
                                   .dtype = plan->dtypes[d],
                                   .scheme = plan->schemes[d]};
            s24_ctx_set_threads(ctx, limit->threads);
            limit->flops = compute_rate(ctx, p, limit->threads, limit->dtype);
            if (limit->scheme) limit->flops = mixed_rate(ctx, p, limit);
            /* Memory does not know the dtype. */
            limit->bytes = d ? table->limits[t].bytes
                             : best_rate(ctx, p, bytes / LINE_PAIR, read_asked) * LINE_PAIR;
        }
    return CLI_OK;
}
