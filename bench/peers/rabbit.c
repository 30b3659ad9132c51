/* A RabbitMQ client that is fast enough for the broker to be the bottleneck.
 *
 *     rabbit port=N op=OP queue=NAME type=quorum|classic count=N [per=N] [window=N] [senders=N] [confirm=0|1]
 *
 * OP: send     publish persistent messages, `window` unconfirmed at most for each sender
 *     one      publish one at a time, each confirmed before the next
 *     receive  consume, one acknowledgment per `per` messages
 *     tx       publish in transactions of `per`
 *     move     consume one and publish one, `per` times in each transaction
 *     express  transient messages from one connection to another
 *     fill     publish and leave the messages there
 *     first    get one message, wait until the broker can give it
 * The time printed leaves out connecting, declaring and filling. The queue is new, and deleted at the end.
 */

#include <amqp.h>
#include <amqp_tcp_socket.h>
#include <unistd.h>

#include "client.h"

typedef amqp_connection_state_t Connection;

static const char *queue, *type;
static long count, per, window, senders, confirm;
static amqp_bytes_t payload;

static void check(amqp_rpc_reply_t reply, const char *what) {
    if (reply.reply_type == AMQP_RESPONSE_NORMAL)
        return;
    if (reply.reply_type == AMQP_RESPONSE_SERVER_EXCEPTION && reply.reply.id == AMQP_CHANNEL_CLOSE_METHOD) {
        amqp_channel_close_t *closed = reply.reply.decoded;
        fail(what, (const char *)closed->reply_text.bytes);
    }
    fail(what, amqp_error_string2(reply.library_error));
}

static Connection try_connect(void) {
    Connection c = amqp_new_connection();
    amqp_socket_t *socket = amqp_tcp_socket_new(c);
    if (amqp_socket_open(socket, "127.0.0.1", (int)number("port", 5672)) == AMQP_STATUS_OK &&
        amqp_login(c, "/", 0, 131072, 0, AMQP_SASL_METHOD_PLAIN, "guest", "guest").reply_type == AMQP_RESPONSE_NORMAL &&
        amqp_channel_open(c, 1))
        return c;
    amqp_destroy_connection(c);
    return NULL;
}

static Connection connect_or_fail(void) {
    Connection c = try_connect();
    if (!c)
        fail("connect", "refused");
    return c;
}

static void declare(Connection c, const char *name, int durable) {
    amqp_table_entry_t entry = {.key = amqp_cstring_bytes("x-queue-type"),
                                .value = {.kind = AMQP_FIELD_KIND_UTF8, .value.bytes = amqp_cstring_bytes(type)}};
    amqp_table_t table = {.num_entries = 1, .entries = &entry};
    amqp_queue_declare(c, 1, amqp_cstring_bytes(name), 0, (amqp_boolean_t)durable, 0, 0, table);
    check(amqp_get_rpc_reply(c), "queue.declare");
}

static void delete_queue(Connection c, const char *name) {
    amqp_queue_delete(c, 1, amqp_cstring_bytes(name), 0, 0);
    check(amqp_get_rpc_reply(c), "queue.delete");
}

static void publish(Connection c, const char *name, int persistent) {
    amqp_basic_properties_t properties = {._flags = AMQP_BASIC_DELIVERY_MODE_FLAG,
                                          .delivery_mode = persistent ? 2 : 1};
    int status = amqp_basic_publish(c, 1, amqp_empty_bytes, amqp_cstring_bytes(name), 0, 0, &properties, payload);
    if (status != AMQP_STATUS_OK)
        fail("basic.publish", amqp_error_string2(status));
}

/* Waits for one basic.ack and returns up to which message everything is confirmed. Confirms may come
   out of order from several queues, but there is one queue and it confirms in order. */
static uint64_t next_confirm(Connection c) {
    amqp_frame_t frame;
    amqp_maybe_release_buffers(c);
    int status = amqp_simple_wait_frame(c, &frame);
    if (status != AMQP_STATUS_OK)
        fail("confirm", amqp_error_string2(status));
    if (frame.frame_type != AMQP_FRAME_METHOD || frame.payload.method.id != AMQP_BASIC_ACK_METHOD)
        fail("confirm", "something else than basic.ack came");
    return ((amqp_basic_ack_t *)frame.payload.method.decoded)->delivery_tag;
}

static void send_window(Connection c, const char *name, long messages, int persistent) {
    uint64_t confirmed = 0;
    for (long sent = 1; sent <= messages; sent++) {
        publish(c, name, persistent);
        while ((uint64_t)sent - confirmed >= (uint64_t)window)
            confirmed = next_confirm(c);
    }
    while (confirmed < (uint64_t)messages)
        confirmed = next_confirm(c);
}

static Connection confirming(void) {
    Connection c = connect_or_fail();
    amqp_confirm_select(c, 1);
    check(amqp_get_rpc_reply(c), "confirm.select");
    return c;
}

static void fill(const char *name) {
    Connection c = confirming();
    send_window(c, name, count, 1);
    amqp_destroy_connection(c);
}

static void *sender(void *unused) {
    (void)unused;
    Connection c = confirming();
    pthread_barrier_wait(&ready);
    send_window(c, queue, count / senders, 1);
    amqp_destroy_connection(c);
    return NULL;
}

static void one_at_a_time(void) {
    Connection c = confirming();
    double *seconds = malloc((size_t)count * sizeof *seconds);
    for (long i = 0; i < count; i++) {
        double start = now();
        publish(c, queue, 1);
        next_confirm(c);
        seconds[i] = now() - start;
    }
    print_percentiles(seconds, count);
    free(seconds);
}

static void consume(Connection c, const char *name, long prefetch, int no_ack) {
    if (prefetch)
        amqp_basic_qos(c, 1, 0, (uint16_t)prefetch, 0);
    amqp_basic_consume(c, 1, amqp_cstring_bytes(name), amqp_empty_bytes, 0, (amqp_boolean_t)no_ack, 0, amqp_empty_table);
    check(amqp_get_rpc_reply(c), "basic.consume");
}

static uint64_t take(Connection c) {
    amqp_envelope_t envelope;
    amqp_maybe_release_buffers(c);
    check(amqp_consume_message(c, &envelope, NULL, 0), "consume");
    uint64_t tag = envelope.delivery_tag;
    amqp_destroy_envelope(&envelope);
    return tag;
}

static double receive(void) {
    fill(queue);
    Connection c = connect_or_fail();
    double start = now();
    consume(c, queue, window, 0);
    for (long i = 1; i <= count; i++) {
        uint64_t tag = take(c);
        if (i % per == 0 || i == count)
            amqp_basic_ack(c, 1, tag, per > 1);
    }
    amqp_channel_close(c, 1, AMQP_REPLY_SUCCESS); /* answered when the channel has handled every acknowledgment */
    double seconds = now() - start;
    amqp_destroy_connection(c);
    return seconds;
}

static Connection transactional(void) {
    Connection c = connect_or_fail();
    amqp_tx_select(c, 1);
    check(amqp_get_rpc_reply(c), "tx.select");
    return c;
}

static void commit(Connection c) {
    amqp_maybe_release_buffers(c);
    amqp_tx_commit(c, 1);
    check(amqp_get_rpc_reply(c), "tx.commit");
}

static double transactions(void) {
    Connection c = transactional();
    double start = now();
    for (long i = 1; i <= count; i++) {
        publish(c, queue, 1);
        if (i % per == 0 || i == count)
            commit(c);
    }
    return now() - start;
}

static double move(Connection owner) {
    char target[128];
    snprintf(target, sizeof target, "%s-target", queue);
    declare(owner, target, 1);
    fill(queue);
    Connection c = transactional();
    double start = now();
    consume(c, queue, window, 0);
    for (long i = 1; i <= count; i++) {
        uint64_t tag = take(c);
        publish(c, target, 1);
        amqp_basic_ack(c, 1, tag, 0);
        if (i % per == 0 || i == count)
            commit(c);
    }
    double seconds = now() - start;
    delete_queue(owner, target);
    return seconds;
}

static void *express_sender(void *unused) {
    (void)unused;
    Connection c = confirm ? confirming() : connect_or_fail();
    pthread_barrier_wait(&ready);
    if (confirm)
        send_window(c, queue, count, 0);
    else
        for (long i = 0; i < count; i++)
            publish(c, queue, 0);
    amqp_channel_close(c, 1, AMQP_REPLY_SUCCESS);
    amqp_destroy_connection(c);
    return NULL;
}

static void *express_receiver(void *unused) {
    (void)unused;
    Connection c = connect_or_fail();
    consume(c, queue, 0, 1);
    pthread_barrier_wait(&ready);
    for (long i = 0; i < count; i++)
        take(c);
    amqp_destroy_connection(c);
    return NULL;
}

static void *express_part(void *part) { return ((void *(*)(void *))part)(NULL); }

static void wait_for_first(void) {
    for (;; usleep(10000)) {
        Connection c = try_connect();
        if (!c)
            continue;
        amqp_rpc_reply_t reply = amqp_basic_get(c, 1, amqp_cstring_bytes(queue), 1);
        int found = reply.reply_type == AMQP_RESPONSE_NORMAL && reply.reply.id == AMQP_BASIC_GET_OK_METHOD;
        amqp_destroy_connection(c);
        if (found)
            return;
    }
}

int main(int argc, char **argv) {
    argument_count = argc;
    arguments = argv;
    const char *op = text("op", "send");
    queue = text("queue", "bench");
    type = text("type", "quorum");
    count = number("count", 1000);
    per = number("per", 1);
    window = number("window", 1000);
    senders = number("senders", 1);
    confirm = number("confirm", 1);
    payload = (amqp_bytes_t){.len = BODY_SIZE, .bytes = (void *)body()};

    if (!strcmp(op, "first")) {
        wait_for_first();
        return 0;
    }
    Connection owner = connect_or_fail();
    declare(owner, queue, strcmp(op, "express") != 0);
    if (!strcmp(op, "fill")) {
        double start = now();
        fill(queue);
        print_seconds(now() - start);
        return 0;
    }
    if (!strcmp(op, "send"))
        print_seconds(together(sender, senders, NULL));
    else if (!strcmp(op, "one"))
        one_at_a_time();
    else if (!strcmp(op, "receive"))
        print_seconds(receive());
    else if (!strcmp(op, "tx"))
        print_seconds(transactions());
    else if (!strcmp(op, "move"))
        print_seconds(move(owner));
    else if (!strcmp(op, "express"))
        print_seconds(together(express_part, 2, (void *[]){express_receiver, express_sender}));
    else
        fail("op", op);
    delete_queue(owner, queue);
    return 0;
}
