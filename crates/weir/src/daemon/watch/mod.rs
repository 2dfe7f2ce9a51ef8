//! What looks on and speaks up: ports, copies of the machine, leaks, forgeries, denials.

pub mod access_log;
pub(super) mod alarm;
pub mod forgeries;
pub mod leak;
pub(super) mod port_watch;
pub mod rollout;
pub(super) mod vm_watch;
