/* Many clients that don't pipeline, as fast as one core sends for them: see crowd.py.
 *
 *     crowd PORT CLIENTS REQUESTS KEYS ping|get|set
 *
 * Each client has one request on its way. They are served in turn, by reads that wait, so that a request costs the generator
 * less than the server, which has always something to do. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static int connected(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int client = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    if (client < 0 || connect(client, (struct sockaddr *)&address, sizeof address) != 0) {
        perror("crowd");
        exit(1);
    }
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return client;
}

/* The request for a key, in `to`; its length. */
static int request(const char *what, unsigned key, char *to, size_t size) {
    switch (what[0]) {
    case 'g': return snprintf(to, size, "*2\r\n$3\r\nGET\r\n$16\r\nkey:%012u\r\n", key);
    case 's': return snprintf(to, size, "*3\r\n$3\r\nSET\r\n$16\r\nkey:%012u\r\n$16\r\nvvvvvvvvvvvvvvvv\r\n", key);
    default: return snprintf(to, size, "*1\r\n$4\r\nPING\r\n");
    }
}

int main(int count, char **words) {
    if (count != 6) {
        fputs("crowd PORT CLIENTS REQUESTS KEYS ping|get|set\n", stderr);
        return 2;
    }
    int port = atoi(words[1]), clients = atoi(words[2]);
    long requests = atol(words[3]);
    unsigned keys = atoi(words[4]), random = 1;
    int *sockets = calloc(clients, sizeof *sockets);
    for (int i = 0; i < clients; i++) sockets[i] = connected(port);
    for (long i = 0; i < requests + clients; i++) {
        int client = sockets[i % clients];
        char bytes[256];
        if (i >= clients && recv(client, bytes, sizeof bytes, 0) <= 0) return 1;
        if (i >= requests) continue;
        random = random * 1664525 + 1013904223;
        int length = request(words[5], (random >> 8) % keys, bytes, sizeof bytes);
        if (send(client, bytes, length, 0) != length) return 1;
    }
    return 0;
}
