//! Outer headers around copies, at tc egress of the analyser's port (bpf/mirror.bpf.c).

use aya::EbpfLoader;
use aya::maps::{MapData, MapError, PerCpuArray};
use aya::programs::TcAttachType;
use aya::programs::tc::TcHandle;

use crate::guard::{GuardError, attach, attach_error, classifier, detach, take_map};

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/mirror.bpf.o"));

/// Bytes of VXLAN's outer headers: Ethernet, IPv4, UDP, VXLAN.
pub const VXLAN_LEN: usize = 14 + 20 + 8 + 8;
/// Bytes of GRE's: Ethernet, IPv4, GRE.
pub const GRE_LEN: usize = 14 + 20 + 4;

/// Tells the filters of mirrors from others'.
const HANDLE_MAJOR: u16 = 0x4d49;

/// What is put around copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outer {
    /// The outer headers; lengths and IPv4's checksum left 0.
    pub headers: OuterHeaders,
    /// Bytes of an outer frame, at most: one that would be longer is cut short. Super-packets get
    /// shorter segments.
    pub len_max: u32,
}

/// By which outer headers: such as devices and the kernel cut super-packets behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OuterHeaders {
    /// RFC 7348.
    Vxlan([u8; VXLAN_LEN]),
    /// RFC 2784, of which ERSPAN type I is made.
    Gre([u8; GRE_LEN]),
}

/// The program at work.
pub(super) struct Around {
    port: String,
    handle: TcHandle,
    counters: PerCpuArray<MapData, u64>,
}

impl std::fmt::Debug for Around {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Around").field("port", &self.port).finish_non_exhaustive()
    }
}

impl Around {
    /// Has frames with `mark` get `outer` on their way out of `port`. `low` tells the mirror from
    /// others.
    pub(super) fn attach(
        port: &str,
        mark: u32,
        low: u16,
        outer: &Outer,
    ) -> Result<Self, GuardError> {
        let (headers, gre) = match outer.headers {
            OuterHeaders::Vxlan(headers) => (headers, 0u32),
            OuterHeaders::Gre(gre) => {
                let mut headers = [0; VXLAN_LEN];
                headers[..GRE_LEN].copy_from_slice(&gre);
                (headers, 1)
            }
        };
        let mut object = EbpfLoader::new()
            .override_global("mirror_mark", &mark, true)
            .override_global("outer", &headers[..], true)
            .override_global("gre", &gre, true)
            .override_global("len_max", &outer.len_max, true)
            .load(OBJECT)?;
        let counters = PerCpuArray::try_from(take_map(&mut object, "counters")?)?;
        let program =
            classifier(&mut object, "weir_mirror_out").map_err(|e| attach_error(port, e))?;
        program.load().map_err(|e| attach_error(port, e))?;
        let handle = TcHandle::new(HANDLE_MAJOR, low);
        attach(program, port, TcAttachType::Egress, handle).map_err(|e| attach_error(port, e))?;
        Ok(Self { port: port.to_owned(), handle, counters })
    }

    /// Truncated and refused.
    pub(super) fn counters(&self) -> Result<[u64; 2], MapError> {
        let total =
            |kind: u32| -> Result<u64, MapError> { Ok(self.counters.get(&kind, 0)?.iter().sum()) };
        Ok([total(0)?, total(1)?])
    }
}

impl Drop for Around {
    fn drop(&mut self) {
        // A port that is gone took its filters along.
        let _: std::io::Result<()> = detach(&self.port, TcAttachType::Egress, self.handle);
    }
}
