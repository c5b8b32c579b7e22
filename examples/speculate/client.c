/*
 * Client of a slow service that does not wait for answers: it predicts each one and continues.
 *
 *     client SOCKET CALLS MICROSECONDS PERCENT
 *
 * Asks service.c CALLS questions, one after another, each of which depends on the answer before,
 * and computes for MICROSECONDS after each. PERCENT of its predictions are right. Prints every
 * hundredth answer, and at the end the last.
 *
 * Under `runahead run --speculate` the client need not wait for the service. Without runahead, or
 * where it cannot speculate, it waits for each answer. It prints the same either way. client.rs
 * and client.py do the same in Rust and Python.
 *
 * There are two processes: the client, and a receiver. The receiver is a child that gets the
 * answers, knows the predictions, and settles each. It has to be another process, because a
 * process that is rolled back forgets what it has received.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <runahead_speculate.h>

#include "service.h"

/* Bit of a tag that is not the number of a speculation: a question whose answer is waited for. */
#define WAITS (1ull << 63)

static int service, predictions[2], answers[2];
static pid_t receiver;

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void die_alone(void) {
    fprintf(stderr, "the service has gone\n");
    exit(1);
}

static int get(int fd, void *to, size_t bytes) {
    size_t done = 0;
    while (done < bytes) {
        ssize_t got = read(fd, (char *)to + done, bytes - done);
        if (got <= 0)
            return 0;
        done += got;
    }
    return 1;
}

static void put(int fd, const void *from, size_t bytes) {
    if (write(fd, from, bytes) != (ssize_t)bytes)
        die_alone();
}

/* Body of the receiver: settles predictions, and passes on other answers. */
static void receive(void) {
    struct message answer, prediction = {0};
    while (get(service, &answer, sizeof answer)) {
        if (answer.tag & WAITS) {
            put(answers[1], &answer, sizeof answer);
            continue;
        }
        /* Predictions come in the order of questions. If one has no question, the client was rolled
           back in between. */
        while (prediction.tag != answer.tag)
            if (!get(predictions[0], &prediction, sizeof prediction))
                return;
        /* An error means that the client has been rolled back since. */
        if (prediction.number == answer.number)
            runahead_spec_commit(answer.tag);
        else
            runahead_spec_fail(answer.tag, &answer.number, sizeof answer.number);
    }
}

/* Asks, and waits for the answer. */
static uint64_t ask(uint64_t number) {
    /* A counter would be rolled back with the process; time is not. */
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    struct message question = {WAITS | (time.tv_sec * 1000000000ull + time.tv_nsec), number}, answer;
    put(service, &question, sizeof question);
    do {
        /* Answers to questions that were rolled back come first. */
        if (!get(answers[0], &answer, sizeof answer))
            die_alone();
    } while (answer.tag != question.tag);
    return answer.number;
}

/* Predicts the answer, right in PERCENT of calls. */
static uint64_t predict(uint64_t number, int call, int percent) {
    return answer_of(number) + (answer_of(call) % 100 >= (uint64_t)percent);
}

/* Returns the answer to a number, or its prediction. */
static uint64_t ask_ahead(uint64_t number, uint64_t prediction) {
    uint64_t id, right;
    switch (runahead_spec_begin(&id, receiver)) {
    case RUNAHEAD_SPECULATIVE: {
        struct message predicted = {id, prediction}, question = {id, number};
        put(predictions[1], &predicted, sizeof predicted);
        put(service, &question, sizeof question);
        return prediction;
    }
    case RUNAHEAD_FAILED:
        if (runahead_spec_answer(id, &right, sizeof right) == sizeof right)
            return right;
        /* It failed without an answer. */
        return ask(number);
    default:
        return ask(number);
    }
}

/* Work between two questions. */
static uint64_t compute(uint64_t number, int microseconds) {
    struct timespec from, now;
    clock_gettime(CLOCK_MONOTONIC, &from);
    do {
        for (int n = 0; n < 1000; n++)
            number = answer_of(number + n) ^ number;
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((now.tv_sec - from.tv_sec) * 1000000 + (now.tv_nsec - from.tv_nsec) / 1000 < microseconds);
    return number;
}

static int is_number(const char *text, int *number) {
    char *end;
    *number = strtol(text, &end, 10);
    return end != text && !*end && *number >= 0;
}

int main(int argc, char **argv) {
    int calls, microseconds, percent;
    if (argc != 5 || !is_number(argv[2], &calls) || !is_number(argv[3], &microseconds) || !is_number(argv[4], &percent)) {
        fprintf(stderr, "usage: client SOCKET CALLS MICROSECONDS PERCENT\n");
        return 2;
    }
    /* A closed connection shows by errors. */
    signal(SIGPIPE, SIG_IGN);
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    strncpy(name.sun_path, argv[1], sizeof name.sun_path - 1);
    service = socket(AF_UNIX, SOCK_STREAM, 0);
    if (service < 0 || connect(service, (void *)&name, sizeof name))
        die(argv[1]);
    if (pipe(predictions) || pipe(answers))
        die("pipe");
    pid_t client = getpid();
    receiver = fork();
    if (receiver < 0)
        die("fork");
    if (receiver == 0) {
        /* It keeps the client's socket open, so the service does not see that the client ends. */
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != client)
            return 1;
        close(predictions[1]);
        close(answers[0]);
        receive();
        return 0;
    }
    /* The other ends are the receiver's alone, so that they close when it ends. */
    close(predictions[0]);
    close(answers[1]);
    /* Questions do no harm, and the receiver ignores predictions without a question. All other
       output of the client is held until it is certain. */
    runahead_spec_set_policy(service, RUNAHEAD_ALLOW);
    runahead_spec_set_policy(predictions[1], RUNAHEAD_ALLOW);
    uint64_t number = 1;
    for (int call = 0; call < calls; call++) {
        number = ask_ahead(number, predict(number, call, percent));
        compute(number, microseconds);
        if (call % 100 == 99)
            printf("%d: %016llx\n", call + 1, (unsigned long long)number);
    }
    printf("last: %016llx\n", (unsigned long long)number);
    fflush(stdout);
    runahead_spec_barrier();
    shutdown(service, SHUT_RDWR);
    close(predictions[1]);
    waitpid(receiver, NULL, 0);
    return 0;
}
