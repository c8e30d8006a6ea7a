// libvalkey's cluster client, unmodified, through a reshard, a failover and the death of a primary. See ../cluster.py.
//
// It isn't packaged for Debian 12. Its sources are those that the Python package `libvalkey` contains: see need_libvalkey in ../../test.

#include <netdb.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <valkey/cluster.h>

enum { KEYS = 200, DEPTH = 2000, MOVING = 1000, PATIENCE_SECONDS = 60, TEXT = 200 };

#define CROSS_SLOT "CROSSSLOT Keys in request don't hash to the same slot"
#define WRONG_TYPE "WRONGTYPE Operation against a key holding the wrong kind of value"
#define SCRIPT "return redis.call('INCRBY',KEYS[1],ARGV[1])"

static int checks = 0;
static valkeyClusterContext *client;

static void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
    exit(1);
}

// One check: ends the program where `actual` isn't `expected`.
static void check(const char *what, const char *actual, const char *expected) {
    checks++;
    if (strcmp(actual, expected) != 0) fail("%s:\n  expected %s\n  got      %s", what, expected, actual);
}

// Writes a reply of one value as text.
static void reply_text(const valkeyReply *reply, char *text) {
    if (reply == NULL) snprintf(text, TEXT, "no reply: %s", client->errstr);
    else if (reply->type == VALKEY_REPLY_INTEGER) snprintf(text, TEXT, "%lld", reply->integer);
    else if (reply->type == VALKEY_REPLY_NIL) snprintf(text, TEXT, "nil");
    else if (reply->str != NULL) snprintf(text, TEXT, "%s", reply->str);
    else {
        text[0] = '\0';
        for (size_t number = 0; number < reply->elements; number++) {
            char part[TEXT];
            reply_text(reply->element[number], part);
            strncat(strncat(text, part, TEXT - strlen(text) - 1), " ", TEXT - strlen(text) - 1);
        }
    }
}

static void run(const char *what, const char *expected, const char *format, ...) {
    char text[TEXT];
    va_list arguments;
    va_start(arguments, format);
    valkeyReply *reply = valkeyClustervCommand(client, format, arguments);
    va_end(arguments);
    reply_text(reply, text);
    freeReplyObject(reply);
    check(what, text, expected);
}

// Reads the next reply of a pipeline as text.
static void next_reply(char *text) {
    valkeyReply *reply = NULL;
    if (valkeyClusterGetReply(client, (void **)&reply) != VALKEY_OK) reply = NULL;
    reply_text(reply, text);
    freeReplyObject(reply);
}

static void single_commands(void) {
    char number_text[TEXT];
    for (int number = 0; number < KEYS; number++) run("SET", "OK", "SET c:%d %d", number, number);
    for (int number = 0; number < KEYS; number++) {
        snprintf(number_text, TEXT, "%d", number);
        run("GET", number_text, "GET c:%d", number);
    }
}

static void pipelines(void) {
    static const char *replies[] = {"OK", WRONG_TYPE, "8", "8"};
    for (int number = 0; number < DEPTH; number++) {
        valkeyClusterAppendCommand(client, "SET c:p:%d 7", number);
        valkeyClusterAppendCommand(client, "LPUSH c:p:%d 1", number);
        valkeyClusterAppendCommand(client, "INCR c:p:%d", number);
        valkeyClusterAppendCommand(client, "GET c:p:%d", number);
    }
    for (int number = 0; number < 4 * DEPTH; number++) {
        char text[TEXT];
        next_reply(text);
        check("a pipeline over all slots", text, replies[number % 4]);
    }
    valkeyClusterReset(client);
}

static void one_slot(void) {
    run("MSET", "OK", "MSET {c}b 1 {c}c 2");
    run("MGET", "2 1 nil ", "MGET {c}c {c}b {c}none");
    run("CROSSSLOT", CROSS_SLOT, "MGET c:1 c:2");
    // The client sends a transaction, whose MULTI has no key, to a node that the program names.
    valkeyClusterNode *node = valkeyClusterGetNodeByKey(client, "{c}a");
    const char *commands[] = {"MULTI", "SET {c}a 1", "INCR {c}a", "EXEC"}, *replies[] = {"OK", "QUEUED", "QUEUED", "OK 2 "};
    for (int number = 0; number < 4; number++) valkeyClusterAppendCommandToNode(client, node, commands[number]);
    for (int number = 0; number < 4; number++) {
        char text[TEXT];
        next_reply(text);
        check("MULTI", text, replies[number]);
    }
    valkeyClusterReset(client);
}

static void scripts(void) {
    for (int number = 0; number < 30; number++) {
        run("EVAL", "5", "EVAL %s 1 c:s:%d %d", SCRIPT, number, 5);
        run("EVAL", "7", "EVAL %s 1 c:s:%d %d", SCRIPT, number, 2);
    }
}

// Sends a request to the cluster's harness, and stores its answer.
static void event(const char *request, char *answer) {
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *address;
    if (getaddrinfo("127.0.0.1", getenv("PENSTOCK_EVENTS"), &hints, &address) != 0) fail("no address of the harness");
    int connection = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(connection, address->ai_addr, address->ai_addrlen) != 0) fail("no harness");
    freeaddrinfo(address);
    dprintf(connection, "%s\n", request);
    FILE *stream = fdopen(connection, "r");
    if (fgets(answer, TEXT, stream) == NULL) fail("%s: no answer", request);
    answer[strcspn(answer, "\n")] = '\0';
    fclose(stream);
}

// Counters that are increased while the cluster changes. Each INCR must be carried out once.
struct counters {
    const char *format;
    const char *tag;
    int count;
    int rounds;
};

static void name_key(const struct counters *counters, int number, char *key) {
    snprintf(key, TEXT, counters->format, counters->tag, number);
}

// Waits until the node of a key in the client's map does not redirect it. After MOVED the client asks for the map on the same connection, and
// takes that reply for another one's if the second node redirects back. A failover has such a moment.
static void await_owner(const char *key) {
    for (time_t end = time(NULL) + PATIENCE_SECONDS; time(NULL) < end; usleep(10000)) {
        char text[TEXT];
        valkeyClusterUpdateSlotmap(client);
        valkeyReply *reply = valkeyClusterCommandToNode(client, valkeyClusterGetNodeByKey(client, (char *)key), "GET %s", key);
        reply_text(reply, text);
        freeReplyObject(reply);
        if (strncmp(text, "MOVED ", 6) != 0) return;
    }
    fail("%s: redirected for ever", key);
}

// Runs a command for each counter as a pipeline. The client's pipeline returns redirections as replies, and its single commands follow them.
static void run_pipeline(const struct counters *counters, const char *command, const char *expected) {
    char key[TEXT], text[TEXT];
    int redirected[MOVING], has_moved[MOVING], count = 0;
    for (int number = 0; number < counters->count; number++) {
        name_key(counters, number, key);
        valkeyClusterAppendCommand(client, "%s %s", command, key);
    }
    for (int number = 0; number < counters->count; number++) {
        next_reply(text);
        has_moved[count] = strncmp(text, "MOVED ", 6) == 0;
        if (has_moved[count] || strncmp(text, "ASK ", 4) == 0) redirected[count++] = number;
        else check(command, text, expected);
    }
    valkeyClusterReset(client);
    for (int number = 0; number < count; number++) {
        name_key(counters, redirected[number], key);
        if (has_moved[number]) await_owner(key);
        run(command, expected, "%s %s", command, key);
    }
}

static void increase(struct counters *counters) {
    char expected[TEXT];
    snprintf(expected, TEXT, "%d", ++counters->rounds);
    run_pipeline(counters, "INCR", expected);
}

static void verify(const struct counters *counters) {
    char expected[TEXT];
    snprintf(expected, TEXT, "%d", counters->rounds);
    run_pipeline(counters, "GET", expected);
}

struct request {
    const char *text;
    char answer[TEXT];
    volatile int is_over;
};

static void *send_request(void *argument) {
    struct request *request = argument;
    event(request->text, request->answer);
    __sync_synchronize();
    request->is_over = 1;
    return NULL;
}

static void during(const char *text, struct counters *counters) {
    struct request request = {.text = text};
    pthread_t thread;
    pthread_create(&thread, NULL, send_request, &request);
    do increase(counters);
    while (!request.is_over);
    pthread_join(thread, NULL);
    check(text, request.answer, "ok");
}

static void reshard(void) {
    char tag[TEXT], redirects[TEXT];
    int moved, asked;
    event("tag", tag);
    struct counters counters = {.format = "{%s}c:%d", .tag = tag, .count = MOVING};
    increase(&counters);
    during("reshard", &counters);
    verify(&counters);
    event("redirects", redirects);
    if (sscanf(redirects, "%d %d", &moved, &asked) != 2) fail("redirects: %s", redirects);
    check("MOVED and ASK were followed", moved > 0 && asked > 0 ? "yes" : redirects, "yes");
}

static void failover(void) {
    struct counters counters = {.format = "c:%s:%d", .tag = "f", .count = KEYS};
    increase(&counters);
    during("failover", &counters);
    for (int round = 0; round < 5; round++) increase(&counters);
    verify(&counters);
}

// Writes a key until it succeeds, as an application does while a shard has no primary.
static void write_at_last(int number) {
    char text[TEXT] = "";
    for (time_t end = time(NULL) + PATIENCE_SECONDS; time(NULL) < end; usleep(20000)) {
        valkeyReply *reply = valkeyClusterCommand(client, "SET c:k:%d %d", number, number);
        reply_text(reply, text);
        freeReplyObject(reply);
        if (strcmp(text, "OK") == 0) break;
        valkeyClusterUpdateSlotmap(client);
    }
    check("SET after a kill", text, "OK");
}

static void kill_primary(void) {
    char text[TEXT];
    event("kill", text);
    check("kill", text, "ok");
    for (int number = 0; number < KEYS; number++) write_at_last(number);
    for (int number = 0; number < KEYS; number++) {
        snprintf(text, TEXT, "%d", number);
        run("GET after a kill", text, "GET c:k:%d", number);
        run("GET at the end", text, "GET c:%d", number);
    }
}

int main(void) {
    char addresses[TEXT];
    const char *first = getenv("PENSTOCK_PORTS"), *second = strchr(first, ',') + 1;
    snprintf(addresses, TEXT, "127.0.0.1:%d,127.0.0.1:%d", atoi(first), atoi(second));
    client = valkeyClusterConnect(addresses);
    if (client == NULL || client->err) fail("no connection: %s", client ? client->errstr : "no memory");
    single_commands();
    pipelines();
    one_slot();
    scripts();
    reshard();
    failover();
    kill_primary();
    valkeyClusterFree(client);
    printf("%d checks\n", checks);
    return 0;
}
