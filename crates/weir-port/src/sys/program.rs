//! bpf(2), where the loader library has no call for it.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

const BPF_MAP_UPDATE_ELEM: libc::c_long = 2;
const BPF_MAP_DELETE_ELEM: libc::c_long = 3;
const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_PROG_TEST_RUN: libc::c_long = 10;

const BPF_PROG_TYPE_SCHED_CLS: u32 = 3;

/// `struct bpf_insn` (linux/bpf.h).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instruction {
    operation: u8,
    /// Target and source.
    registers: u8,
    offset: i16,
    value: i32,
}

impl Instruction {
    pub(crate) fn new(operation: u8, target: u8, source: u8, offset: i16, value: i32) -> Self {
        let registers = if cfg!(target_endian = "little") {
            source << 4 | target
        } else {
            target << 4 | source
        };
        Self { operation, registers, offset, value }
    }

    pub(crate) fn set_offset(&mut self, offset: i16) {
        self.offset = offset;
    }
}

/// The load part of `union bpf_attr` (linux/bpf.h).
#[repr(C)]
#[derive(Default)]
struct Load {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_len: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
}

/// The part of `union bpf_attr` about a map's element (linux/bpf.h).
#[repr(C)]
#[derive(Default)]
struct Element {
    map: u32,
    zero: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// Loads a tc classifier that calls no helper reserved to the GPL.
pub(crate) fn load_classifier(code: &[Instruction]) -> io::Result<OwnedFd> {
    let mut name = [0; 16];
    name[..11].copy_from_slice(b"weir_filter");
    let mut request = Load {
        kind: BPF_PROG_TYPE_SCHED_CLS,
        count: code.len() as u32,
        instructions: code.as_ptr() as u64,
        license: c"Dual BSD/GPL".as_ptr() as u64,
        name,
        ..Load::default()
    };
    // SAFETY: the request's addresses and lengths describe `code` and a closed string, which the
    // kernel only reads.
    let fd = unsafe { bpf(BPF_PROG_LOAD, &mut request)? };
    // SAFETY: the kernel just gave this descriptor to us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Puts `program` into `programs`, a map of programs, in the place of what is there.
pub(crate) fn put_program(
    programs: BorrowedFd<'_>,
    index: u32,
    program: BorrowedFd<'_>,
) -> io::Result<()> {
    let value = program.as_raw_fd();
    let mut request = Element {
        map: programs.as_raw_fd() as u32,
        key: &raw const index as u64,
        value: &raw const value as u64,
        ..Element::default()
    };
    // SAFETY: key and value are numbers of the size that such a map has; the kernel reads them.
    unsafe { bpf(BPF_MAP_UPDATE_ELEM, &mut request) }.map(drop)
}

/// Takes the program at `index` out of `programs`.
pub(crate) fn take_program(programs: BorrowedFd<'_>, index: u32) -> io::Result<()> {
    let mut request = Element {
        map: programs.as_raw_fd() as u32,
        key: &raw const index as u64,
        ..Element::default()
    };
    // SAFETY: the key is a number of the size that such a map has; the kernel reads it.
    unsafe { bpf(BPF_MAP_DELETE_ELEM, &mut request) }.map(drop)
}

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
    unsafe { bpf(BPF_PROG_TEST_RUN, &mut request)? };
    Ok(request.result)
}

/// # Safety
/// `request` is the part of `union bpf_attr` that `command` reads, and its addresses are good.
unsafe fn bpf<T>(command: libc::c_long, request: &mut T) -> io::Result<i32> {
    let len = size_of::<T>() as libc::c_long;
    // SAFETY: as the caller promises.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, request as *mut T, len) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
}
