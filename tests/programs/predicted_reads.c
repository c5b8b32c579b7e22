/* predicted_reads FILES MS QUESTIONS WRONG_IN [thread]: asks a child, which takes MS milliseconds
 * for an answer, which of FILES files in src to read next, and reads them. Each answer is
 * predicted, one in WRONG_IN wrongly (0: none). Data that was read under a prediction must still be
 * there after a rollback. Prints a sum of everything read. With `thread`, another thread makes
 * calls meanwhile. */
#include "program_helpers.h"
#include <pthread.h>
#include <runahead_speculate.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>

enum { AT_ONCE = 10 };

struct question {
	uint64_t id;
	int waits, number, prediction, answer;
};

static int files, ms, wrong_in, service[2], answers[2];

static int answer_to(int number)
{
	return number * 7 % (files / AT_ONCE);
}

static void answer(void)
{
	struct question q;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	close(service[1]);
	while (read(service[0], &q, sizeof q) == sizeof q) {
		usleep(ms * 1000);
		q.answer = answer_to(q.number);
		if (q.waits)
			must(write(answers[1], &q, sizeof q));
		else if (q.answer == q.prediction)
			runahead_spec_commit(q.id);
		else
			runahead_spec_fail(q.id, &q.answer, sizeof q.answer);
	}
	_exit(0);
}

static int ask(int number, pid_t child)
{
	int right = answer_to(number), is_wrong = wrong_in && number % wrong_in == wrong_in - 1, answer;
	struct question q = { 0, 0, number, is_wrong ? right ^ 1 : right, 0 };
	switch (runahead_spec_begin(&q.id, child)) {
	case RUNAHEAD_SPECULATIVE:
		must(write(service[1], &q, sizeof q));
		return q.prediction;
	case RUNAHEAD_FAILED:
		if (runahead_spec_answer(q.id, &answer, sizeof answer) == sizeof answer)
			return answer;
	}
	q.waits = 1;
	must(write(service[1], &q, sizeof q));
	if (read(answers[0], &q, sizeof q) != sizeof q)
		exit(1);
	return q.answer;
}

static volatile int done;

static void *call(void *_)
{
	while (!done) {
		getppid();
		usleep(500);
	}
	return _;
}

int main(int argc, char **argv)
{
	static char buf[65536];
	uint64_t sum = 0;
	pthread_t thread;
	files = atoi(argv[1]), ms = atoi(argv[2]), wrong_in = atoi(argv[4]);
	must(socketpair(AF_UNIX, SOCK_STREAM, 0, service));
	must(pipe(answers));
	pid_t child = must(fork());
	if (child == 0)
		answer();
	close(service[0]);
	runahead_spec_set_policy(service[1], RUNAHEAD_ALLOW);
	if (argc > 5)
		must(-pthread_create(&thread, 0, call, 0));
	for (int n = 0; n < atoi(argv[3]); n++) {
		int first = ask(n, child) * AT_ONCE;
		for (int k = first; k < first + AT_ONCE; k++) {
			char name[64];
			snprintf(name, sizeof name, "asked/f%03d", k);
			int fd = must(open(name, O_RDONLY));
			for (ssize_t got; (got = must(read(fd, buf, sizeof buf))) > 0;)
				for (ssize_t at = 0; at < got; at += 64)
					sum = sum * 31 + buf[at] + k;
			close(fd);
		}
	}
	runahead_spec_barrier();
	done = 1;
	if (argc > 5)
		pthread_join(thread, 0);
	printf("sum %llx\n", (unsigned long long)sum);
	fflush(stdout);
	kill(child, SIGKILL);
	return 0;
}
