// Maps, unmaps, protects, advises, stores to and touches parts of a file and of its own memory, in
// an order that a seed decides, with children and calls in between; prints what it has seen.
//
// usage: mapped_steps FILE SEED STEPS
#include "drawn_steps.h"

#define PAGE 4096l
#define MAPPINGS 12
#define OWN (6l << 20)

struct mapping {
	unsigned char *at;
	long pages;
	int prot, own;
};

static struct mapping all[MAPPINGS];
static int file;
static long file_pages;
static unsigned char *own;

static void touch(struct mapping *m)
{
	for (int n = 0; n < 8; n++) {
		unsigned char *at = m->at + next(m->pages) * PAGE + next(PAGE);
		see(*at);
		if (m->own && m->prot & PROT_WRITE)
			*at += (unsigned char)n + 1;
	}
}

static void map(struct mapping *m)
{
	long pages = 1 + next(next(3) ? 64 : file_pages);
	long first = next(file_pages - pages + 1);
	int shared = next(3) == 0;

	m->own = !shared;
	m->prot = PROT_READ | (!shared && next(2) ? PROT_WRITE : 0);
	m->at = mmap(0, pages * PAGE, m->prot, shared ? MAP_SHARED : MAP_PRIVATE, file, first * PAGE);
	m->pages = pages;
	if (m->at == MAP_FAILED)
		m->at = 0;
}

static void cut(struct mapping *m)
{
	long keep = 1 + next(m->pages);

	if (keep < m->pages)
		must(munmap(m->at + keep * PAGE, (m->pages - keep) * PAGE));
	m->pages = keep;
}

static void move(struct mapping *m)
{
	void *to = mmap(0, m->pages * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void *at = mremap(m->at, m->pages * PAGE, m->pages * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to);

	if (at != MAP_FAILED)
		m->at = at;
}

static void protect(struct mapping *m)
{
	if (!m->own)
		return;
	m->prot = PROT_READ | (next(2) ? PROT_WRITE : 0);
	must(mprotect(m->at, m->pages * PAGE, m->prot));
}

static void advise(struct mapping *m)
{
	static const int advice[] = { MADV_RANDOM, MADV_SEQUENTIAL, MADV_WILLNEED, MADV_NORMAL, MADV_DONTNEED };

	madvise(m->at, m->pages * PAGE, advice[next(5)]);
}

// A child reads its parent's memory and stores to it, which the parent must not see.
static void child(void)
{
	int status;
	pid_t pid = must(fork());

	if (pid == 0) {
		for (long at = 0; at < OWN; at += PAGE) {
			see(own[at]);
			own[at] = 0;
		}
		for (int n = 0; n < MAPPINGS; n++)
			if (all[n].at)
				see(all[n].at[0]);
		_exit(seen & 0x7f);
	}
	must(waitpid(pid, &status, 0));
	see(status);
}

static void call(struct mapping *m)
{
	long pages = 1 + next(m->pages < 8 ? m->pages : 8);
	unsigned char *at = m->at + next(m->pages - pages + 1) * PAGE;
	char buffer[128];
	int pipes[2];

	switch (next(3)) {
	case 0: // Into it.
		if (m->own && m->prot & PROT_WRITE)
			see(pread(file, at, pages * PAGE, next(file_pages) * PAGE));
		break;
	case 1: // From it.
		must(pipe(pipes));
		see(write(pipes[1], at, pages * PAGE));
		see(read(pipes[0], buffer, sizeof buffer));
		see(buffer[next(sizeof buffer)]);
		close(pipes[0]);
		close(pipes[1]);
		break;
	default: // A plain read, cold mostly.
		see(pread(file, own + next(OWN - PAGE), PAGE, next(file_pages) * PAGE));
	}
}

static void work_on_own_memory(void)
{
	for (int n = 0; n < 32; n++) {
		long at = next(OWN);
		see(own[at]);
		own[at] += (unsigned char)seen;
	}
}

int main(int argc, char **argv)
{
	struct stat stat;

	if (argc < 4)
		return 2;
	file = must(open(argv[1], O_RDONLY));
	must(fstat(file, &stat));
	file_pages = stat.st_size / PAGE;
	state = strtoull(argv[2], 0, 10) * 2 + 88172645463325253ull;
	own = malloc(OWN);
	for (long at = 0; at < OWN; at += 64)
		own[at] = (unsigned char)(at >> 6);
	for (long step = atol(argv[3]); step > 0; step--) {
		struct mapping *m = &all[next(MAPPINGS)];

		if (!m->at) {
			map(m);
			continue;
		}
		switch (next(16)) {
		case 0:
			must(munmap(m->at, m->pages * PAGE));
			m->at = 0;
			break;
		case 1: cut(m); break;
		case 2: move(m); break;
		case 3: protect(m); break;
		case 4: advise(m); break;
		case 5: call(m); break;
		case 6: if (next(8) == 0) child(); break;
		case 7: work_on_own_memory(); break;
		default: touch(m);
		}
		if (step % 16 == 0)
			printf("%016llx\n", (unsigned long long)seen);
	}
	return 0;
}
