//! What the hosts send each other: ordinary traffic by ordinary tools, and kernel-bypass traffic.

use anyhow::{Result, bail};

pub mod bypass;
pub mod frames;
pub mod iperf;
pub mod ping;
pub mod tcp;

/// A kind of traffic of the demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// ICMP echo by ping.
    Ping,
    /// TCP by iperf3.
    Tcp,
    /// RoCE v2 frames past the kernel.
    RoceV2,
    /// RoCE v1 frames past the kernel.
    RoceV1,
    /// Prebuilt TCP/IP frames past the kernel, as Mireles (2020, s3.1.3) sent them.
    TcpPrebuilt,
}

impl Kind {
    /// All, ordinary ones first.
    pub const ALL: [Kind; 5] =
        [Kind::Ping, Kind::Tcp, Kind::RoceV2, Kind::RoceV1, Kind::TcpPrebuilt];

    /// Its name on the command line and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Ping => "ping",
            Kind::Tcp => "tcp",
            Kind::RoceV2 => "roce-v2",
            Kind::RoceV1 => "roce-v1",
            Kind::TcpPrebuilt => "tcp-prebuilt",
        }
    }

    /// The kind of that name.
    ///
    /// # Errors
    /// There is none; says which there are.
    pub fn from_name(name: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == name);
        let Some(kind) = found else {
            bail!(
                "no traffic is called {name}; there are {}",
                Self::ALL.map(Kind::name).join(", ")
            );
        };
        Ok(kind)
    }

    /// Whether it goes past the hosts' kernels.
    pub fn bypasses_kernel(self) -> bool {
        !matches!(self, Kind::Ping | Kind::Tcp)
    }

    /// A pcap filter for it in clear.
    pub fn capture_filter(self) -> &'static str {
        match self {
            Kind::Ping => "icmp or (icmp6 and (ip6[40] = 128 or ip6[40] = 129))",
            Kind::Tcp => "tcp port 5201",
            Kind::RoceV2 => "udp dst port 4791",
            Kind::RoceV1 => "ether proto 0x8915",
            Kind::TcpPrebuilt => "tcp dst port 22992",
        }
    }

    /// An nftables test for it.
    pub(crate) fn firewall_test(self) -> &'static str {
        match self {
            Kind::Ping => "ip protocol icmp",
            Kind::Tcp => "tcp dport 5201",
            Kind::RoceV2 => "udp dport 4791",
            Kind::RoceV1 => "ether type 0x8915",
            Kind::TcpPrebuilt => "tcp dport 22992",
        }
    }
}
