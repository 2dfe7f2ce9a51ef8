//! A thread that runs before all ordinary ones for a moment.

use std::mem::MaybeUninit;

/// The lowest real-time priority: before every ordinary thread, behind every other real-time one.
const PRIORITY: i32 = 1;

/// While this lives the calling thread is scheduled first in, first out; then as before.
pub(crate) struct Urgent {
    policy: i32,
    parameter: libc::sched_param,
}

impl Urgent {
    /// `None` when the kernel refuses (no CAP_SYS_NICE), or when the thread is real-time already.
    pub(crate) fn begin() -> Option<Self> {
        let mut parameter = MaybeUninit::<libc::sched_param>::zeroed();
        // SAFETY: sched_param is plain numbers, for which zero is a value; the kernel writes one.
        // Process 0 is the calling thread.
        let (policy, parameter) = unsafe {
            let policy = libc::sched_getscheduler(0);
            let result = libc::sched_getparam(0, parameter.as_mut_ptr());
            (if result < 0 { result } else { policy }, parameter.assume_init())
        };
        let is_ordinary = [libc::SCHED_OTHER, libc::SCHED_BATCH, libc::SCHED_IDLE];
        if !is_ordinary.contains(&policy) {
            return None;
        }
        let first = libc::sched_param { sched_priority: PRIORITY };
        set(libc::SCHED_FIFO, &first).then_some(Self { policy, parameter })
    }
}

impl Drop for Urgent {
    fn drop(&mut self) {
        set(self.policy, &self.parameter);
    }
}

fn set(policy: i32, parameter: &libc::sched_param) -> bool {
    // SAFETY: the kernel reads one sched_param, which `parameter` is.
    unsafe { libc::sched_setscheduler(0, policy, parameter) == 0 }
}
