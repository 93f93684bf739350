//! The system calls that rustix leaves out, each behind a safe function: fork, posix_spawn, signals, the environment.
//!
//! Called by the keeper and its start only. Everything here that touches process-wide state (environment, signal
//! dispositions) is meant for a process with one thread; the functions say so and the callers are the keeper, which
//! checks it, and a worker before any user code.

use rustix::process::Pid;
use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

/// Which side of a fork this is.
pub(super) enum Forked {
    /// The keeper, with the new process.
    Parent(Pid),
    /// The new process.
    Child,
}

/// Forks. The caller has made sure that this process has one thread: the child of a threaded process may only make
/// async-signal-safe calls, and ours goes on to run user code.
pub(super) fn fork() -> io::Result<Forked> {
    // SAFETY: with a single thread no lock is held by a thread that the child lacks.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Forked::Child),
        pid => Ok(Forked::Parent(Pid::from_raw(pid).expect("fork returned a positive number"))),
    }
}

/// Has `child` called in the child of every later fork of this process, on its only thread, before anything else of it.
pub(crate) fn on_fork(child: extern "C" fn()) -> io::Result<()> {
    // SAFETY: the function lives as long as the program; what it may do in a fork is its own affair.
    check(unsafe { libc::pthread_atfork(None, None, Some(child)) })
}

/// Ends this process at once, without running anything of the user's.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: `_exit` has no preconditions.
    unsafe { libc::_exit(code) }
}

/// How to start this executable again.
pub(super) struct Exec<'a> {
    /// What is started; this executable when there is none.
    pub(super) path: Option<CString>,
    /// What the process sees as its arguments, its own name first.
    pub(super) arguments: Vec<CString>,
    /// The whole environment, as `KEY=value`.
    pub(super) environment: Vec<CString>,
    /// Descriptors that stay open, at the same numbers.
    pub(super) inherit: Vec<BorrowedFd<'a>>,
    /// Standard output, when it is not the caller's.
    pub(super) stdout: Option<BorrowedFd<'a>>,
    /// Standard error, when it is not the caller's.
    pub(super) stderr: Option<BorrowedFd<'a>>,
    /// A session of its own, so that a terminal's signals do not reach it; else a process group of its own.
    pub(super) new_session: bool,
}

/// Starts this executable again with an empty signal mask, default signal dispositions and no standard input.
///
/// posix_spawn and not fork: a driver with gigabytes of memory pays nothing for it, and descriptors become
/// inheritable in the child alone, so no other thread can leak them.
pub(super) fn exec_self(exec: &Exec<'_>) -> io::Result<Pid> {
    let mut arguments: Vec<*mut libc::c_char> =
        exec.arguments.iter().map(|argument| argument.as_ptr().cast_mut()).collect();
    arguments.push(ptr::null_mut());
    let path = exec.path.as_deref().unwrap_or(c"/proc/self/exe");
    let mut environment: Vec<*mut libc::c_char> =
        exec.environment.iter().map(|entry| entry.as_ptr().cast_mut()).collect();
    environment.push(ptr::null_mut());
    let actions = Actions::new(exec)?;
    let attributes = Attributes::new(exec.new_session)?;
    let mut pid = 0;
    // SAFETY: both tables are initialised; the two arrays end in null and their strings outlive the call.
    check(unsafe {
        libc::posix_spawn(&mut pid, path.as_ptr(), &actions.0, &attributes.0, arguments.as_ptr(), environment.as_ptr())
    })?;
    Ok(Pid::from_raw(pid).expect("posix_spawn succeeded, so the process id is positive"))
}

/// Whether a child has this descriptor: it is open here and does not close on exec.
fn is_inherited(number: RawFd) -> bool {
    // SAFETY: reading the flags of a number that is not open fails and does nothing.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    flags >= 0 && flags & libc::FD_CLOEXEC == 0
}

/// Opens `/dev/null` on each standard descriptor that is closed, so that nothing which is opened later gets its number: text
/// that a program prints would be written there, and workers have their own output under these numbers.
pub(crate) fn open_standard_descriptors() -> io::Result<()> {
    for number in 0..=2 {
        // SAFETY: reading the flags of a number that is not open fails and does nothing.
        if unsafe { libc::fcntl(number, libc::F_GETFD) } >= 0 {
            continue;
        }
        // SAFETY: the path ends in NUL. Without close-on-exec, as standard descriptors are.
        let opened = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) };
        if opened < 0 {
            return Err(io::Error::last_os_error());
        }
        if opened != number {
            // Another thread was first and has the number.
            // SAFETY: opened just above and known to nobody else.
            drop(unsafe { OwnedFd::from_raw_fd(opened) });
        }
    }
    Ok(())
}

struct Actions(libc::posix_spawn_file_actions_t);

impl Actions {
    fn new(exec: &Exec<'_>) -> io::Result<Actions> {
        let mut raw = MaybeUninit::uninit();
        // SAFETY: the call initialises the table that it is given.
        check(unsafe { libc::posix_spawn_file_actions_init(raw.as_mut_ptr()) })?;
        // SAFETY: initialised just above.
        let mut actions = Actions(unsafe { raw.assume_init() });
        let table = &mut actions.0;
        // SAFETY: the table is initialised and the path ends in NUL.
        check(unsafe { libc::posix_spawn_file_actions_addopen(table, 0, c"/dev/null".as_ptr(), libc::O_RDONLY, 0) })?;
        for (fd, number) in [(exec.stdout, 1), (exec.stderr, 2)] {
            match fd {
                // SAFETY: the table is initialised.
                Some(fd) => check(unsafe { libc::posix_spawn_file_actions_adddup2(table, fd.as_raw_fd(), number) })?,
                None if is_inherited(number) => {}
                // SAFETY: the table is initialised and the path ends in NUL.
                None => check(unsafe {
                    libc::posix_spawn_file_actions_addopen(table, number, c"/dev/null".as_ptr(), libc::O_WRONLY, 0)
                })?,
            }
        }
        for fd in &exec.inherit {
            let fd = fd.as_raw_fd();
            // SAFETY: the table is initialised. Source equal to target means "clear close-on-exec in the child".
            check(unsafe { libc::posix_spawn_file_actions_adddup2(table, fd, fd) })?;
        }
        Ok(actions)
    }
}

impl Drop for Actions {
    fn drop(&mut self) {
        // SAFETY: initialised by `new`, destroyed once.
        unsafe { libc::posix_spawn_file_actions_destroy(&mut self.0) };
    }
}

struct Attributes(libc::posix_spawnattr_t);

impl Attributes {
    fn new(new_session: bool) -> io::Result<Attributes> {
        let mut raw = MaybeUninit::uninit();
        // SAFETY: the call initialises the attributes that it is given.
        check(unsafe { libc::posix_spawnattr_init(raw.as_mut_ptr()) })?;
        // SAFETY: initialised just above.
        let mut attributes = Attributes(unsafe { raw.assume_init() });
        let place = if new_session { libc::POSIX_SPAWN_SETSID as i32 } else { libc::POSIX_SPAWN_SETPGROUP };
        let flags = libc::POSIX_SPAWN_SETSIGDEF | libc::POSIX_SPAWN_SETSIGMASK | place;
        // SAFETY: attributes and sets are initialised; group 0 means the process's own.
        unsafe {
            check(libc::posix_spawnattr_setsigdefault(&mut attributes.0, &signal_set(true)))?;
            check(libc::posix_spawnattr_setsigmask(&mut attributes.0, &signal_set(false)))?;
            check(libc::posix_spawnattr_setpgroup(&mut attributes.0, 0))?;
            check(libc::posix_spawnattr_setflags(&mut attributes.0, flags as libc::c_short))?;
        }
        Ok(attributes)
    }
}

impl Drop for Attributes {
    fn drop(&mut self) {
        // SAFETY: initialised by `new`, destroyed once.
        unsafe { libc::posix_spawnattr_destroy(&mut self.0) };
    }
}

/// Turns an error number that is returned, not left in `errno`, into a result.
fn check(code: libc::c_int) -> io::Result<()> {
    match code {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

fn signal_set(full: bool) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: either call initialises the whole set.
    unsafe {
        match full {
            true => libc::sigfillset(set.as_mut_ptr()),
            false => libc::sigemptyset(set.as_mut_ptr()),
        };
        set.assume_init()
    }
}

/// Blocks these signals and returns a non-blocking descriptor that reads them instead.
pub(super) fn watch_signals(signals: &[i32]) -> io::Result<OwnedFd> {
    let mut set = signal_set(false);
    for signal in signals {
        // SAFETY: the set is initialised; a bad number is refused by the call.
        unsafe { libc::sigaddset(&mut set, *signal) };
    }
    // SAFETY: the set is initialised; the old mask is not asked for.
    if unsafe { libc::sigprocmask(libc::SIG_BLOCK, &set, ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: -1 asks for a new descriptor.
    let fd = unsafe { libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Unblocks every signal.
pub(super) fn unblock_signals() {
    // SAFETY: the set is initialised; the call cannot fail with a valid `how`.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, &signal_set(false), ptr::null_mut()) };
}

/// Runs `body` with every signal blocked in this thread, so that threads which it starts never run the user's handlers.
pub(crate) fn with_signals_blocked<R>(body: impl FnOnce() -> R) -> R {
    with_signals(true, body)
}

/// The opposite, for threads that run the user's code: whoever starts them, they can be signalled.
pub(crate) fn with_signals_unblocked<R>(body: impl FnOnce() -> R) -> R {
    with_signals(false, body)
}

fn with_signals<R>(blocked: bool, body: impl FnOnce() -> R) -> R {
    /// Restores the mask, also when `body` panics.
    struct Restore(libc::sigset_t);
    impl Drop for Restore {
        fn drop(&mut self) {
            // SAFETY: the set was filled in by the call below; the old mask is not asked for.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, ptr::null_mut()) };
        }
    }
    let mut old = signal_set(false);
    // SAFETY: both sets are initialised; the call cannot fail with a valid `how`.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &signal_set(blocked), &mut old) };
    let _restore = Restore(old);
    body()
}

/// How a child ended.
pub(super) struct Ending {
    /// The status as the kernel gives it.
    pub(super) status: i32,
    /// The most memory that it had at one time.
    pub(super) memory_peak_bytes: u64,
}

/// Takes the status of a child that has ended; none when it has not.
pub(super) fn reap(child: Pid) -> Option<Ending> {
    let (mut status, mut usage) = (0, MaybeUninit::<libc::rusage>::zeroed());
    // SAFETY: both places are valid for the call to fill.
    let reaped = unsafe { libc::wait4(child.as_raw_pid(), &mut status, libc::WNOHANG, usage.as_mut_ptr()) };
    // SAFETY: all zero is a valid value, and the call fills the rest in.
    let usage = unsafe { usage.assume_init() };
    let memory_peak_bytes = u64::try_from(usage.ru_maxrss).unwrap_or(0) << 10;
    (reaped == child.as_raw_pid()).then_some(Ending { status, memory_peak_bytes })
}

/// A broken pipe is an error value and no signal, as in every Rust program (its start-up code does not run here).
pub(super) fn ignore_broken_pipes() {
    // SAFETY: ignoring installs no handler.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}

/// The next child that has ended and was not reaped yet; it stays a zombie, so its number and group stay reserved.
pub(super) fn next_dead_child() -> Option<Pid> {
    let mut status = MaybeUninit::<libc::siginfo_t>::zeroed();
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: zeroed is a valid siginfo, and stays so when no child has ended.
    unsafe {
        match libc::waitid(libc::P_ALL, 0, status.as_mut_ptr(), options) {
            0 => Pid::from_raw(status.assume_init().si_pid()),
            _ => None,
        }
    }
}

/// Takes over an inherited descriptor by number and makes it close on exec again. `None` when it is not open.
pub(super) fn adopt_fd(raw: RawFd) -> Option<OwnedFd> {
    // SAFETY: F_SETFD on a number that is not open fails and does nothing.
    if raw < 0 || unsafe { libc::fcntl(raw, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return None;
    }
    // SAFETY: open, and handed over by the process that started this one for nobody else.
    Some(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// Makes `fd` standard output.
pub(super) fn replace_stdout(fd: BorrowedFd<'_>) {
    // SAFETY: both numbers are open or the call fails; standard output is owned by nobody.
    unsafe { libc::dup2(fd.as_raw_fd(), 1) };
}

/// Makes `fd` standard error.
pub(super) fn replace_stderr(fd: BorrowedFd<'_>) {
    // SAFETY: both numbers are open or the call fails; standard error is owned by nobody.
    unsafe { libc::dup2(fd.as_raw_fd(), 2) };
}

/// Reads a variable as the C library has it; nothing of Rust's is needed, so it is cheap in a constructor.
pub(crate) fn environment_has(key: &CStr) -> bool {
    // SAFETY: the key ends in NUL. Called before `main`, or for a variable that nobody changes.
    !unsafe { libc::getenv(key.as_ptr()) }.is_null()
}

/// Sets or removes a variable. For a process with one thread: the keeper, or a worker before user code.
pub(super) fn set_environment(key: &str, value: Option<&str>) {
    // SAFETY: no other thread reads the environment, since there is none.
    unsafe {
        match value {
            Some(value) => std::env::set_var(key, value),
            None => std::env::remove_var(key),
        }
    }
}

/// Standard error by its number: never closed by the keeper or a worker.
pub(super) fn stderr() -> BorrowedFd<'static> {
    // SAFETY: descriptor 2 stays open for the life of the process; if it was closed at the start, calls on it fail.
    unsafe { BorrowedFd::borrow_raw(2) }
}
