// Signals while a prediction is open that is right, and settled after a time in milliseconds.
// Natively there is none, and the program waits as long. Prints what the signals did.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <runahead_speculate.h>

static int requests[2];
static int settle_ms;

static void settle(void) {
    uint64_t id;
    while (read(requests[0], &id, sizeof id) == sizeof id) {
        usleep(settle_ms * 1000);
        runahead_spec_commit(id);
    }
    _exit(0);
}

static int predict(void) {
    uint64_t id;
    int begun = runahead_spec_begin(&id, 0);
    if (begun == RUNAHEAD_SPECULATIVE)
        write(requests[1], &id, sizeof id);
    return begun;
}

static volatile int count;

static void handle(int signal) {
    (void)signal;
    count++;
}

static void alarm_in(int ms, int flags) {
    struct sigaction action = {.sa_handler = handle, .sa_flags = flags};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval timer = {.it_value = {0, ms * 1000}};
    setitimer(ITIMER_REAL, &timer, NULL);
}

// A handler without SA_RESTART is to interrupt a call that waits.
static void interrupts(const char *call) {
    int pipes[2], full[2];
    char byte = 0;
    pipe(pipes), pipe(full);
    fcntl(full[1], F_SETFL, O_NONBLOCK);
    while (write(full[1], &byte, 1) == 1)
        ;
    fcntl(full[1], F_SETFL, 0);
    pid_t child = fork();
    if (child == 0) {
        sleep(1000);
        _exit(0);
    }
    struct pollfd polled = {pipes[0], POLLIN, 0};
    fd_set set;
    FD_ZERO(&set);
    FD_SET(pipes[0], &set);
    struct timespec left = {0, 0}, minute = {60, 0};
    // Two queues, the second one full, and a set in which the first semaphore is 1.
    int empty = msgget(IPC_PRIVATE, 0600), filled = msgget(IPC_PRIVATE, 0600);
    struct { long type; char text[1024]; } message = {1, ""};
    while (msgsnd(filled, &message, sizeof message.text, IPC_NOWAIT) == 0)
        ;
    int set_of_two = semget(IPC_PRIVATE, 2, 0600);
    struct sembuf up = {0, 1, 0}, zero = {0, 0, 0}, down[2] = {{0, -1, 0}, {0, -1, 0}};
    semop(set_of_two, &up, 1);
    alarm_in(100, 0);
    predict();
    long result = 0;
    if (!strcmp(call, "read"))
        result = read(pipes[0], &byte, 1);
    else if (!strcmp(call, "write"))
        result = write(full[1], &byte, 1);
    else if (!strcmp(call, "pause"))
        result = pause();
    else if (!strcmp(call, "poll"))
        result = poll(&polled, 1, -1);
    else if (!strcmp(call, "select"))
        result = select(pipes[0] + 1, &set, NULL, NULL, NULL);
    else if (!strcmp(call, "wait"))
        result = wait(NULL);
    else if (!strcmp(call, "sleep"))
        result = nanosleep(&minute, &left);
    else if (!strcmp(call, "msgrcv"))
        result = msgrcv(empty, &message, sizeof message.text, 0, 0);
    else if (!strcmp(call, "msgsnd"))
        result = msgsnd(filled, &message, sizeof message.text, 0);
    else if (!strcmp(call, "semop"))
        result = semop(set_of_two, down, 2);
    else if (!strcmp(call, "semop-zero"))
        result = semop(set_of_two, &zero, 1);
    else if (!strcmp(call, "semtimedop"))
        result = semtimedop(set_of_two, down, 2, &minute);
    int error = errno;
    msgctl(empty, IPC_RMID, NULL), msgctl(filled, IPC_RMID, NULL), semctl(set_of_two, 0, IPC_RMID);
    printf("%s: %ld %s, handled %d, left %d\n", call, result, strerror(error), count, left.tv_sec > 50);
    kill(child, SIGKILL);
}

// What does not wait is not interrupted: the message and the semaphore are there.
static void takes_what_is_there(void) {
    struct { long type; char text[8]; } message = {1, "text"};
    int queue = msgget(IPC_PRIVATE, 0600), semaphore = semget(IPC_PRIVATE, 1, 0600);
    struct sembuf up = {0, 1, 0}, down = {0, -1, 0}, twice[2] = {{0, -1, 0}, {0, -1, IPC_NOWAIT}};
    msgsnd(queue, &message, sizeof message.text, 0);
    semop(semaphore, &up, 1);
    alarm_in(100, 0);
    predict();
    // Waits for the outcome, and for the signal.
    usleep(200000);
    long both = semop(semaphore, twice, 2), refused = errno;
    long taken = semop(semaphore, &down, 1), got = msgrcv(queue, &message, sizeof message.text, 0, 0);
    printf("%ld %d %ld %ld, handled %d\n", both, refused, taken, got, count);
    msgctl(queue, IPC_RMID, NULL), semctl(semaphore, 0, IPC_RMID);
}

// What does not wait is not interrupted: the byte is there.
static void reads_what_is_there(void) {
    int pipes[2];
    char byte = 'x';
    pipe(pipes);
    write(pipes[1], &byte, 1);
    byte = 0;
    alarm_in(100, 0);
    predict();
    // Waits for the outcome, and for the signal.
    usleep(200000);
    long result = read(pipes[0], &byte, 1);
    printf("%ld %c, handled %d\n", result, byte, count);
}

// A handler with SA_RESTART does not interrupt it: the byte that it writes is read.
static int restarted[2];

static void write_byte(int signal) {
    (void)signal;
    write(restarted[1], "r", 1);
}

static void restarts(void) {
    char byte = 0;
    pipe(restarted);
    struct sigaction action = {.sa_handler = write_byte, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval timer = {.it_value = {0, 100000}};
    setitimer(ITIMER_REAL, &timer, NULL);
    predict();
    long result = read(restarted[0], &byte, 1);
    printf("%ld %c\n", result, byte);
}

// Ends by a signal while a prediction is open that is never settled.
static void dies(int number, int blocks) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, number);
    if (blocks)
        sigprocmask(SIG_BLOCK, &set, NULL);
    pid_t killer = fork();
    if (killer == 0) {
        usleep(200000);
        kill(getppid(), number);
        if (blocks) {
            usleep(200000);
            kill(getppid(), SIGKILL);
        }
        _exit(0);
    }
    uint64_t id;
    runahead_spec_begin(&id, killer);
    // Not seen with a prediction, since it is dropped.
    if (blocks)
        sigpending(&set);
    pause();
    _exit(0);
}

int main(int argc, char **argv) {
    if (argc < 3)
        return 2;
    settle_ms = atoi(argv[1]);
    if (pipe2(requests, O_CLOEXEC))
        return 3;
    if (!strcmp(argv[2], "dies")) {
        int number = atoi(argv[3]);
        pid_t child = fork();
        if (child == 0)
            dies(number, argc > 4);
        int status;
        waitpid(child, &status, 0);
        printf("ended by %d\n", WTERMSIG(status));
        return 0;
    }
    pid_t settler = fork();
    if (settler == 0) {
        close(requests[1]);
        settle();
    }
    runahead_spec_set_policy(requests[1], RUNAHEAD_ALLOW);
    if (!strcmp(argv[2], "there"))
        reads_what_is_there();
    else if (!strcmp(argv[2], "taken"))
        takes_what_is_there();
    else if (!strcmp(argv[2], "restarts"))
        restarts();
    else
        interrupts(argv[2]);
    return 0;
}
