/* Several readers of one description: each read takes its bytes and moves the offset in one step,
 * so that each record is taken once and whole. The start of each record is in memory and the rest
 * is not, which is where a read could split. */
#include "twin.h"

enum { RECORD = 32 << 10, RECORDS = 48, CACHED = 4096, READERS = 4, ATTEMPTS = 4 };

/* Memory that all readers share. */
static struct taken {
	int count[RECORDS], mixed, odd;
} *taken;

static int fd;

static void record_file(void)
{
	static unsigned record[RECORD / 4];
	int out = must(open(in_work("records"), O_WRONLY | O_CREAT, 0600));
	for (int i = 0; i < RECORDS; i++) {
		for (int n = 0; n < RECORD / 4; n++)
			record[n] = i;
		must(write(out, record, RECORD));
	}
	must(fsync(out));
	must(close(out));
	taken = mmap(0, sizeof *taken, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

/* A new description, at the file's start. */
static void open_cold(void)
{
	char start[CACHED];
	fd = must(open(in_work("records"), O_RDONLY));
	must(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
	must(posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM));
	for (int i = 0; i < RECORDS; i++)
		must(pread(fd, start, sizeof start, (off_t)i * RECORD));
	memset(taken, 0, sizeof *taken);
}

/* `got` bytes have come for one read. */
static void take(const unsigned *record, ssize_t got)
{
	if (got != RECORD || record[0] >= RECORDS) {
		__atomic_add_fetch(&taken->odd, 1, __ATOMIC_RELAXED);
		return;
	}
	int mixed = 0;
	for (int n = 0; n < RECORD / 4; n++)
		mixed |= record[n] != record[0];
	__atomic_add_fetch(&taken->mixed, mixed, __ATOMIC_RELAXED);
	__atomic_add_fetch(&taken->count[record[0]], 1, __ATOMIC_RELAXED);
}

static int whole(void)
{
	int once = 1;
	for (int i = 0; i < RECORDS; i++)
		once &= taken->count[i] == 1;
	return once && !taken->mixed && !taken->odd;
}

/* The records that come next are as they were, whatever has been fetched since. */
static void forget_after(unsigned number)
{
	char start[CACHED];
	must(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
	for (unsigned i = 1; i <= READERS && number + i < RECORDS; i++)
		must(pread(fd, start, sizeof start, (off_t)(number + i) * RECORD));
}

static void *take_all(void *in_two_parts)
{
	unsigned *record = malloc(RECORD);
	struct iovec parts[] = { { record, CACHED }, { record + CACHED / 4, RECORD - CACHED } };
	for (ssize_t got;;) {
		got = in_two_parts ? readv(fd, parts, 2) : read(fd, record, RECORD);
		if (got == 0)
			break;
		take(record, got);
		if (got < 0)
			break;
		forget_after(record[0]);
	}
	free(record);
	return 0;
}

static void by_threads(void *in_two_parts)
{
	record_file();
	for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
		open_cold();
		pthread_t readers[READERS];
		for (int i = 0; i < READERS; i++)
			must(-pthread_create(&readers[i], 0, take_all, in_two_parts));
		for (int i = 0; i < READERS; i++)
			pthread_join(readers[i], 0);
		ask(whole());
		close(fd);
	}
}

CASE(by_threads_each_record_once)
{
	by_threads(0);
}

CASE(by_threads_in_two_parts)
{
	by_threads(&fd);
}

CASE(by_processes_each_record_once)
{
	record_file();
	for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
		open_cold();
		pid_t readers[READERS];
		for (int i = 0; i < READERS; i++)
			if ((readers[i] = must(fork())) == 0) {
				take_all(0);
				_exit(0);
			}
		for (int i = 0; i < READERS; i++)
			ended("reader", readers[i]);
		ask(whole());
		close(fd);
	}
}

/* The reader is in its read, as far as a handler can know. */
static volatile sig_atomic_t reading;

static void take_one(int signal)
{
	static unsigned record[RECORD / 4];
	int error = errno;
	if (reading) {
		reading = 0;
		ssize_t got = read(fd, record, RECORD);
		if (got != 0)
			take(record, got);
	}
	errno = error;
}

CASE(by_a_handler_each_record_once)
{
	unsigned *record = malloc(RECORD);
	record_file();
	on(SIGALRM, take_one, SA_RESTART);
	for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
		open_cold();
		every(20);
		for (ssize_t got;;) {
			reading = 1;
			got = read(fd, record, RECORD);
			reading = 0;
			if (got == 0)
				break;
			take(record, got);
		}
		every(0);
		ask(whole());
		close(fd);
	}
}

/* The part that is not in memory would go where nothing can be written. */
CASE(into_what_is_read_only)
{
	char *buf = mmap(0, 4 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	record_file();
	open_cold();
	for (int i = 0; i < 8; i++) {
		off_t at = (off_t)(4 * i + 1) * RECORD;
		must(mprotect(buf, 4 * 4096, PROT_READ | PROT_WRITE));
		memset(buf, 'x', 4 * 4096);
		must(mprotect(buf + (i % 4) * 4096, 4096, PROT_READ));
		show(pread(fd, buf + 50, 3 * 4096, at));
		show(lseek(fd, at, SEEK_SET));
		show(read(fd, buf, 4 * 4096));
		show(lseek(fd, 0, SEEK_CUR));
		printf("%u\n", sum(buf, 4 * 4096));
	}
}
