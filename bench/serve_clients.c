// SPDX-License-Identifier: Apache-2.0
/*
 * Clients of an HTTP server that each ask for one text after another: what bench/serve_load.py does
 * in Python, at a tenth of its cost, so that a server whose cores the clients share is measured and
 * not they.
 *
 *     cc -O2 -pthread bench/serve_clients.c -o serve_clients -lm
 *     serve_clients REQUESTS HOST PORT CLIENTS SECONDS THREADS SEED
 *
 * REQUESTS has for each text two numbers of 32 bits, its tokens and the bytes of its request, and
 * then the request (serve_load.py writes it). Every answer is held against the first one of its
 * text by their cosine. Prints JSON: texts, tokens, seconds, p50_ms, p99_ms, least_cosine, own (the
 * clients' seconds on the CPU). What is on its way at the end is answered and not counted.
 */
#define _GNU_SOURCE /* strcasestr */
#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { ROOM = 1 << 16, MOST_LATENCIES = 1 << 22, EVENTS = 64 };

typedef struct request {
    uint32_t tokens, bytes;
    const char *data;
} request;

typedef struct client {
    int fd;
    uint32_t number;
    double began;
    size_t read, whole; /* bytes; whole 0: the head is not there yet */
    size_t head;
    char data[ROOM];
} client;

typedef struct first_answer {
    pthread_mutex_t lock;
    float *vector;
    size_t count;
} first_answer;

typedef struct worker {
    pthread_t thread;
    int clients;
    uint64_t chance;
    float *latencies;
    size_t count;
    int64_t tokens;
    double least;
} worker;

static struct sockaddr_in address;
static request *requests;
static uint32_t request_count;
static first_answer *firsts;
static double began, seconds;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "serve_clients: %s: %s\n", what, why);
    exit(1);
}

static uint32_t draw(worker *w)
{
    w->chance = w->chance * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(w->chance >> 33) % request_count;
}

static void ask(worker *w, client *c)
{
    c->number = draw(w);
    c->read = c->whole = 0;
    c->began = now();
    const request *r = &requests[c->number];
    for (size_t sent = 0; sent < r->bytes;) {
        const ssize_t n = send(c->fd, r->data + sent, r->bytes - sent, MSG_NOSIGNAL);
        if (n < 0) fail("send", strerror(errno));
        sent += (size_t)n;
    }
}

static client *new_client(worker *w, int poll)
{
    const int on = 1;
    client *c = calloc(1, sizeof *c);
    if (!c) fail("memory", "none is left");
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&address, sizeof address) != 0)
        fail("connect", strerror(errno));
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    epoll_ctl(poll, EPOLL_CTL_ADD, c->fd, &event);
    ask(w, c);
    return c;
}

static signed char values[256];

static void make_values(void)
{
    const char *letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (int i = 0; i < 64; i++)
        values[(unsigned char)letters[i]] = (signed char)i;
}

/* The numbers of a text in base64 of 4 letters for 3 bytes; returns how many. */
static size_t decode(float *to, const char *from, size_t letters)
{
    unsigned char *out = (unsigned char *)to;
    const unsigned char *in = (const unsigned char *)from;
    for (size_t i = 0; i + 3 < letters; i += 4) {
        const uint32_t bits = (uint32_t)values[in[i]] << 18 | (uint32_t)values[in[i + 1]] << 12 |
                              (uint32_t)values[in[i + 2]] << 6 | (uint32_t)values[in[i + 3]];
        *out++ = (unsigned char)(bits >> 16);
        *out++ = (unsigned char)(bits >> 8);
        *out++ = (unsigned char)bits;
    }
    return letters / 4 * 3 / sizeof *to;
}

/* The cosine of an answer with the first one of its text. */
static double likeness(const client *c)
{
    static __thread float vector[ROOM / 4];
    const char *text = strstr(c->data + c->head, "\"embedding\":\"");
    if (!text) text = strstr(c->data + c->head, "\"embedding\": \"");
    if (!text) fail("an answer without a vector", c->data);
    text = strchr(text + 11, '"') + 1;
    const size_t letters = strcspn(text, "\"");
    const size_t count = decode(vector, text, letters);
    first_answer *f = &firsts[c->number];
    pthread_mutex_lock(&f->lock);
    if (!f->vector) {
        f->vector = malloc(count * sizeof *vector);
        if (!f->vector) fail("memory", "none is left");
        memcpy(f->vector, vector, count * sizeof *vector);
        f->count = count;
    }
    pthread_mutex_unlock(&f->lock);
    double sum = 0, own = 0, other = 0;
    for (size_t i = 0; i < count && i < f->count; i++) {
        sum += (double)vector[i] * (double)f->vector[i];
        own += (double)vector[i] * (double)vector[i];
        other += (double)f->vector[i] * (double)f->vector[i];
    }
    return sum / sqrt(own * other);
}

/* Reads what there is; 1: the answer is whole. */
static int take(client *c)
{
    const ssize_t n = recv(c->fd, c->data + c->read, ROOM - 1 - c->read, 0);
    if (n <= 0) fail("recv", n ? strerror(errno) : "the connection ended");
    c->read += (size_t)n;
    c->data[c->read] = '\0';
    if (!c->whole) {
        const char *end = strstr(c->data, "\r\n\r\n");
        const char *length = strcasestr(c->data, "content-length: ");
        if (!end) return 0;
        if (strncmp(c->data, "HTTP/1.1 200", 12) != 0 || !length || length > end)
            fail("an answer", c->data);
        c->head = (size_t)(end - c->data) + 4;
        c->whole = c->head + strtoul(length + 16, NULL, 10);
        if (c->whole >= ROOM) fail("an answer", "it is too long");
    }
    return c->read >= c->whole;
}

static void count_answer(worker *w, const client *c)
{
    if (w->count < MOST_LATENCIES) w->latencies[w->count++] = (float)(now() - c->began);
    w->tokens += requests[c->number].tokens;
    const double like = likeness(c);
    if (like < w->least) w->least = like;
}

static void *work(void *own)
{
    worker *w = own;
    const int poll = epoll_create1(0);
    struct epoll_event events[EVENTS];
    int left = w->clients;
    for (int i = 0; i < w->clients; i++)
        (void)new_client(w, poll);
    while (left) {
        const int ready = epoll_wait(poll, events, EVENTS, 60000);
        if (ready <= 0) fail("answers", "none came for a minute");
        for (int i = 0; i < ready; i++) {
            client *c = events[i].data.ptr;
            if (!take(c)) continue;
            if (now() < began + seconds) {
                count_answer(w, c);
                ask(w, c);
                continue;
            }
            close(c->fd);
            free(c);
            left--;
        }
    }
    close(poll);
    return NULL;
}

static void read_requests(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file || fread(&request_count, sizeof request_count, 1, file) != 1)
        fail(path, "cannot be read");
    requests = calloc(request_count, sizeof *requests);
    firsts = calloc(request_count, sizeof *firsts);
    for (uint32_t i = 0; i < request_count; i++) {
        char *data;
        request *r = &requests[i];
        if (fread(r, sizeof(uint32_t), 2, file) != 2 || !(data = malloc(r->bytes)) ||
            fread(data, 1, r->bytes, file) != r->bytes)
            fail(path, "it is cut");
        r->data = data;
        pthread_mutex_init(&firsts[i].lock, NULL);
    }
    fclose(file);
}

static int compare(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void tell(const worker *workers, int count)
{
    struct rusage used;
    size_t texts = 0;
    int64_t tokens = 0;
    double least = 1;
    const double took = seconds;
    for (int i = 0; i < count; i++)
        texts += workers[i].count;
    float *all = malloc((texts + 1) * sizeof *all);
    if (!all) fail("memory", "none is left");
    texts = 0;
    for (int i = 0; i < count; i++) {
        memcpy(all + texts, workers[i].latencies, workers[i].count * sizeof *all);
        texts += workers[i].count;
        tokens += workers[i].tokens;
        if (workers[i].least < least) least = workers[i].least;
    }
    if (!texts) fail("answers", "none came in the time");
    qsort(all, texts, sizeof *all, compare);
    getrusage(RUSAGE_SELF, &used);
    printf("{\"texts\": %zu, \"tokens\": %lld, \"seconds\": %.6f, \"p50_ms\": %.4f, "
           "\"p99_ms\": %.4f, \"least_cosine\": %.9f, \"own\": %.6f}\n",
           texts, (long long)tokens, took, 1e3 * (double)all[texts / 2],
           1e3 * (double)all[texts * 99 / 100], least,
           (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
               1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec));
}

int main(int count, char **given)
{
    if (count != 8) fail("REQUESTS HOST PORT CLIENTS SECONDS THREADS SEED", "are expected");
    address =
        (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(given[3]))};
    if (inet_pton(AF_INET, given[2], &address.sin_addr) != 1) fail(given[2], "it is no address");
    const int clients = atoi(given[4]), threads = atoi(given[6]);
    make_values();
    read_requests(given[1]);
    seconds = atof(given[5]);
    worker *workers = calloc((size_t)threads, sizeof *workers);
    began = now();
    for (int i = 0; i < threads; i++) {
        worker *w = &workers[i];
        w->clients = clients * (i + 1) / threads - clients * i / threads;
        w->chance = (uint64_t)atoll(given[7]) * 64 + (uint64_t)i + 1;
        w->least = 1;
        w->latencies = malloc(MOST_LATENCIES * sizeof *w->latencies);
        if (!w->latencies || pthread_create(&w->thread, NULL, work, w)) fail("threads", "none");
    }
    for (int i = 0; i < threads; i++)
        pthread_join(workers[i].thread, NULL);
    tell(workers, threads);
    return 0;
}
