//! What a process that runs functions gives up before it reads any.
//!
//! Afterwards it can use memory and the descriptors that it has. It opens no files and no connections, and starts nothing. Landlock and
//! seccomp depend on the kernel; what was not to be had is told.
//!
//! It ends soon after its parent: its input ends, and where a function runs then, a timer looks for the parent each second. Some functions
//! of the engine end only with their process. (The kernel's signal at a parent's death would come when the thread ends that started the
//! process, and threads that may block come and go.)

use std::{
    io, ptr,
    sync::atomic::{AtomicI32, Ordering},
};

use landlock::{ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, RulesetStatus};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

/// The kernel's interface that rights are named after; older kernels deny what they know of it.
const LANDLOCK: ABI = ABI::V5;

/// What a process gave up beside what every kernel takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confinement {
    /// Files, as far as this kernel's Landlock knows them.
    pub files: bool,
    /// All system calls but a few.
    pub system_calls: bool,
}

/// Gives up everything that running functions does not need. `address_space` bounds what the process may map, in bytes.
///
/// # Errors
/// A limit that every kernel has was refused.
pub fn confine(address_space: u64) -> io::Result<Confinement> {
    limit(libc::RLIMIT_AS, address_space)?;
    limit(libc::RLIMIT_CORE, 0)?;
    limit(libc::RLIMIT_FSIZE, 0)?;
    // SAFETY: both calls take numbers only, and change this process alone.
    unsafe {
        // Not `nice`: the thread that started this process may be as low already, and two steps would starve functions.
        let now = libc::getpriority(libc::PRIO_PROCESS, 0);
        libc::setpriority(libc::PRIO_PROCESS, 0, now.max(NICENESS));
    }
    end_after_parent()?;
    let files = restrict_files();
    let system_calls = restrict_system_calls();
    Ok(Confinement { files, system_calls })
}

fn limit(resource: libc::__rlimit_resource_t, value: u64) -> io::Result<()> {
    let limit = libc::rlimit { rlim_cur: value, rlim_max: value };
    // SAFETY: the structure lives through the call, which only reads it.
    if unsafe { libc::setrlimit(resource, &raw const limit) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The process that started this one.
static PARENT: AtomicI32 = AtomicI32::new(0);

/// Has this process end within a second of its parent, whatever it does then.
fn end_after_parent() -> io::Result<()> {
    let second = libc::timeval { tv_sec: 1, tv_usec: 0 };
    let every = libc::itimerval { it_interval: second, it_value: second };
    // SAFETY: all zeroes are a valid `sigaction`; the structures live through the calls. The handler does nothing but system calls.
    let done = unsafe {
        PARENT.store(libc::getppid(), Ordering::Relaxed);
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = look_for_parent as *const () as libc::sighandler_t;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGALRM, &raw const action, ptr::null_mut()) == 0
            && libc::setitimer(libc::ITIMER_REAL, &raw const every, ptr::null_mut()) == 0
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}

extern "C" fn look_for_parent(_: libc::c_int) {
    // SAFETY: both calls take numbers only, and may be made in a handler.
    unsafe {
        if libc::getppid() != PARENT.load(Ordering::Relaxed) {
            libc::_exit(1);
        }
    }
}

/// No rule allows anything, so all that the kernel knows is denied.
fn restrict_files() -> bool {
    let restricted = Ruleset::default()
        .handle_access(AccessFs::from_all(LANDLOCK))
        .and_then(|rules| rules.handle_access(AccessNet::from_all(LANDLOCK)))
        .and_then(Ruleset::create)
        .and_then(landlock::RulesetCreated::restrict_self);
    restricted.is_ok_and(|status| status.ruleset != RulesetStatus::NotEnforced)
}

/// Lower than what answers clients.
const NICENESS: libc::c_int = 10;

/// Calls that memory, time, reading, writing and ending take.
const CALLS: &[libc::c_long] = &[
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_close,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_futex,
    libc::SYS_clock_gettime,
    libc::SYS_gettimeofday,
    libc::SYS_getrandom,
    libc::SYS_sched_yield,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_restart_syscall,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_gettid,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

fn restrict_system_calls() -> bool {
    let Ok(architecture) = std::env::consts::ARCH.try_into() else { return false };
    // SAFETY: takes nothing and cannot fail.
    let this = u64::from(unsafe { libc::getpid() }.unsigned_abs());
    // A panic ends the process by a signal; to no other process one may go.
    let to_itself = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, this);
    let Ok(to_itself) = to_itself.and_then(|condition| SeccompRule::new(vec![condition])) else {
        return false;
    };
    let allowed = CALLS.iter().map(|call| (*call, Vec::new()));
    let allowed = allowed.chain([(libc::SYS_tgkill, vec![to_itself])]).collect();
    let refused = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let program = SeccompFilter::new(allowed, refused, SeccompAction::Allow, architecture)
        .and_then(BpfProgram::try_from);
    program.is_ok_and(|program| seccompiler::apply_filter(&program).is_ok())
}
