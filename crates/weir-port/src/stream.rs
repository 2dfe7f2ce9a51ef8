//! A sender inside the kernel, for measurements: one RoCE frame again and again, faster than any
//! program could hand frames over.
//!
//! The kernel runs a program over frames of its own making (`BPF_F_TEST_XDP_LIVE_FRAMES`, Linux
//! 5.18) and sends them out of a device. The program advances the packet sequence number, makes
//! the ICRC fit, and keeps the rate by looking at the clock: the sender has a processor for itself
//! at any rate. A veth's peer must poll (`ethtool -K PEER gro on`), or the frames are dropped.

use std::io;
use std::time::Duration;

use aya::maps::Array;
use aya::programs::{ProgramError, TestRun, TestRunAttrs, TestRunOptions, Xdp};
use aya::{Ebpf, EbpfError, EbpfLoader};
use zerocopy::{Immutable, IntoBytes};

use crate::interface::Interface;
use crate::sys::clock;

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/stream.bpf.o"));

/// Frames made at once; a veth's queue holds 256.
const BATCH_FRAMES: u32 = 64;
/// The kernel makes frames in one page each, with headroom and its own data around them.
pub const FRAME_LEN_MAX: usize = 3500;

/// A frame to repeat, and what changes in it.
#[derive(Clone, Debug)]
pub struct StreamFrame {
    /// The frame with packet sequence number 0, as it is to be sent.
    pub bytes: Vec<u8>,
    /// Where its 3-byte number lies, below 256.
    pub psn_offset: usize,
    /// Where its 4-byte ICRC lies.
    pub icrc_offset: usize,
    /// What is xor-ed to the ICRC for each value of the number's first, second and third byte.
    pub icrc_changes: Box<[[u32; 256]; 3]>,
}

/// What a stream sent.
#[derive(Clone, Copy, Debug)]
pub struct Streamed {
    /// Frames sent: the device may have dropped some.
    pub sent: u64,
    /// How long it took.
    pub elapsed: Duration,
}

/// Why there is no stream.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// No such interface.
    #[error("{interface}: cannot find it: {source}")]
    Interface {
        /// As named by the caller.
        interface: String,
        /// The system's reason.
        source: io::Error,
    },
    /// The frame does not fit.
    #[error("a frame of {len} bytes cannot be streamed: at most {FRAME_LEN_MAX}")]
    Frame {
        /// Its length.
        len: usize,
    },
    /// The program cannot be loaded.
    #[error("cannot load the stream's program: {0}; it needs root and Linux 5.18 or later")]
    Load(#[from] EbpfError),
    /// The program cannot be run.
    #[error("cannot run the stream's program: {0}; it needs root and Linux 5.18 or later")]
    Run(#[from] ProgramError),
}

/// `struct xdp_md`, as the test facility wants it.
#[repr(C)]
#[derive(IntoBytes, Immutable)]
struct Context {
    data: u32,
    data_end: u32,
    data_meta: u32,
    ingress_interface_index: u32,
    receive_queue: u32,
    egress_interface_index: u32,
}

/// Sends `frame` `count` times out of `interface` (of the calling thread's network namespace),
/// `rate_per_second` times a second or as fast as it goes when that is 0. The sequence number
/// begins with `first_psn`.
///
/// # Errors
/// [`StreamError`].
pub fn stream(
    interface: &str,
    frame: &StreamFrame,
    first_psn: u32,
    count: u32,
    rate_per_second: u32,
) -> Result<Streamed, StreamError> {
    let found = Interface::find(interface).and_then(|it| it.index());
    let index = found
        .map_err(|source| StreamError::Interface { interface: interface.to_owned(), source })?;
    let len = frame.bytes.len();
    if len > FRAME_LEN_MAX || frame.icrc_offset + 4 > len {
        return Err(StreamError::Frame { len });
    }
    let mut kernel = load(frame, rate_per_second)?;
    // The first frame is due at once, and so are those until the rate's clock has caught up.
    let begun_ns = clock::monotonic_ns();
    if let Some(map) = kernel.map_mut("progress") {
        let mut progress = Array::<_, [u64; 2]>::try_from(map).map_err(EbpfError::MapError)?;
        progress.set(0, [begun_ns, first_psn.into()], 0).map_err(EbpfError::MapError)?;
    }
    let program: &mut Xdp = kernel
        .program_mut("stream")
        .ok_or_else(|| ProgramError::InvalidName { name: "stream".to_owned() })?
        .try_into()?;
    program.load()?;
    let context = Context {
        data: 0,
        data_end: len as u32,
        data_meta: 0,
        ingress_interface_index: index as u32,
        receive_queue: 0,
        egress_interface_index: 0,
    };
    let begin = clock::now();
    program.test_run(TestRunOptions {
        data_in: Some(&frame.bytes),
        ctx_in: Some(context.as_bytes()),
        repeat: count,
        attrs: TestRunAttrs::new().xdp_live_frames(BATCH_FRAMES),
        ..TestRunOptions::new()
    })?;
    Ok(Streamed { sent: count.into(), elapsed: begin.elapsed() })
}

fn load(frame: &StreamFrame, rate_per_second: u32) -> Result<Ebpf, EbpfError> {
    let gap_ns = 1_000_000_000u64.checked_div(rate_per_second.into()).unwrap_or(0);
    let (psn_offset, icrc_offset) = (frame.psn_offset as u32, frame.icrc_offset as u32);
    let mut icrc = [0; 4];
    icrc.copy_from_slice(&frame.bytes[frame.icrc_offset..frame.icrc_offset + 4]);
    let icrc = u32::from_ne_bytes(icrc);
    let changes: [u32; 768] = std::array::from_fn(|at| frame.icrc_changes[at / 256][at % 256]);
    EbpfLoader::new()
        .override_global("gap_ns", &gap_ns, true)
        .override_global("psn_offset", &psn_offset, true)
        .override_global("icrc_offset", &icrc_offset, true)
        .override_global("icrc_of_psn_0", &icrc, true)
        .override_global("icrc_changes", &changes, true)
        .load(OBJECT)
}
