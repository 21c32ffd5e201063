"""The system calls that the sandbox knows, by what they are for: each name with its x86_64 and its aarch64 number.

None (in the text, a minus) where the architecture does not have the call. A call that is in no table is denied to
everyone.
"""

from collections.abc import Mapping

Numbers = tuple[int | None, int | None]


def _table(text: str) -> Mapping[str, Numbers]:
    rows = [call.split() for call in text.split(",")]
    return {name: tuple(None if number == "-" else int(number) for number in numbers) for name, *numbers in rows}


MEMORY = _table(
    """
    mmap 9 222, munmap 11 215, mprotect 10 226, mremap 25 216, madvise 28 233, brk 12 214, msync 26 227,
    mincore 27 232, membarrier 324 283
    """
)
TIME = _table(
    """
    clock_nanosleep 230 115, gettimeofday 96 169, time 201 -, nanosleep 35 101, times 100 153, getitimer 36 102,
    setitimer 38 103, alarm 37 -
    """
)
THREADS = _table(
    """
    futex 202 98, futex_waitv 449 449, set_tid_address 218 96, set_robust_list 273 99, get_robust_list 274 100,
    rseq 334 293, sched_yield 24 124, sched_getaffinity 204 123, sched_getparam 143 121,
    sched_getscheduler 145 120, sched_get_priority_max 146 125, sched_get_priority_min 147 126, getcpu 309 168,
    gettid 186 178, arch_prctl 158 -, exit_group 231 94, restart_syscall 219 128
    """
)
OWN_SIGNALS = _table(
    """
    rt_sigaction 13 134, rt_sigprocmask 14 135, rt_sigreturn 15 139, rt_sigpending 127 136,
    rt_sigsuspend 130 133, rt_sigtimedwait 128 137, sigaltstack 131 132, pause 34 -
    """
)
ABOUT_ITSELF = _table(
    """
    getpid 39 172, getppid 110 173, getpgrp 111 -, getpgid 121 155, getsid 124 156, getuid 102 174,
    geteuid 107 175, getgid 104 176, getegid 108 177, getresuid 118 148, getresgid 120 150, getgroups 115 158,
    getpriority 140 141, getrlimit 97 163, getrusage 98 165, uname 63 160, sysinfo 99 179, umask 95 166,
    wait4 61 260, waitid 247 95, getrandom 318 278
    """
)
DESCRIPTORS = _table(
    """
    read 0 63, write 1 64, readv 19 65, writev 20 66, pread64 17 67, pwrite64 18 68, preadv 295 69,
    pwritev 296 70, preadv2 327 286, pwritev2 328 287, close 3 57, dup 32 23, dup2 33 -, dup3 292 24,
    lseek 8 62, pipe 22 -, pipe2 293 59, poll 7 -, ppoll 271 73, select 23 -, pselect6 270 72,
    epoll_create 213 -, epoll_create1 291 20, epoll_ctl 233 21, epoll_wait 232 -, epoll_pwait 281 22,
    epoll_pwait2 441 441, eventfd 284 -, eventfd2 290 19, fsync 74 82, fdatasync 75 83, sendfile 40 71,
    copy_file_range 326 285, splice 275 76, tee 276 77, fadvise64 221 223, readahead 187 213
    """
)
SOCKETS = _table(
    """
    shutdown 48 210, getsockname 51 204, getpeername 52 205
    """
)
LOOKING_AT_FILES = _table(
    """
    stat 4 -, fstat 5 80, lstat 6 -, newfstatat 262 79, statx 332 291, access 21 -, faccessat 269 48,
    faccessat2 439 439, readlink 89 -, readlinkat 267 78, getdents 78 -, getdents64 217 61, getcwd 79 17,
    chdir 80 49, fchdir 81 50, statfs 137 43, fstatfs 138 44
    """
)
# For programs that have a scratch folder; never names, owners, modes or times of files: Landlock does not cover those.
CHANGING_FILES = _table(
    """
    creat 85 -, ftruncate 77 46, fallocate 285 47, mkdir 83 -, mkdirat 258 34, rename 82 -, renameat 264 38,
    renameat2 316 276, unlink 87 -, unlinkat 263 35, rmdir 84 -
    """
)
# Allowed for some arguments only: see codea1.sandbox.isolation.seccomp.
WITH_CONDITIONS = _table(
    """
    clock_gettime 228 113, clock_getres 229 114, open 2 -, openat 257 56, openat2 437 437, socket 41 198,
    socketpair 53 199, sendto 44 206, recvfrom 45 207, getsockopt 55 209, close_range 436 436, ioctl 16 29,
    fcntl 72 25, prlimit64 302 261, prctl 157 167, clone 56 220, clone3 435 435, exit 60 93
    """
)
# What a zygote still does after it is confined, and its children may not.
OF_THE_ZYGOTE = _table(
    """
    fork 57 -, vfork 58 -, kill 62 129, tgkill 234 131, setns 308 268, unshare 272 97, capset 126 91,
    seccomp 317 277, sendmsg 46 211, recvmsg 47 212, landlock_restrict_self 446 446
    """
)

NEWEST = 463  # numbers beyond are of calls younger than these tables
