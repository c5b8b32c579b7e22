/*
 * Slow service that takes any number of questions at once: it answers each a fixed time after it
 * was asked.
 *
 *     service SOCKET MICROSECONDS
 *
 * A question is two words: a tag, and a number. The answer is the same tag, and a function of the
 * number (service.h). There is one client at a time. The service ends when the first client has
 * closed its connection, and prints how many questions there were, and how many at once.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "service.h"

#define WAITING 65536

static struct {
    struct message answer;
    uint64_t due;
} queue[WAITING];

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static void die(const char *what) {
    perror(what);
    exit(1);
}

/* Reports after the client has closed its connection. */
static int gone(uint64_t questions, uint64_t most) {
    printf("%llu questions, at most %llu at once\n", (unsigned long long)questions, (unsigned long long)most);
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: service SOCKET MICROSECONDS\n");
        return 2;
    }
    uint64_t latency = strtoull(argv[2], NULL, 10) * 1000;
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    strncpy(name.sun_path, argv[1], sizeof name.sun_path - 1);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    unlink(argv[1]);
    if (listener < 0 || bind(listener, (void *)&name, sizeof name) || listen(listener, 1))
        die(argv[1]);
    int client = accept(listener, NULL, NULL);
    if (client < 0)
        die("accept");
    unlink(argv[1]);
    uint64_t first = 0, end = 0, most = 0;
    struct message questions[256];
    size_t have = 0;
    for (;;) {
        struct timespec wait, *until = NULL;
        if (first != end) {
            uint64_t due = queue[first % WAITING].due, time = now();
            uint64_t left = due > time ? due - time : 0;
            wait = (struct timespec){left / 1000000000, left % 1000000000};
            until = &wait;
        }
        struct pollfd asked = {client, end - first < WAITING ? POLLIN : 0, 0};
        if (ppoll(&asked, 1, until, NULL) < 0 && errno != EINTR)
            die("ppoll");
        if (asked.revents) {
            ssize_t got = read(client, (char *)questions + have, sizeof questions - have);
            if (got <= 0)
                return gone(end, most);
            have += got;
            size_t count = have / sizeof *questions;
            for (size_t n = 0; n < count; n++, end++) {
                queue[end % WAITING].answer = (struct message){questions[n].tag, answer_of(questions[n].number)};
                queue[end % WAITING].due = now() + latency;
            }
            if (end - first > most)
                most = end - first;
            have -= count * sizeof *questions;
            memmove(questions, questions + count, have);
        }
        while (first != end && queue[first % WAITING].due <= now()) {
            struct message *answer = &queue[first++ % WAITING].answer;
            if (send(client, answer, sizeof *answer, MSG_NOSIGNAL) != sizeof *answer)
                return gone(end, most);
        }
    }
}
