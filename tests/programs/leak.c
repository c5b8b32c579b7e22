/* Reads a byte that its shadow does not have, and does harm if the byte is what the shadow assumes.
 *
 * The suite steers it through the page at PAGE. A shadow marks that it has reached the call and
 * waits for `go`. The target, which sees the real byte, waits for `done` and then prints which of
 * its own state has changed. Usage: leak CASE COLD-FILE OFFSET, leak --list.
 *
 * leak CASE WAY is the same for a process that speculates by itself: it begins, does the harm, and
 * is rolled back when the suite has a child of it report failure. WAY: `speculative`; `own`, with
 * the file opened by itself alone; `allowed`, with all output going out at once; `native`, without
 * a speculation. */
#include "leak.h"
#include <linux/fs.h>
#include <mqueue.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <time.h>

volatile char *mapped, *read_only, *anonymous, *segment, *memory_file, *posix_memory;
volatile unsigned *futex_word;
int target_pid;
char buffer[BUFFER];

const char *text(const char *name)
{
	char variable[64];
	snprintf(variable, sizeof variable, "LEAK_%s", name);
	const char *value = getenv(variable);
	if (!value) {
		fprintf(stderr, "the suite gives no %s\n", name);
		_exit(98);
	}
	return value;
}

long number(const char *name)
{
	return strtol(text(name), 0, 0);
}

#include "leak_files.h"
#include "leak_memory.h"
#include "leak_descriptors.h"
#include "leak_processes.h"
#include "leak_system.h"

#define PAGE 0x2b0000000
static volatile struct {
	unsigned long magic, stage, go, done;
	long result;
	/* The speculation, and the child that settles it. */
	unsigned long id, settler;
} *page;
enum { START, AT_CALL, AFTER_CALL, TARGET = 10 };

/* Any call, with arguments that could be right. */
static long nr, variant;

static long any(void)
{
	const long descriptors[] = { N(file), N(pipe_in), N(sock), N(tty), N(directory), N(event) };
	const long fd = descriptors[nr % 6];
	const long p = (long)buffer;
	static struct iovec vector = { "leak", 4 };
	switch (variant) {
	case 0: return T(nr, fd, "leak", 4, 0, 0, 0);
	case 1: return T(nr, "file", "made", 0777, p, 8, 0);
	case 2: return T(nr, AT_FDCWD, "victim", AT_FDCWD, "made", 0, 0);
	case 3: return T(nr, N(bystander), SIGURG, p, 8, p, 0);
	case 4: return T(nr, fd, &vector, 1, 0, 0, 0);
	case 5: return T(nr, 0, N(bystander), 1, p, 0, 0);
	default: return T(nr, p, p, p, p, p, p);
	}
}

/* State of its own that a process can see change. */
static struct state { long anonymous, pending, mask, uid, nice, files, offset; char directory[512], name[16]; }
look(int own)
{
	struct state s = { .anonymous = *anonymous };
	struct rlimit limit;
	raw(SYS_rt_sigpending, (long)&s.pending, 8, 0, 0, 0, 0);
	umask(s.mask = umask(0));
	s.uid = getuid();
	s.nice = getpriority(PRIO_PROCESS, 0);
	getrlimit(RLIMIT_NOFILE, &limit);
	s.files = limit.rlim_cur;
	s.offset = lseek(own, 0, SEEK_CUR);
	must(syscall(SYS_getcwd, s.directory, sizeof s.directory));
	prctl(PR_GET_NAME, s.name);
	return s;
}

#define COMPARE(FIELD) do if (now.FIELD != before.FIELD) printf("%s: %ld\n", #FIELD, (long)now.FIELD); while (0)

/* Waits until it may go on, and says what has changed since. */
static int as_before(int own, struct state before)
{
	page->stage = TARGET;
	while (!page->done)
		poll(0, 0, 1);
	struct state now = look(own);
	COMPARE(anonymous);
	COMPARE(pending);
	COMPARE(mask);
	COMPARE(uid);
	COMPARE(nice);
	COMPARE(files);
	COMPARE(offset);
	if (strcmp(now.directory, before.directory) || strcmp(now.name, before.name))
		printf("name: %s %s\n", now.directory, now.name);
	return 17;
}

/* Declarations of runahead_speculate.h, without the library. */
enum { BEGIN = 1, FAIL = 3, SET_POLICY = 5 };
enum { ALLOW = 3 };
static long spec(long what, long a, long b, long c)
{
	return raw(SYS_fadvise64, 0x9d155bec, 1L << 32 | what, a, b, c, 0);
}

/* A child that reports failure of the speculation whose number the suite writes to `done`. It ends
 * with its parent, whose end would settle the speculation earlier. */
static pid_t start_settler(void)
{
	pid_t pid = must(fork());
	if (pid)
		return pid;
	must(prctl(PR_SET_PDEATHSIG, SIGKILL));
	while (!page->done)
		poll(0, 0, 1);
	spec(FAIL, page->done, 0, 0);
	for (;;)
		pause();
}

/* Does the harm while it speculates; returns when that has never been. */
static void speculate(long (*harm)(void), int begins)
{
	unsigned long id = 0;
	long begun = begins ? spec(BEGIN, (long)&id, page->settler, 0) : 0;
	if (begun < 0) {
		printf("it cannot speculate: %ld\n", begun);
		exit(95);
	}
	if (begun > 0)
		return;
	page->id = id;
	page->stage = AT_CALL;
	while (!page->go)
		__builtin_ia32_pause();
	page->result = harm();
	page->stage = AFTER_CALL;
	/* A process that only computes is not told of the outcome. */
	while (!page->done)
		raw(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
}

static char *volatile large;

int main(int argc, char **argv)
{
	if (argc == 2) {
		for (const struct leak *const *l = __start_leaks; l < __stop_leaks; l++)
			printf("%s\t%ld\t%s\t%s\t%s\n", (*l)->name, (*l)->nr, (*l)->seen, (*l)->unsafe ?: "",
			       (*l)->restraint ?: "");
		return 0;
	}
	long (*harm)(void) = sscanf(argv[1], "number:%li:%li", &nr, &variant) == 2 ? any : 0;
	for (const struct leak *const *l = __start_leaks; !harm && l < __stop_leaks; l++)
		if (!strcmp((*l)->name, argv[1]))
			harm = (*l)->harm;
	if (!harm)
		return 97;
	/* Large enough for memory that a shadow gets on first touch. */
	large = malloc(2 << 20);
	memset(large, 1, 2 << 20);
	page = mmap((void *)PAGE, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	const char *way = argc == 3 ? argv[2] : 0;
	/* A process that could store into shared memory does not speculate. */
	const int stores = !way || !strcmp(way, "native"), both = PROT_READ | (stores ? PROT_WRITE : 0);
	int fd = must(open("mapped", O_RDWR));
	mapped = mmap(0, 4096, both, MAP_SHARED, fd, 0);
	close(fd);
	fd = must(open("read_only", O_RDWR));
	read_only = mmap(0, 4096, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	fd = must(open("futex", O_RDWR));
	futex_word = mmap(0, 4096, both, MAP_SHARED, fd, 0);
	close(fd);
	fd = must(open("/dev/shm/leak", O_RDWR));
	posix_memory = mmap(0, 4096, both, MAP_SHARED, fd, 0);
	close(fd);
	/* Large enough for memory that a shadow gets on first use. */
	anonymous = mmap(0, 1 << 20, both, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	memory_file = mmap(0, 4096, both, MAP_SHARED, N(memfd), 0);
	segment = shmat(N(shm), 0, stores ? 0 : SHM_RDONLY);
	target_pid = getpid();
	sigset_t all;
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, 0);
	int own = must(open("other", O_RDONLY));
	must(lseek(own, 3, SEEK_SET));
	if (way) {
		page->settler = start_settler();
		if (!strcmp(way, "own")) {
			char number[16];
			own = must(open("file", O_RDWR));
			must(lseek(own, 3, SEEK_SET));
			snprintf(number, sizeof number, "%d", own);
			must(setenv("LEAK_file", number, 1));
		}
		for (int fd = 0; fd < 1024 && !strcmp(way, "allowed"); fd++)
			spec(SET_POLICY, fd, ALLOW, 0);
		struct state before = look(own);
		page->magic = PAGE;
		speculate(harm, strcmp(way, "native"));
		return as_before(own, before);
	}
	int cold = must(open(argv[2], O_RDONLY));
	must(posix_fadvise(cold, 0, 0, POSIX_FADV_RANDOM));
	const off_t offset = strtol(argv[3], 0, 0);
	struct state before = look(own);
	page->magic = PAGE;
	/* A shadow of some earlier stall would be too young to be made anew. */
	usleep(3000);

	volatile char answer = 'Y';
	/* A shadow that was given no sandbox has been given no table of descriptors either. */
	if (pread(cold, (char *)&answer, 1, offset) != 1 && errno != EBADF)
		return 96;
	if (answer == 'Y') {
		page->stage = AT_CALL;
		while (!page->go)
			__builtin_ia32_pause();
		page->result = harm();
		page->stage = AFTER_CALL;
		for (;;)
			__builtin_ia32_pause();
	}
	return as_before(own, before);
}
