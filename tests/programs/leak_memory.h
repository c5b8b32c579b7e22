/* Memory that others see. */
CASE(store_file, STORE, "tree/mapped:content") { return *mapped = 'X'; }
CASE(store_anonymous, STORE, "target/anonymous") { return *anonymous = 'X'; }
CASE(store_segment, STORE, "ipc/shm:content") { return *segment = 'X'; }
CASE(store_memfd, STORE, "fd/memfd:content") { return *memory_file = 'X'; }
CASE(store_posix, STORE, "shm/leak:content") { return *posix_memory = 'X'; }
static long store(long at)
{
	if (!FAILED(at))
		*(volatile char *)at = 'X';
	return FAILED(at) ? at : 0;
}
CASE(mmap_shared, SYS_mmap, "tree/other:content")
{
	return store(T(SYS_mmap, 0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, N(other), 0));
}
CASE(mmap_shared_validate, SYS_mmap, "tree/other:content")
{
	return store(T(SYS_mmap, 0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED_VALIDATE, N(other), 0));
}
CASE(mprotect, SYS_mprotect, "tree/read_only:content")
{
	long ret = T(SYS_mprotect, read_only, 4096, PROT_READ | PROT_WRITE);
	return FAILED(ret) ? ret : store((long)read_only);
}
CASE(mremap_again, SYS_mremap, "tree/mapped:content")
{
	return store(T(SYS_mremap, mapped, 0, 4096, MREMAP_MAYMOVE));
}
ONE(madvise_remove, SYS_madvise, "tree/mapped:size", mapped, 4096, 9 /* MADV_REMOVE */)
CASE(shmat, SYS_shmat, "ipc/shm:content") { return store(T(SYS_shmat, N(shm), 0, 0)); }
ONE(shmdt, SYS_shmdt, "ipc/shm", segment)
ONE(shmget, SYS_shmget, "ipc/shm", 4711, 4096, IPC_CREAT | 0600)
ONE(shmctl_remove, SYS_shmctl, "ipc/shm", N(shm), IPC_RMID, 0)
ONE(shmctl_lock, SYS_shmctl, "ipc/shm", N(shm), 11 /* SHM_LOCK */, 0)
ONE(msgget, SYS_msgget, "ipc/msg", 4711, IPC_CREAT | 0600)
ONE(msgsnd, SYS_msgsnd, "ipc/msg", N(msg), ((long[]){ 1, 0 }), 8, IPC_NOWAIT)
ONE(msgrcv, SYS_msgrcv, "ipc/msg", N(msg), buffer, 64, 0, IPC_NOWAIT)
ONE(msgctl_remove, SYS_msgctl, "ipc/msg", N(msg), IPC_RMID, 0)
ONE(semget, SYS_semget, "ipc/sem", 4711, 1, IPC_CREAT | 0600)
ONE(semop, SYS_semop, "ipc/sem", N(sem), ((short[]){ 0, 1, IPC_NOWAIT }), 1)
ONE(semtimedop, SYS_semtimedop, "ipc/sem", N(sem), ((short[]){ 0, -1, IPC_NOWAIT }), 1, 0)
ONE(semctl_set, SYS_semctl, "ipc/sem", N(sem), 0, 16 /* SETVAL */, 99)
ONE(semctl_remove, SYS_semctl, "ipc/sem", N(sem), 0, IPC_RMID)
ONE(mq_open, SYS_mq_open, "mq/made", "made", O_CREAT | O_RDWR, 0600, 0)
ONE(mq_unlink, SYS_mq_unlink, "mq/leak", "leak")
ONE(mq_timedsend, SYS_mq_timedsend, "mq/leak:content", N(mq), "x", 1, 0, 0)
ONE(mq_timedreceive, SYS_mq_timedreceive, "mq/leak:content", N(mq), buffer, BUFFER, 0, 0)
ONE(mq_notify, SYS_mq_notify, "mq/leak:content", N(mq), ((int[16]){ 0, 0, SIGURG, SIGEV_SIGNAL }))
ONE(mq_getsetattr, SYS_mq_getsetattr, "fd/mq:info", N(mq), ((long[8]){ O_NONBLOCK }), 0)
/* A process waits in shared memory: waking it is an effect, and waiting takes its turn. */
ONE(futex_wake_shared, SYS_futex, "futex", futex_word, 1 /* FUTEX_WAKE */, 100)
ONE(futex_wake_number, SYS_futex_wake, "futex", futex_word, 0xffffffff, 100,
    2 /* FUTEX2_SIZE_U32 */)
ONE(futex_wake_op, SYS_futex, "futex", futex_word, 5 /* FUTEX_WAKE_OP */, 100, 100, futex_word, 0)
CASE(futex_wake_mapped, SYS_futex, "futex")
{
	int fd = T(SYS_openat2, AT_FDCWD, "futex", OPEN_HOW(O_RDONLY, 0));
	long at = FAILED(fd) ? fd : T(SYS_mmap, 0, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
	return FAILED(at) ? at : T(SYS_futex, at, 1 /* FUTEX_WAKE */, 100);
}
CASE(futex_requeue_mapped, SYS_futex, "futex")
{
	int fd = T(SYS_openat2, AT_FDCWD, "futex", OPEN_HOW(O_RDONLY, 0));
	long at = FAILED(fd) ? fd : T(SYS_mmap, 0, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
	return FAILED(at) ? at : T(SYS_futex, at, 3 /* FUTEX_REQUEUE */, 1, 1, at + 64);
}
ONE(process_vm_writev, SYS_process_vm_writev, "bystander/memory", N(bystander),
    (&(struct iovec){ "leakleak", 8 }), 1, (&(struct iovec){ (void *)N(word), 8 }), 1, 0)
ONE(process_madvise, SYS_process_madvise, "bystander/huge", N(pidfd),
    (&(struct iovec){ (void *)N(region), 2 << 20 }), 1, 25 /* MADV_COLLAPSE */, 0)
CASE(process_memory_file, SYS_pwrite64, "bystander/memory")
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%ld/mem", N(bystander));
	int fd = T(SYS_openat2, AT_FDCWD, path, OPEN_HOW(O_RDWR, 0));
	return FAILED(fd) ? fd : T(SYS_pwrite64, fd, "leakleak", 8, N(word));
}
