//! bpf(2), where the loader library has no call for it.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};

const BPF_PROG_TEST_RUN: libc::c_long = 10;

/// The test-run part of `union bpf_attr` (linux/bpf.h).
#[repr(C)]
#[derive(Default)]
struct TestRun {
    program: u32,
    result: u32,
    data_in_len: u32,
    data_out_len: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration_ns: u32,
    context_in_len: u32,
    context_out_len: u32,
    context_in: u64,
    context_out: u64,
    flags: u32,
    processor: u32,
    batch: u32,
    zero: u32,
}

/// Has the kernel run a program once on `bytes`; what it returned.
pub(crate) fn test_run(program: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<u32> {
    let mut request = TestRun {
        program: program.as_raw_fd() as u32,
        data_in_len: bytes.len() as u32,
        data_in: bytes.as_ptr() as u64,
        repeat: 1,
        ..TestRun::default()
    };
    // SAFETY: the request's addresses and lengths describe `bytes`, which the kernel only reads;
    // it writes into the request, which is ours.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_PROG_TEST_RUN,
            &raw mut request,
            size_of::<TestRun>() as libc::c_long,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(request.result) }
}
