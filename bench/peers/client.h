/* What both C clients need: a clock, name=value arguments, percentiles, threads that start together. */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BODY_SIZE 1024
#define MAX_SENDERS 64

static int argument_count;
static char **arguments;

static void fail(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why ? why : "");
    exit(1);
}

static const char *text(const char *name, const char *otherwise) {
    size_t length = strlen(name);
    for (int i = 1; i < argument_count; i++)
        if (!strncmp(arguments[i], name, length) && arguments[i][length] == '=')
            return arguments[i] + length + 1;
    return otherwise;
}

static long number(const char *name, long otherwise) {
    const char *value = text(name, NULL);
    return value ? atol(value) : otherwise;
}

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_seconds(double seconds) { printf("{\"seconds\": %.9f}\n", seconds); }

static void print_percentiles(double *seconds, long count) {
    qsort(seconds, (size_t)count, sizeof *seconds, by_value);
    printf("{\"p50\": %.3f, \"p99\": %.3f}\n", seconds[count / 2] * 1e6, seconds[count * 99 / 100] * 1e6);
}

static const char *body(void) {
    static char bytes[BODY_SIZE];
    for (int i = 0; i < BODY_SIZE; i++)
        bytes[i] = (char)(33 + i * 7 % 90);
    return bytes;
}

/* Runs `work` in `count` threads and returns the seconds from when all are ready until all have ended. */
static pthread_barrier_t ready;

static double together(void *(*work)(void *), long count, void **each) {
    pthread_t threads[MAX_SENDERS];
    if (count > MAX_SENDERS)
        fail("senders", "too many");
    pthread_barrier_init(&ready, NULL, (unsigned)count + 1);
    for (long i = 0; i < count; i++)
        pthread_create(&threads[i], NULL, work, each ? each[i] : NULL);
    pthread_barrier_wait(&ready);
    double start = now();
    for (long i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    return now() - start;
}
