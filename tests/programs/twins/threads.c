/* Threads of the library: their lives, their ends, and what they do at once. */
#include "twin.h"
#include <semaphore.h>
#include <limits.h>

static void *reads_some(void *arg)
{
	stall((long)arg, 3);
	return arg;
}

CASE(two_hundred_short_ones)
{
	long total = 0;
	for (long i = 0; i < 200; i++) {
		pthread_t t;
		void *got;
		must(-pthread_create(&t, 0, reads_some, (void *)(i % 64)));
		pthread_join(t, &got);
		total += (long)got;
	}
	printf("%ld\n", total);
}

CASE(fifty_at_once)
{
	pthread_t t[50];
	long total = 0;
	for (long i = 0; i < 50; i++)
		must(-pthread_create(&t[i], 0, reads_some, (void *)i));
	for (int i = 0; i < 50; i++) {
		void *got;
		pthread_join(t[i], &got);
		total += (long)got;
	}
	printf("%ld\n", total);
}

static sem_t over;

static void *detached(void *arg)
{
	stall((long)arg, 2);
	sem_post(&over);
	return 0;
}

CASE(detached_ones)
{
	pthread_attr_t a;
	pthread_t t;
	sem_init(&over, 0, 0);
	pthread_attr_init(&a);
	pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
	for (long i = 0; i < 60; i++)
		must(-pthread_create(&t, &a, detached, (void *)i));
	for (int i = 0; i < 60; i++)
		sem_wait(&over);
	puts("all over");
}

CASE(smallest_stacks)
{
	pthread_attr_t a;
	pthread_t t[8];
	pthread_attr_init(&a);
	must(-pthread_attr_setstacksize(&a, sysconf(_SC_THREAD_STACK_MIN)));
	/* Room for what `stall` itself puts there. */
	must(-pthread_attr_setstacksize(&a, sysconf(_SC_THREAD_STACK_MIN) + (16 << 10)));
	for (int round = 0; round < 5; round++) {
		for (long i = 0; i < 8; i++)
			must(-pthread_create(&t[i], &a, reads_some, (void *)(round * 8 + i)));
		for (int i = 0; i < 8; i++)
			pthread_join(t[i], 0);
	}
	puts("done");
}

static void *tiny(void *arg)
{
	char c;
	static const char name[] = "many/44";
	long fd = raw(SYS_open, (long)name, O_RDONLY, 0, 0, 0, 0), total = 0;
	while (raw(SYS_read, fd, (long)&c, 1, 0, 0, 0) == 1 && total < 300)
		total += c;
	raw(SYS_close, fd, 0, 0, 0, 0, 0);
	return (void *)total;
}

CASE(stacks_with_hardly_any_room)
{
	pthread_attr_t a;
	pthread_t t;
	void *got;
	pthread_attr_init(&a);
	must(-pthread_attr_setstacksize(&a, PTHREAD_STACK_MIN));
	for (int i = 0; i < 10; i++) {
		must(-pthread_create(&t, &a, tiny, 0));
		pthread_join(t, &got);
		printf("%ld\n", (long)got);
	}
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn_changed = PTHREAD_COND_INITIALIZER;
static int turn;

static void *in_turns(void *arg)
{
	long me = (long)arg;
	for (int i = 0; i < 20; i++) {
		pthread_mutex_lock(&lock);
		while (turn % 3 != me)
			pthread_cond_wait(&turn_changed, &lock);
		stall(turn % 64, 1);
		turn++;
		pthread_cond_broadcast(&turn_changed);
		pthread_mutex_unlock(&lock);
	}
	return 0;
}

CASE(in_turns_under_a_lock)
{
	pthread_t t[3];
	for (long i = 0; i < 3; i++)
		pthread_create(&t[i], 0, in_turns, (void *)i);
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], 0);
	printf("%d turns\n", turn);
}

static int common;
static long chars[4];

static void *takes_what_comes(void *arg)
{
	char buf[100];
	ssize_t n;
	while ((n = must(read(common, buf, sizeof buf))) > 0)
		chars[(long)arg] += n;
	return 0;
}

/* Each byte comes to one of them. */
CASE(one_offset_for_all)
{
	pthread_t t[4];
	common = must(open("data", O_RDONLY));
	for (long i = 0; i < 4; i++)
		pthread_create(&t[i], 0, takes_what_comes, (void *)i);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], 0);
	printf("%ld\n", chars[0] + chars[1] + chars[2] + chars[3]);
	show(lseek(common, 0, SEEK_CUR));
}

static volatile int stop;

static void *opens_and_closes(void *arg)
{
	long wrong = 0;
	char buf[200];
	for (int i = 0; i < 400; i++) {
		char name[20];
		int n = (i * 7 + (long)arg * 13) % 64;
		snprintf(name, sizeof name, "many/%02d", n);
		int fd = open(name, O_RDONLY);
		if (fd < 0 || read(fd, buf, sizeof buf) != sizeof buf || buf[0] != 'a' + n % 26 || buf[199] != buf[0])
			wrong++;
		if (close(fd))
			wrong++;
	}
	return (void *)wrong;
}

CASE(all_open_and_close)
{
	pthread_t t[6];
	for (long i = 0; i < 6; i++)
		pthread_create(&t[i], 0, opens_and_closes, (void *)i);
	for (int i = 0; i < 6; i++) {
		void *wrong;
		pthread_join(t[i], &wrong);
		printf("wrong %ld\n", (long)wrong);
	}
	show(open("data", O_RDONLY));
}

static pthread_key_t key;
static void destroy(void *p) { printf("destroyed %ld\n", (long)p); }

static void *with_key(void *arg)
{
	pthread_setspecific(key, arg);
	stall((long)arg, 2);
	return 0;
}

static void once(void) { puts("once"); }

CASE(keys_and_once)
{
	static pthread_once_t control = PTHREAD_ONCE_INIT;
	pthread_key_create(&key, destroy);
	for (long i = 1; i < 4; i++) {
		pthread_t t;
		pthread_create(&t, 0, with_key, (void *)i);
		pthread_join(t, 0);
		pthread_once(&control, once);
	}
}

static volatile pid_t handled_by;
static void who(int s) { handled_by = gettid(); }
static pid_t the_thread;

static void *gets_signal(void *arg)
{
	the_thread = gettid();
	sem_post(&over);
	while (!handled_by)
		stall(20, 3);
	return 0;
}

CASE(a_signal_for_one_of_them)
{
	for (int i = 0; i < 5; i++) {
		pthread_t t;
		handled_by = 0;
		sem_init(&over, 0, 0);
		on(SIGUSR1, who, SA_RESTART);
		pthread_create(&t, 0, gets_signal, 0);
		sem_wait(&over);
		pthread_kill(t, SIGUSR1);
		stall(30, 5);
		pthread_join(t, 0);
		ask(handled_by == the_thread);
	}
}

static _Atomic int handled, has_told;

static void counts(int s) { handled++; }

/* Signals the process, then tells the first thread in memory, which takes the signal. */
static void *signals_and_tells(void *arg)
{
	sigset_t set = set_of(SIGUSR1, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &set, 0);
	for (int i = 0; i < 5; i++) {
		kill(getpid(), SIGUSR1);
		while (handled <= i)
			usleep(10);
	}
	kill(getpid(), SIGUSR1);
	has_told = 1;
	return 0;
}

CASE(a_signal_comes_before_what_its_sender_does_next)
{
	int early = 0, zeros = must(open("/dev/zero", O_RDONLY));
	on(SIGUSR1, counts, SA_RESTART);
	for (int i = 0; i < 10; i++) {
		pthread_t t;
		char byte;
		handled = has_told = 0;
		pthread_create(&t, 0, signals_and_tells, 0);
		while (!has_told)
			read(zeros, &byte, 1);
		early += handled != 6;
		pthread_join(t, 0);
	}
	ask(early == 0);
}

static pthread_barrier_t barrier;

static void *meets(void *arg)
{
	for (int i = 0; i < 10; i++) {
		stall(((long)arg * 10 + i) % 64, 1);
		pthread_barrier_wait(&barrier);
	}
	return 0;
}

CASE(meeting_at_barriers)
{
	pthread_t t[5];
	pthread_barrier_init(&barrier, 0, 6);
	for (long i = 0; i < 5; i++)
		pthread_create(&t[i], 0, meets, (void *)i);
	meets((void *)5);
	for (int i = 0; i < 5; i++)
		pthread_join(t[i], 0);
	puts("all met");
}
