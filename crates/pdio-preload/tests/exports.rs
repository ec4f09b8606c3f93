// SPDX-License-Identifier: MIT OR Apache-2.0
//! The library defines functions of the C library, of which each exists there or in one of the
//! libraries for asynchronous I/O, and nothing else.

mod common;

use object::{Object, ObjectSymbol};

/// What a program may call that leads to a file, and has to be seen.
const NEEDED: &str = "\
    read write pread pread64 pwrite pwrite64 readv writev preadv preadv64 pwritev pwritev64 preadv2 \
    preadv64v2 pwritev2 pwritev64v2 __read_chk __pread_chk __pread64_chk lseek lseek64 open open64 \
    openat openat64 openat2 __open_2 __open64_2 __openat_2 __openat64_2 creat creat64 mkstemp mkostemp fopen \
    fopen64 freopen fdopen fclose close close_range closefrom dup dup2 dup3 fcntl fcntl64 ioctl fsync \
    fdatasync sync syncfs sync_file_range ftruncate ftruncate64 truncate truncate64 fallocate \
    fallocate64 posix_fallocate posix_fallocate64 posix_fadvise posix_fadvise64 readahead lockf \
    lockf64 flock fstat fstat64 stat stat64 lstat lstat64 fstatat fstatat64 statx __fxstat __xstat \
    __lxstat __fxstatat futimens utimensat fchmod lchmod rename renameat renameat2 link linkat sendfile \
    sendfile64 splice copy_file_range mmap mmap64 sendmsg sendmmsg io_submit aio_read aio_write \
    lio_listio io_uring_queue_init io_uring_queue_init_params syscall vfork _Fork clone posix_spawn \
    open_by_handle_at fdopendir socket socketpair accept accept4 pipe pipe2 eventfd epoll_create1 \
    signalfd timerfd_create inotify_init1 memfd_create opendir munmap mprotect mremap madvise unshare \
    setns chroot posix_spawnp system popen execve execv execvp execvpe execl execle execlp fexecve execveat daemon _exit \
    _Exit abort pthread_create thrd_create raise kill dprintf vdprintf sigaction signal setrlimit prlimit ulimit prctl \
    pidfd_spawn pidfd_spawnp bind listen send sendto recv recvfrom recvmsg recvmmsg connect accept accept4 shutdown poll ppoll select pselect \
    epoll_wait epoll_pwait wait waitpid waitid wait3 wait4 sleep usleep nanosleep clock_nanosleep pause \
    sigsuspend sigwait sigwaitinfo sigtimedwait killpg sigqueue tgkill eventfd_write tee vmsplice msgsnd \
    msgrcv semop semget semctl msgget msgctl shmget shmctl mq_send mq_receive mkdir mkdirat rmdir symlink symlinkat mknod mkfifo unlink unlinkat \
    __xmknod __xmknodat lremovexattr __mq_open_2 aio_suspend remove shmat sem_open printf fprintf vfprintf __printf_chk __fprintf_chk puts fputs fputc putc \
    putchar fwrite fflush fclose perror __overflow __underflow __uflow fgets fgetc getc getchar getline \
    getdelim fread scanf fscanf fseek fseeko fseeko64 ftell ftello ftello64 rewind fgetpos fsetpos \
    setvbuf setbuf ungetc wprintf fwprintf __wprintf_chk fputwc fputws __woverflow _flushlbf getwc \
    getwchar fgetwc fgetws wscanf __isoc99_wscanf __isoc23_scanf __wuflow getmntent endmntent putpwent pidfd_getfd __read __write __pread64 \
    __pwrite64 __lseek __open __open64 __close __dup2 __fcntl __sigaction __vfork __clone __send __connect \
    __gets_chk herror getopt_long move_mount gai_suspend pivot_root __poll __select __nanosleep __wait __waitpid __sigsuspend __pipe \
    ftw nftw fts_read wordexp dlopen ptrace mount umount umount2 swapon swapoff tcsetpgrp tcsetattr setsockopt \
    getaddrinfo getnameinfo gethostbyname pututxline updwtmp lckpwdf closedir thrd_sleep access readlink readdir \
    timer_create mq_notify scandir scandir64 glob glob64 readdir_r getdents64 listxattr statfs fstatfs64 statvfs \
    getsockopt aio_error aio_error64 aio_return aio_return64 aio_suspend64 mq_getattr sigpending realpath __realpath_chk \
    __readlink_chk \
    backtrace_symbols_fd signal sigset sysv_signal siginterrupt sigaltstack gsignal login_tty mq_open \
    pidfd_open pthread_key_create tss_create setuid seteuid setreuid setresuid setgid setegid setregid setresgid \
    setgroups initgroups setfsuid setfsgid capset dlsym dlvsym";

#[test]
fn exports_what_is_needed_and_nothing_of_its_own() {
    let bytes = std::fs::read(common::library()).expect("library");
    let file = object::File::parse(&*bytes).expect("ELF");
    let names: Vec<_> = file
        .dynamic_symbols()
        .filter(|symbol| symbol.is_definition())
        .map(|symbol| symbol.name().expect("name").to_owned())
        .collect();
    for needed in NEEDED.split_whitespace() {
        assert!(
            names.iter().any(|name| name == needed),
            "{needed} is not exported"
        );
    }
    // Those of libraries and of later versions, that may not be here, and those that only old programs find.
    let elsewhere = ["io_", "llseek", "__send", "__isoc23_", "pidfd_", "openat2"];
    for name in &names {
        let symbol = std::ffi::CString::new(name.as_str()).expect("a name");
        // SAFETY: a terminated string.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, symbol.as_ptr()) };
        let known = !found.is_null() || elsewhere.iter().any(|part| name.starts_with(part));
        assert!(known, "{name} is no function of the C library");
    }
}
