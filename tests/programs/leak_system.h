/* Mounts, namespaces, keys, names, and the machine. */
ONE(mount, SYS_mount, "mounts", "leak", "empty", "tmpfs", 0, 0)
ONE(umount2, SYS_umount2, "mounts", "mnt", 2 /* MNT_DETACH */)
ONE(move_mount, SYS_move_mount, "mounts", N(mount), "", AT_FDCWD, "empty", 4)
ONE(mount_setattr, SYS_mount_setattr, "mounts", AT_FDCWD, "mnt", 0,
    ((long[]){ 1 /* RDONLY */, 0, 0, 0 }), 32)
ONE(open_tree, SYS_open_tree, "shadow/fd", AT_FDCWD, "mnt", 1 /* OPEN_TREE_CLONE */)
ONE(open_tree_attr, SYS_open_tree_attr, "shadow/fd", AT_FDCWD, "mnt", 1, ((long[]){ 1, 0, 0, 0 }), 32)
ONE(fsopen, SYS_fsopen, "shadow/fd", "tmpfs", 0)
ONE(fsconfig, SYS_fsconfig, "fd/context:log", N(context), 1 /* SET_STRING */, "nonsense", "x", 0)
ONE(fsmount, SYS_fsmount, "shadow/fd", N(ready), 0, 0)
ONE(fspick, SYS_fspick, "shadow/fd", AT_FDCWD, "mnt", 0)
ONE(sethostname, SYS_sethostname, "uts", "leak", 4)
ONE(setdomainname, SYS_setdomainname, "uts", "leak", 4)
CASE(hostname_file, SYS_write, "uts")
{
	int fd = T(SYS_openat2, AT_FDCWD, "/proc/sys/kernel/hostname", OPEN_HOW(O_WRONLY, 0));
	return FAILED(fd) ? fd : T(SYS_write, fd, "leak", 4);
}
ONE(add_key, SYS_add_key, "keys", "user", "made", "leak", 4, -3 /* the session's keyring */)
ONE(keyctl, SYS_keyctl, "keys", 2 /* KEYCTL_UPDATE */, N(key), "leak", 4)
ONE(request_key, SYS_request_key, "keys", "user", "present", 0, N(keyring))
ONE(bpf_pin, SYS_bpf, "bpf/made",
    6 /* BPF_OBJ_PIN */, ((long[16]){ (long)text("pin"), N(map) }), 128)
ONE(bpf_update, SYS_bpf, "fd/map:value", 2 /* UPDATE */,
    ((long[16]){ N(map), (long)&(int){ 0 }, (long)&(long){ 99 } }), 128)
ONE(bpf_map, SYS_bpf, "shadow/fd", 0 /* MAP_CREATE */, ((int[32]){ 2, 4, 8, 1 }), 128)
ONE(acct, SYS_acct, "tree/accounts:size", "accounts")
#define QUOTA ((long[9]){ 99, 99, 0, 0, 0, 0, 0, 0, 1 })
ONE(quotactl, SYS_quotactl, "quota", 0x80000800, text("quota_device"), 1234, QUOTA)
ONE(quotactl_fd, SYS_quotactl_fd, "quota", N(quota), 0x80000800, 1234, QUOTA)
UNSAFE(settimeofday, SYS_settimeofday, "sets the machine's clock", ((long[]){ time(0), 0 }), 0)
UNSAFE(clock_settime, SYS_clock_settime, "sets the machine's clock", 0, ((long[]){ time(0), 0 }))
#define ADJUST ((long[26]){ 1 /* ADJ_OFFSET */, 1 })
UNSAFE(adjtimex, SYS_adjtimex, "sets the machine's clock", ADJUST)
UNSAFE(clock_adjtime, SYS_clock_adjtime, "sets the machine's clock", 0, ADJUST)
UNSAFE(reboot, SYS_reboot, "ends the suite's namespace, or the machine", 0xfee1dead, 0x28121969, 0x01234567, 0)
UNSAFE(kexec_load, SYS_kexec_load, "replaces the kernel that a crash starts", 0, 0, 0, 0)
UNSAFE(kexec_file_load, SYS_kexec_file_load, "replaces the kernel that a crash starts", N(file), -1, 0, "", 0)
UNSAFE(init_module, SYS_init_module, "runs code in the kernel", buffer, BUFFER, "")
UNSAFE(finit_module, SYS_finit_module, "runs code in the kernel", N(file), "", 0)
UNSAFE(delete_module, SYS_delete_module, "takes code from the kernel", "loop", O_NONBLOCK)
UNSAFE(swapon, SYS_swapon, "the machine's swap space", "accounts", 0)
UNSAFE(swapoff, SYS_swapoff, "the machine's swap space", "accounts")
UNSAFE(syslog, SYS_syslog, "the machine's console", 8 /* CONSOLE_LEVEL */, 0, 7)
UNSAFE(iopl, SYS_iopl, "lets itself at the machine's devices", 3)
UNSAFE(ioperm, SYS_ioperm, "lets itself at the machine's devices", 0x80, 1, 1)
UNSAFE(migrate_pages, SYS_migrate_pages, "needs a second memory node to be seen", N(bystander), 64, (&(long){ 1 }), (&(long){ 1 }))
UNSAFE(move_pages, SYS_move_pages, "needs a second memory node to be seen", N(bystander), 1, (&(long){ N(word) }), (&(int){ 0 }), buffer, 2)
UNSAFE(landlock_restrict_self, SYS_landlock_restrict_self, "concerns the shadow alone, and nothing shows it", 3, 0)
UNSAFE(landlock_add_rule, SYS_landlock_add_rule, "concerns the shadow alone, and nothing shows it", 3, 1, buffer, 0)
UNSAFE(modify_ldt, SYS_modify_ldt, "concerns the shadow alone, and nothing shows it", 0x11, buffer, 16)
UNSAFE(process_mrelease, SYS_process_mrelease, "takes memory only of a process that is dying", N(pidfd), 0)
/* The other ways into the kernel. */
ONE(x32_unlink, SYS_unlink | 0x40000000, "tree/victim", "victim")
ONE(x32_kill, SYS_kill | 0x40000000, "bystander/ShdPnd", N(bystander), SIGURG)
static long int80(long nr, const void *a, long b, long c)
{
	/* Memory above 4 GiB cannot be addressed. */
	char *low = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	if (low == MAP_FAILED)
		return -1;
	strcpy(low, a);
	long ret;
	asm volatile("int $0x80" : "=a"(ret) : "a"(nr), "b"(low), "c"(b), "d"(c) : "memory", "r8", "r9", "r10", "r11");
	return ret;
}
CASE(int80_unlink, INT80, "tree/victim") { return int80(10, "victim", 0, 0); }
CASE(int80_open, INT80, "tree/made") { return int80(5, "made", O_CREAT | O_WRONLY, 0600); }
