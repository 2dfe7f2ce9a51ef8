//! What the hosts send each other: ordinary traffic by ordinary tools, and kernel-bypass traffic.

use anyhow::{Result, bail};

pub mod attack;
pub mod bypass;
pub mod frames;
pub mod hostile;
pub mod iperf;
mod memory;
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
    /// RDMA READs of host A's memory by host B, past the kernel.
    RdmaRead,
    /// RDMA WRITEs to host A's memory by host B, past the kernel, that nobody acknowledges.
    RdmaWrite,
    /// TCP segments of host B that ask host A for what a rule forbids, past the kernel.
    AttackTcp,
    /// The same for what it does not.
    BenignTcp,
    /// Atomics on host A's memory by host B, past the kernel, that nobody answers.
    AttackRdma,
}

impl Kind {
    /// Those that must arrive whatever the gateways do, ordinary ones first.
    pub const ALL: [Kind; 5] =
        [Kind::Ping, Kind::Tcp, Kind::RoceV2, Kind::RoceV1, Kind::TcpPrebuilt];

    /// Those that lines of access and rules tell apart.
    pub const JUDGED: [Kind; 5] =
        [Kind::RdmaRead, Kind::RdmaWrite, Kind::AttackTcp, Kind::BenignTcp, Kind::AttackRdma];

    /// Its name on the command line and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Ping => "ping",
            Kind::Tcp => "tcp",
            Kind::RoceV2 => "roce-v2",
            Kind::RoceV1 => "roce-v1",
            Kind::TcpPrebuilt => "tcp-prebuilt",
            Kind::RdmaRead => "rdma-read",
            Kind::RdmaWrite => "rdma-write",
            Kind::AttackTcp => "attack-tcp",
            Kind::BenignTcp => "benign-tcp",
            Kind::AttackRdma => "attack-rdma",
        }
    }

    /// The kind of that name.
    ///
    /// # Errors
    /// There is none; says which there are.
    pub fn from_name(name: &str) -> Result<Self> {
        let mut kinds = Self::ALL.into_iter().chain(Self::JUDGED);
        let Some(kind) = kinds.find(|kind| kind.name() == name) else {
            let names: Vec<_> = Self::ALL.into_iter().chain(Self::JUDGED).map(Kind::name).collect();
            bail!("no traffic is called {name}; there are {}", names.join(", "));
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
            Kind::RoceV2 | Kind::RdmaRead | Kind::RdmaWrite | Kind::AttackRdma => {
                "udp dst port 4791"
            }
            Kind::RoceV1 => "ether proto 0x8915",
            Kind::TcpPrebuilt | Kind::AttackTcp | Kind::BenignTcp => "tcp dst port 22992",
        }
    }

    /// An nftables test for it.
    pub(crate) fn firewall_test(self) -> &'static str {
        match self {
            Kind::Ping => "ip protocol icmp",
            Kind::Tcp => "tcp dport 5201",
            Kind::RoceV2 | Kind::RdmaRead | Kind::RdmaWrite | Kind::AttackRdma => "udp dport 4791",
            Kind::RoceV1 => "ether type 0x8915",
            Kind::TcpPrebuilt | Kind::AttackTcp | Kind::BenignTcp => "tcp dport 22992",
        }
    }
}
