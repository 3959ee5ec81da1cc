// SPDX-License-Identifier: Apache-2.0
/* NCCL between threads of one process, whose device memory is the host's: what calls begin is done
   when all ranks have called, or when somebody ends it, and a communicator takes nothing else
   before. Ranks that sum something else are told so, and so is a thread whose current device is not
   the communicator's (the first one is nobody's here). The environment says what goes wrong:
   S24_FAKE_NCCL is "RANK AFTER", that rank's sum of that number fails; S24_FAKE_NCCL_INIT is "RANK"
   whose connecting fails, or "hangs". Sums of 16 bits, bf16, are counted: fake_nccl_sums; and all
   calls that ranks make together: fake_nccl_calls. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 8, UINT8 = 1, F32 = 7, F64 = 8, BF16 = 9 };
enum { OK = 0, SYSTEM = 2, USAGE = 5, IN_PROGRESS = 7 };

typedef struct nccl_id {
    char bytes[128];
} nccl_id;

typedef struct nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking;
} nccl_config;

typedef struct comm {
    int rank, world, aborted, device;
    int64_t sums;
    int64_t init, turn; /* the world and the call that it waits for to be counted; −1: none */
} comm;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    void *data[RANKS];
    int64_t turn; /* calls that all have made */
    size_t count;
    int type, came, wrong, ended; /* ended: a rank has, and no call comes to its end */
} now;

static comm ranks[RANKS];
static int64_t worlds;        /* that were connected */
static int here;              /* ranks of the next one */
static int64_t narrow[RANKS]; /* sums of 16 bits that a rank asked for */
static int64_t calls[RANKS];  /* of all ranks together */

#define NCCL_FUNCTION(name, ...) int nccl##name(__VA_ARGS__);
#include "comm/nccl_functions.def"
#undef NCCL_FUNCTION
/* Begins the definition of one of them. */
#define NCCL(name, ...) int nccl##name(__VA_ARGS__)
const char *ncclGetErrorString(int result);

NCCL(GetUniqueId, nccl_id *out)
{
    memset(out, 0, sizeof *out);
    strcpy(out->bytes, "the world of rank 0");
    return OK;
}

/* The calling thread's, as the plugin's fake has it. */
static int current_device(void)
{
    int (*current)(void);
    void *plugin = dlopen(S24_FAKE_PLUGIN, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    void *symbol = plugin ? dlsym(plugin, "fake_device_current") : NULL;
    if (!symbol) return 0;
    memcpy(&current, &symbol, sizeof current);
    const int device = current();
    dlclose(plugin);
    return device;
}

NCCL(CommInitRankConfig, void **out, int world, nccl_id of, int rank, nccl_config *config)
{
    const char *fault = getenv("S24_FAKE_NCCL_INIT");
    if (strcmp(of.bytes, "the world of rank 0") != 0 || world > RANKS || !current_device() ||
        config->size != sizeof *config || config->magic != 0xcafebeefu || config->blocking)
        return USAGE;
    if (fault && *fault == '0' + rank) return SYSTEM;
    comm *c = *out = &ranks[rank];
    pthread_mutex_lock(&lock);
    *c = (comm){
        .rank = rank, .world = world, .device = current_device(), .init = worlds, .turn = -1};
    if (!fault && ++here == world) {
        here = now.came = now.wrong = now.ended = 0;
        worlds++;
    }
    pthread_mutex_unlock(&lock);
    return IN_PROGRESS;
}

/* What was counted since it was asked for last. */
static int64_t take_count(int64_t *counter)
{
    pthread_mutex_lock(&lock);
    const int64_t count = *counter;
    *counter = 0;
    pthread_mutex_unlock(&lock);
    return count;
}

int64_t fake_nccl_sums(int rank);
int64_t fake_nccl_sums(int rank)
{
    return take_count(&narrow[rank]);
}

int64_t fake_nccl_calls(int rank);
int64_t fake_nccl_calls(int rank)
{
    return take_count(&calls[rank]);
}

/* bf16's bits are the upper half of f32's. */
static double widen(uint16_t bits)
{
    const uint32_t wide = (uint32_t)bits << 16;
    float x;
    memcpy(&x, &wide, sizeof x);
    return (double)x;
}

static uint16_t narrowed(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static double value_of(const void *data, size_t i)
{
    if (now.type == BF16) return widen(((const uint16_t *)data)[i]);
    return now.type == F64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

static void add_up(int world)
{
    for (size_t i = 0; i < now.count; i++) {
        double sum = 0;
        for (int r = 0; r < world; r++)
            sum += value_of(now.data[r], i);
        for (int r = 0; r < world; r++)
            if (now.type == BF16)
                ((uint16_t *)now.data[r])[i] = narrowed((float)sum);
            else if (now.type == F64)
                ((double *)now.data[r])[i] = sum;
            else
                ((float *)now.data[r])[i] = (float)sum;
    }
}

static void send(int world, int root)
{
    for (int r = 0; r < world; r++)
        if (r != root) memcpy(now.data[r], now.data[root], now.count);
}

/* Is the thread where the communicator is, and has that nothing to do? */
static int is_free(const comm *c)
{
    return current_device() == c->device && !c->aborted && c->turn < 0;
}

/* All ranks in one call; root −1: a sum. */
static int together(comm *c, void *data, size_t count, int type, int root)
{
    pthread_mutex_lock(&lock);
    if (!is_free(c)) {
        pthread_mutex_unlock(&lock);
        return USAGE;
    }
    calls[c->rank]++;
    if (now.came && (now.count != count || now.type != type)) now.wrong = 1;
    now.count = count;
    now.type = type;
    now.data[c->rank] = data;
    c->turn = now.turn;
    if (++now.came == c->world && !now.ended) {
        if (!now.wrong && root < 0) add_up(c->world);
        if (!now.wrong && root >= 0) send(c->world, root);
        now.came = 0;
        now.turn++;
    }
    pthread_mutex_unlock(&lock);
    return IN_PROGRESS;
}

NCCL(AllReduce, const void *from, void *to, size_t count, int type, int sum, void *of, void *s)
{
    comm *c = of;
    int rank = -1, after = 0;
    const char *fault = getenv("S24_FAKE_NCCL");
    if (fault) (void)sscanf(fault, "%d %d", &rank, &after);
    if (from != to || sum != 0 || !s || (type != F32 && type != F64 && type != BF16)) return USAGE;
    if (c->rank == rank && c->sums++ >= after) return SYSTEM;
    pthread_mutex_lock(&lock);
    narrow[c->rank] += type == BF16;
    pthread_mutex_unlock(&lock);
    return together(c, to, count, type, -1);
}

NCCL(Broadcast, const void *from, void *to, size_t count, int type, int root, void *of, void *s)
{
    comm *c = of;
    if (from != to || !s || type != UINT8) return USAGE;
    return together(c, to, count, type, root);
}

NCCL(CommGetAsyncError, void *of, int *error)
{
    comm *c = of;
    pthread_mutex_lock(&lock);
    const int waits = c->init == worlds || c->turn == now.turn;
    if (!waits) c->turn = -1;
    *error = c->aborted ? SYSTEM : waits ? IN_PROGRESS : now.wrong ? USAGE : OK;
    pthread_mutex_unlock(&lock);
    return current_device() == c->device ? OK : USAGE;
}

/* The others' memory is theirs again: what stands here is forgotten. */
NCCL(CommAbort, void *of)
{
    comm *c = of;
    pthread_mutex_lock(&lock);
    c->aborted = 1;
    now.ended = 1;
    if (c->init == worlds) here = 0; /* nor does its world come to be */
    pthread_mutex_unlock(&lock);
    return current_device() == c->device ? OK : USAGE;
}

NCCL(CommDestroy, void *c)
{
    (void)c;
    return OK;
}

const char *ncclGetErrorString(int result)
{
    return result == SYSTEM ? "unhandled system error" : "invalid usage";
}
