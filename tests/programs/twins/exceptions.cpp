/* C++: exceptions are caught where calls wait for storage. Destructors run where threads are
 * cancelled that wait for a pipe, or read from storage without end. */
#include "twin.h"
#include <sys/ioctl.h>
#include <fstream>
#include <future>
#include <stdexcept>
#include <string>
#include <vector>

#define ROUNDS 12

static int pipes[2];
static FILE *in;
static volatile pid_t waiter;

struct Left {
	const char *what;
	~Left()
	{
		printf("left %s\n", what);
	}
};

/* Starts a thread, and waits until it waits. */
static pthread_t started(void *(*body)(void *))
{
	pthread_t t;
	waiter = 0;
	must(-pthread_create(&t, 0, body, 0));
	while (!waiter)
		usleep(100);
	until_it_sleeps(waiter);
	return t;
}

static void cancel(pthread_t t)
{
	void *result;
	pthread_cancel(t);
	pthread_join(t, &result);
	ask(result == PTHREAD_CANCELED);
}

static __attribute__((noinline)) void reads_a_byte(std::string &bytes)
{
	Left inner{ "inner" };
	char c;
	must(read(pipes[0], &c, 1));
	bytes += c;
}

static void *reads(void *)
{
	Left outer{ "outer" };
	std::string bytes(100, 'x');
	waiter = gettid();
	for (;;)
		reads_a_byte(bytes);
	return 0;
}

CASE(cancelled_in_read)
{
	must(pipe(pipes));
	for (int i = 0; i < ROUNDS; i++) {
		pthread_t t = started(reads);
		for (int n = 0; n < i; n++) {
			must(write(pipes[1], "x", 1));
			usleep(100);
		}
		int left;
		do
			must(ioctl(pipes[0], FIONREAD, &left));
		while (left);
		until_it_sleeps(waiter);
		cancel(t);
		stall(10 + i, 1);
	}
}

static void *gets_a_line(void *)
{
	Left thread{ "thread" };
	char line[100];
	waiter = gettid();
	if (fgets(line, sizeof line, in))
		printf("thread: %s", line);
	return 0;
}

CASE(cancelled_in_fgets)
{
	char line[100];
	must(pipe(pipes));
	in = fdopen(pipes[0], "r");
	for (int i = 0; i < ROUNDS; i++) {
		cancel(started(gets_a_line));
		fflush(stdout);
		alarm(10);
		must(write(pipes[1], "hello\n", 6));
		printf("main: %s", fgets(line, sizeof line, in));
		alarm(0);
		stall(10 + i, 1);
	}
}

/* Holds a lock and reads cold data in a loop: it is mostly cancelled while it waits. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int unlocked;

struct Locked {
	Locked()
	{
		pthread_mutex_lock(&lock);
	}
	~Locked()
	{
		unlocked++;
		pthread_mutex_unlock(&lock);
	}
};

static void *reads_storage(void *)
{
	Left outer{ "outer" };
	waiter = gettid();
	for (int i = 0;; i++) {
		Locked locked;
		stall(i % 64, 1);
	}
	return 0;
}

static void *looks_at_names(void *)
{
	Left outer{ "outer" };
	waiter = gettid();
	for (int i = 0;; i++) {
		Locked locked;
		char name[64];
		snprintf(name, sizeof name, "many/%02d", i % 64);
		close(must(open(name, O_RDONLY)));
	}
	return 0;
}

static void cancelled_many_times(void *(*body)(void *))
{
	for (int i = 0; i < 2 * ROUNDS; i++) {
		pthread_t t;
		waiter = 0;
		must(-pthread_create(&t, 0, body, 0));
		while (!waiter)
			usleep(100);
		usleep(3000 + 211 * i);
		unlocked = 0;
		cancel(t);
		ask(unlocked > 0);
		alarm(10);
		pthread_mutex_lock(&lock);
		pthread_mutex_unlock(&lock);
		alarm(0);
	}
}

CASE(cancelled_while_it_reads_storage)
{
	cancelled_many_times(reads_storage);
}

CASE(cancelled_while_it_opens_files)
{
	cancelled_many_times(looks_at_names);
}

static std::string contents(int n)
{
	std::string text(6000, ' ');
	char name[4096];
	snprintf(name, sizeof name, "%s/many/%02d", getenv("TREE"), n);
	int fd = must(open(name, O_RDONLY | O_CLOEXEC));
	text.resize(must(read(fd, &text[0], text.size())));
	close(fd);
	return text;
}

/* A value that a shadow without the data takes for wrong. */
static __attribute__((noinline)) void check(int n)
{
	Left looked{ "check" };
	std::string text = contents(n);
	if (text.size() != 5000u + n || text[0] != 'a' + n % 26)
		throw std::logic_error("not the file");
	if (n % 3 == 0)
		throw std::runtime_error("file " + std::to_string(n));
}

CASE(thrown_after_reads)
{
	for (int n = 4; n < 60; n++) {
		try {
			check(n);
		} catch (const std::runtime_error &e) {
			printf("%s\n", e.what());
		}
	}
}

static int reads_and_throws(const void *a, const void *b)
{
	int n = *(const int *)a;
	if (n % 7 == 0)
		check(n);
	return n - *(const int *)b;
}

CASE(thrown_through_the_library)
{
	for (int from = 4; from < 52; from += 4) {
		int all[8];
		for (int i = 0; i < 8; i++)
			all[i] = from + 7 - i;
		try {
			qsort(all, 8, sizeof all[0], reads_and_throws);
			puts("sorted");
		} catch (const std::runtime_error &e) {
			printf("%s\n", e.what());
		}
	}
}

CASE(thrown_in_threads)
{
	for (int from = 4; from < 60; from += 8) {
		std::vector<std::future<int>> all;
		for (int n = from; n < from + 8; n++)
			all.push_back(std::async(std::launch::async, [n] {
				std::string text = contents(n);
				if (n % 2)
					throw std::runtime_error(text.substr(0, 3));
				return (int)text.size();
			}));
		for (auto &one : all) {
			try {
				printf("%d\n", one.get());
			} catch (const std::runtime_error &e) {
				printf("%s\n", e.what());
			}
		}
	}
}

CASE(thrown_by_streams)
{
	for (int n = 4; n < 60; n++) {
		char name[4096], bytes[5010];
		std::ifstream file;
		snprintf(name, sizeof name, "%s/many/%02d", getenv("TREE"), n);
		file.exceptions(std::ios::failbit | std::ios::badbit);
		try {
			file.open(name);
			file.read(bytes, sizeof bytes);
			puts("read");
		} catch (const std::ios_base::failure &) {
			printf("%d bytes\n", (int)file.gcount());
		}
	}
}
