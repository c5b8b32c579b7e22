/* Mappings, the heap, protections, and faults of the program's own. */
#include "twin.h"
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>

static sigjmp_buf back;
static volatile int caught, at_address;
static char *watched;

static void on_fault(int s, siginfo_t *i, void *c)
{
	caught = s;
	at_address = (char *)i->si_addr == watched;
	siglongjmp(back, 1);
}

static const char *touch(char *p, int write)
{
	static char text[64];
	caught = 0, watched = p;
	if (sigsetjmp(back, 1) == 0) {
		if (write)
			*(volatile char *)p = 1;
		else
			(void)*(volatile char *)p;
		return "fine";
	}
	snprintf(text, sizeof text, "signal %d, there: %s", caught, yes(at_address));
	return text;
}

static void catch_faults(void)
{
	on_info(SIGSEGV, on_fault, 0);
	on_info(SIGBUS, on_fault, 0);
}

CASE(protections)
{
	catch_faults();
	char *p = mmap(0, 8 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int prots[] = { PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE, PROT_READ | PROT_EXEC };
	for (int i = 0; i < 4; i++) {
		must(mprotect(p + 4096, 4096, prots[i]));
		stall(10 + i, 1);
		printf("read %s, ", touch(p + 4096, 0));
		printf("write %s\n", touch(p + 4097, 1));
	}
	must(munmap(p + 3 * 4096, 4096));
	puts(touch(p + 3 * 4096, 0));
	puts(touch(p + 4 * 4096, 1));
	show(mprotect(p, 8 * 4096, PROT_READ));
	show(mprotect(p + 1, 4096, PROT_READ));
	show(munmap(p + 1, 4096));
	show(munmap(p, 8 * 4096));
}

CASE(files_mapped_beyond_their_end)
{
	catch_faults();
	int fd = must(open("many/11", O_RDONLY));
	char *p = mmap(0, 4 * 4096, PROT_READ, MAP_PRIVATE, fd, 0);
	stall(20, 5);
	printf("%c %c %d\n", p[0], p[5010], p[5011]);
	puts(touch(p + 4096, 0));
	puts(touch(p + 2 * 4096, 0));
	puts(touch(p, 1));
	int cut = must(open(in_work("cut"), O_RDWR | O_CREAT, 0600));
	must(ftruncate(cut, 8192));
	char *q = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, cut, 0);
	q[5000] = 'x';
	must(ftruncate(cut, 4096));
	puts(touch(q + 5000, 0));
	must(ftruncate(cut, 8192));
	printf("%s %d\n", touch(q + 5000, 0), q[5000]);
	stall(30, 5);
}

CASE(sums_of_mapped_files)
{
	for (int flags = 0; flags < 3; flags++) {
		int fd = must(open("big", O_RDONLY));
		char *p = mmap(0, 3 << 20, PROT_READ, flags == 0 ? MAP_PRIVATE : flags == 1 ? MAP_SHARED : MAP_PRIVATE | MAP_POPULATE, fd, 0);
		close(fd);
		printf("%u\n", sum(p, 3 << 20));
		unsigned h = 0;
		for (long i = 0; i < 3 << 20; i += 37 * 4096)
			h = h * 31 + p[i];
		printf("%u\n", h);
		must(munmap(p, 3 << 20));
	}
}

CASE(moved_and_grown)
{
	char *p = mmap(0, 4 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (int i = 0; i < 4; i++)
		p[i * 4096] = 'a' + i;
	stall(10, 3);
	char *q = mremap(p, 4 * 4096, 400 * 4096, MREMAP_MAYMOVE);
	printf("%c%c%c%c %d\n", q[0], q[4096], q[8192], q[12288], q[100 * 4096]);
	stall(20, 3);
	q = mremap(q, 400 * 4096, 2 * 4096, 0);
	printf("%c%c\n", q[0], q[4096]);
	char *place = mmap(0, 8 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ask(mremap(q, 2 * 4096, 2 * 4096, MREMAP_MAYMOVE | MREMAP_FIXED, place + 4096) == place + 4096);
	printf("%c\n", place[2 * 4096]);
	show(mremap(q, 4096, 8192, 0) == MAP_FAILED ? -1 : 0);
	show(mremap(place + 1, 4096, 8192, MREMAP_MAYMOVE) == MAP_FAILED ? -1 : 0);
	catch_faults();
	puts(touch(place, 0));
}

CASE(where_they_may_be)
{
	char *p = mmap((void *)0x10000, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	ask(p == (void *)0x10000);
	ask(mmap((void *)0x10000, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED && errno == EEXIST);
	stall(10, 3);
	p = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	ask((unsigned long)p < 1ul << 31);
	/* The first gigabytes above the program and all between is its own to take. */
	p = mmap((void *)0x20000000000, 1ul << 32, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
	ask(p == (void *)0x20000000000);
	show(mmap(0, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? -1 : 0);
	show(mmap((void *)1, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED ? -1 : 0);
	show(mmap(0, 4096, PROT_READ, MAP_PRIVATE, 77, 0) == MAP_FAILED ? -1 : 0);
	int fd = must(open("data", O_RDONLY));
	show(mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED ? -1 : 0);
	show(mmap(0, 4096, PROT_READ, MAP_SHARED, fd, 100) == MAP_FAILED ? -1 : 0);
	show(munmap((void *)(1ul << 47), 4096));
}

CASE(growing_down)
{
	char *p = mmap(0, 4096 * 600, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(munmap(p, 4096 * 600));
	char *top = mmap(p + 4096 * 500, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN | MAP_FIXED, -1, 0);
	for (int i = 0; i < 100; i++)
		top[-i * 4096l] = i;
	stall(10, 5);
	printf("%d %d\n", top[-50 * 4096], top[-99 * 4096]);
}

CASE(faults_that_the_program_serves)
{
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
	if (fd < 0) {
		puts("not here");
		return;
	}
	struct uffdio_api api = { .api = UFFD_API, .features = UFFD_FEATURE_SIGBUS };
	must(ioctl(fd, UFFDIO_API, &api));
	char *p = mmap(0, 8 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), page[4096] __attribute__((aligned(4096)));
	struct uffdio_register r = { { (long)p, 8 * 4096 }, UFFDIO_REGISTER_MODE_MISSING };
	must(ioctl(fd, UFFDIO_REGISTER, &r));
	catch_faults();
	puts(touch(p, 0));
	memset(page, 'q', sizeof page);
	struct uffdio_copy c = { (long)p, (long)page, 4096 };
	show(ioctl(fd, UFFDIO_COPY, &c));
	stall(10, 5);
	printf("%s %c\n", touch(p, 0), *p);
	puts(touch(p + 4096, 0));
	/* A write by the kernel faults there, too. */
	int file = must(open("many/40", O_RDONLY));
	show(read(file, p + 2 * 4096, 100));
	show(read(file, p + 100, 100));
	show(stat("many/41", (struct stat *)(p + 3 * 4096)));
}

static void *reads_a_page(void *arg)
{
	return (void *)(long)((char *)arg)[4096 * 3];
}

CASE(faults_served_by_a_thread)
{
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
	if (fd < 0) {
		puts("not here");
		return;
	}
	struct uffdio_api api = { .api = UFFD_API };
	must(ioctl(fd, UFFDIO_API, &api));
	char *p = mmap(0, 8 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), page[4096] __attribute__((aligned(4096)));
	struct uffdio_register r = { { (long)p, 8 * 4096 }, UFFDIO_REGISTER_MODE_MISSING };
	must(ioctl(fd, UFFDIO_REGISTER, &r));
	stall(20, 5);
	pthread_t t;
	pthread_create(&t, 0, reads_a_page, p);
	struct uffd_msg m;
	show(read(fd, &m, sizeof m));
	printf("%x %d\n", m.event, m.arg.pagefault.address / 4096 == (unsigned long)p / 4096 + 3);
	int file = must(open("many/42", O_RDONLY));
	must(read(file, page, 4096));
	struct uffdio_copy c = { (long)(p + 4096 * 3), (long)page, 4096 };
	show(ioctl(fd, UFFDIO_COPY, &c));
	void *got;
	pthread_join(t, &got);
	printf("%c\n", (int)(long)got);
}

CASE(advice)
{
	catch_faults();
	char *p = mmap(0, 16 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memset(p, 'm', 16 * 4096);
	stall(10, 3);
	show(madvise(p, 4096, MADV_DONTNEED));
	printf("%d %c\n", p[0], p[4096]);
	show(madvise(p + 4096, 4096, MADV_DONTFORK));
	show(madvise(p + 8192, 4096, 18 /* MADV_WIPEONFORK */));
	pid_t child = must(fork());
	if (child == 0) {
		stall(20, 2);
		printf("%s, %d\n", touch(p + 4096, 0), p[8192]);
		_exit(0);
	}
	ended("child", child);
	printf("%c %c\n", p[4096], p[8192]);
	show(madvise(p, 4096, 9999));
	show(madvise(p + 1, 4096, MADV_DONTNEED));
	show(msync(p, 4096, MS_SYNC));
	show(mlock(p, 4096));
	unsigned char v[16];
	show(mincore(p, 16 * 4096, v));
	printf("%d\n", v[1] & 1);
	show(munlock(p, 4096));
}

CASE(memory_shared_between_processes)
{
	int fd = must(memfd_create("shared", MFD_ALLOW_SEALING));
	must(ftruncate(fd, 65536));
	volatile int *p = mmap(0, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	pid_t child = must(fork());
	if (child == 0) {
		for (int i = 0; i < 20; i++) {
			while (p[0] != i)
				sched_yield();
			stall(20 + i, 1);
			p[1] += i;
			p[0]++;
		}
		_exit(0);
	}
	for (int i = 0; i < 20; i++) {
		stall(40 + i, 1);
		while (p[0] < i + 1)
			sched_yield();
	}
	ended("child", child);
	printf("%d\n", p[1]);
	show(fcntl(fd, F_ADD_SEALS, 8 /* F_SEAL_WRITE */));
	munmap((void *)p, 65536);
	show(fcntl(fd, F_ADD_SEALS, 8));
	show(write(fd, "x", 1));
}

/* The program may unmap or replace all of its mappings; other memory does not get in its way. */
CASE(a_mapping_replaced_again_and_again)
{
	char *p = mmap(0, 64 << 10, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned h = 0;
	for (int i = 0; i < 30; i++) {
		char name[20];
		snprintf(name, sizeof name, "many/%02d", 10 + i);
		int fd = must(open(name, O_RDONLY));
		must((long)mmap(p, 5000, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd, 0));
		close(fd);
		p[10]++;
		h = h * 31 + sum(p, 5000);
		must((long)mmap(p, 64 << 10, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
		h += p[10];
	}
	printf("%u\n", h);
}
