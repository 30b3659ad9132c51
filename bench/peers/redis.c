/* A Redis client that is fast enough for the server to be the bottleneck.
 *
 *     redis port=N op=OP key=NAME count=N [per=N] [window=N] [senders=N]
 *
 * OP: send     XADD to a stream, `window` unanswered at most for each sender
 *     one      XADD one at a time
 *     receive  XREADGROUP 100 at a time, then XACK and XDEL of `per` messages each
 *     tx       MULTI, `per` times XADD, EXEC
 *     move     XREADGROUP of `per`, then MULTI, XACK and XDEL, `per` times XADD to another stream, EXEC
 *     express  RPUSH to a list from one connection, LPOP 100 at a time from another
 *     fill     XADD and leave the messages there
 *     first    XRANGE of one message, wait until the server can give it
 * The time printed leaves out connecting and filling. The key is new, and deleted at the end.
 */

#include <hiredis/hiredis.h>
#include <unistd.h>

#include "client.h"

#define READ_COUNT 100
#define MAX_IDS 1000

static const char *key;
static long count, per, window, senders;
static char *add;
static size_t add_size;

static redisContext *connect_or_fail(void) {
    redisContext *c = redisConnect("127.0.0.1", (int)number("port", 6379));
    if (!c || c->err)
        fail("connect", c ? c->errstr : "no memory");
    return c;
}

static redisReply *answer(redisContext *c) {
    redisReply *reply;
    if (redisGetReply(c, (void **)&reply) != REDIS_OK)
        fail("reply", c->errstr);
    if (reply->type == REDIS_REPLY_ERROR)
        fail("reply", reply->str);
    return reply;
}

static void answers(redisContext *c, long expected) {
    while (expected-- > 0)
        freeReplyObject(answer(c));
}

static redisReply *command(redisContext *c, const char *format, const char *argument) {
    redisAppendCommand(c, format, argument);
    return answer(c);
}

/* Half a window of commands goes out while the other half is being answered. */
static void send_window(redisContext *c, long messages, const char *bytes, size_t size) {
    long waiting = 0;
    for (long sent = 0; sent < messages; sent++) {
        redisAppendFormattedCommand(c, bytes, size);
        if (++waiting >= window) {
            long half = (window + 1) / 2;
            answers(c, half);
            waiting -= half;
        }
    }
    answers(c, waiting);
}

static void fill(redisContext *c) { send_window(c, count, add, add_size); }

static void *sender(void *unused) {
    (void)unused;
    redisContext *c = connect_or_fail();
    pthread_barrier_wait(&ready);
    send_window(c, count / senders, add, add_size);
    redisFree(c);
    return NULL;
}

static void one_at_a_time(redisContext *c) {
    double *seconds = malloc((size_t)count * sizeof *seconds);
    for (long i = 0; i < count; i++) {
        double start = now();
        redisAppendFormattedCommand(c, add, add_size);
        answers(c, 1);
        seconds[i] = now() - start;
    }
    print_percentiles(seconds, count);
    free(seconds);
}

/* Reads up to `wanted` new messages for the consumer group; their ids point into the reply. */
static redisReply *read_group(redisContext *c, long wanted, const char **ids, long *found) {
    redisAppendCommand(c, "XREADGROUP GROUP g c COUNT %d STREAMS %s >", (int)wanted, key);
    redisReply *reply = answer(c);
    if (reply->type != REDIS_REPLY_ARRAY)
        fail("XREADGROUP", "the stream ran dry");
    redisReply *messages = reply->element[0]->element[1];
    *found = (long)messages->elements;
    for (long i = 0; i < *found; i++)
        ids[i] = messages->element[i]->element[0]->str;
    return reply;
}

static void append_removal(redisContext *c, const char **ids, long number_of_ids) {
    const char *ack[MAX_IDS + 3] = {"XACK", key, "g"};
    const char *del[MAX_IDS + 2] = {"XDEL", key};
    memcpy(ack + 3, ids, (size_t)number_of_ids * sizeof *ids);
    memcpy(del + 2, ids, (size_t)number_of_ids * sizeof *ids);
    redisAppendCommandArgv(c, (int)number_of_ids + 3, ack, NULL);
    redisAppendCommandArgv(c, (int)number_of_ids + 2, del, NULL);
}

static double receive(redisContext *c) {
    const char *ids[MAX_IDS];
    fill(c);
    freeReplyObject(command(c, "XGROUP CREATE %s g 0", key));
    double start = now();
    for (long done = 0, found; done < count; done += found) {
        redisReply *reply = read_group(c, READ_COUNT, ids, &found);
        long commands = 0;
        for (long i = 0; i < found; i += per, commands += 2)
            append_removal(c, ids + i, found - i < per ? found - i : per);
        answers(c, commands);
        freeReplyObject(reply);
    }
    return now() - start;
}

static double transactions(redisContext *c) {
    double start = now();
    for (long done = 0; done < count; done += per) {
        redisAppendCommand(c, "MULTI");
        for (long i = 0; i < per; i++)
            redisAppendFormattedCommand(c, add, add_size);
        redisAppendCommand(c, "EXEC");
        answers(c, per + 2);
    }
    return now() - start;
}

static double move(redisContext *c) {
    const char *ids[MAX_IDS];
    char target[128], *add_target;
    snprintf(target, sizeof target, "%s-target", key);
    size_t size = (size_t)redisFormatCommand(&add_target, "XADD %s * body %b", target, body(), (size_t)BODY_SIZE);
    fill(c);
    freeReplyObject(command(c, "XGROUP CREATE %s g 0", key));
    double start = now();
    for (long done = 0, found; done < count; done += found) {
        redisReply *reply = read_group(c, per, ids, &found);
        redisAppendCommand(c, "MULTI");
        append_removal(c, ids, found);
        for (long i = 0; i < found; i++)
            redisAppendFormattedCommand(c, add_target, size);
        redisAppendCommand(c, "EXEC");
        answers(c, found + 4);
        freeReplyObject(reply);
    }
    double seconds = now() - start;
    freeReplyObject(command(c, "DEL %s", target));
    return seconds;
}

static void *express_sender(void *unused) {
    (void)unused;
    char *push;
    size_t size = (size_t)redisFormatCommand(&push, "RPUSH %s %b", key, body(), (size_t)BODY_SIZE);
    redisContext *c = connect_or_fail();
    pthread_barrier_wait(&ready);
    send_window(c, count, push, size);
    redisFree(c);
    return NULL;
}

static void *express_receiver(void *unused) {
    (void)unused;
    redisContext *c = connect_or_fail();
    pthread_barrier_wait(&ready);
    for (long taken = 0; taken < count;) {
        redisReply *reply = command(c, "LPOP %s 100", key);
        if (reply->type == REDIS_REPLY_ARRAY) {
            taken += (long)reply->elements;
        } else {
            freeReplyObject(reply);
            reply = command(c, "BLPOP %s 0", key);
            taken++;
        }
        freeReplyObject(reply);
    }
    redisFree(c);
    return NULL;
}

static void *express_part(void *part) { return ((void *(*)(void *))part)(NULL); }

static void wait_for_first(void) {
    for (;; usleep(10000)) {
        redisContext *c = redisConnect("127.0.0.1", (int)number("port", 6379));
        redisReply *reply = !c || c->err ? NULL : redisCommand(c, "XRANGE %s - + COUNT 1", key);
        /* A server that is loading its file answers with an error. */
        if (reply && reply->type == REDIS_REPLY_ARRAY && reply->elements == 1)
            return;
        if (reply)
            freeReplyObject(reply);
        if (c)
            redisFree(c);
    }
}

int main(int argc, char **argv) {
    argument_count = argc;
    arguments = argv;
    const char *op = text("op", "send");
    key = text("key", "bench");
    count = number("count", 1000);
    per = number("per", 1);
    window = number("window", 1000);
    senders = number("senders", 1);
    if (per > MAX_IDS)
        fail("per", "too many");
    add_size = (size_t)redisFormatCommand(&add, "XADD %s * body %b", key, body(), (size_t)BODY_SIZE);

    if (!strcmp(op, "first")) {
        wait_for_first();
        return 0;
    }
    redisContext *c = connect_or_fail();
    if (!strcmp(op, "fill")) {
        double start = now();
        fill(c);
        print_seconds(now() - start);
        return 0;
    }
    if (!strcmp(op, "send"))
        print_seconds(together(sender, senders, NULL));
    else if (!strcmp(op, "one"))
        one_at_a_time(c);
    else if (!strcmp(op, "receive"))
        print_seconds(receive(c));
    else if (!strcmp(op, "tx"))
        print_seconds(transactions(c));
    else if (!strcmp(op, "move"))
        print_seconds(move(c));
    else if (!strcmp(op, "express"))
        print_seconds(together(express_part, 2, (void *[]){express_receiver, express_sender}));
    else
        fail("op", op);
    freeReplyObject(command(c, "DEL %s", key));
    return 0;
}
