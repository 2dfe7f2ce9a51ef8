//! Which of a port's tc rules there are, and whether the kernel or the device carries them out:
//! read by netlink from the filters themselves (linux/pkt_cls.h, linux/rtnetlink.h).

use std::io;

use crate::interface::Interface;
use crate::netlink::{FLAG_DUMP, Netlink, attribute, u32_at};

const RTM_GETTFILTER: u16 = 46;
/// `struct tcmsg`.
const HEADER_LEN: usize = 20;
const PARENTS: [(u32, &str); 2] = [(0xffff_fff2, "ingress"), (0xffff_fff3, "egress")];
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_BPF_NAME: u16 = 7;
const TCA_BPF_FLAGS_GEN: u16 = 9;
const IN_HW: u32 = 1 << 2;
const NOT_IN_HW: u32 = 1 << 3;

/// Where a rule is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// By the device, as the kernel says.
    InHardware,
    /// By the kernel.
    NotInHardware,
    /// The kernel does not say: by the kernel, then.
    Unstated,
}

impl Placement {
    /// As tc(8) prints it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::InHardware => "in_hw",
            Self::NotInHardware => "not_in_hw",
            Self::Unstated => "unstated",
        }
    }
}

/// One BPF rule at tc.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelRule {
    /// `ingress` or `egress`.
    pub direction: &'static str,
    /// The program's name, as its loader gave it.
    pub program: String,
    /// Who carries it out.
    pub placement: Placement,
}

impl KernelRule {
    /// The BPF rules of `interface`, in the calling thread's network namespace.
    ///
    /// # Errors
    /// The interface is gone, or the kernel does not answer.
    pub fn all(interface: &str) -> io::Result<Vec<Self>> {
        let index = Interface::find(interface)?.index()?;
        let mut netlink = Netlink::open()?;
        let mut rules = Vec::new();
        for (parent, direction) in PARENTS {
            let mut request = [0; HEADER_LEN];
            request[4..8].copy_from_slice(&index.to_ne_bytes());
            request[12..16].copy_from_slice(&parent.to_ne_bytes());
            let answer = netlink.request(RTM_GETTFILTER, FLAG_DUMP, &request)?;
            let bodies = answer.iter().filter_map(|message| message.body.get(HEADER_LEN..));
            rules.extend(bodies.filter_map(|attributes| rule(attributes, direction)));
        }
        Ok(rules)
    }
}

/// The rule that a message tells of; `None` for one that is no BPF program, and for the message
/// that only names the priority.
fn rule(attributes: &[u8], direction: &'static str) -> Option<KernelRule> {
    if attribute(attributes, TCA_KIND)? != b"bpf\0" {
        return None;
    }
    let options = attribute(attributes, TCA_OPTIONS)?;
    let name = attribute(options, TCA_BPF_NAME)?;
    let flags = attribute(options, TCA_BPF_FLAGS_GEN).and_then(|value| u32_at(value, 0));
    let placement = match flags {
        Some(flags) if flags & IN_HW != 0 => Placement::InHardware,
        Some(flags) if flags & NOT_IN_HW != 0 => Placement::NotInHardware,
        _ => Placement::Unstated,
    };
    let name = name.strip_suffix(&[0]).unwrap_or(name);
    Some(KernelRule { direction, program: String::from_utf8_lossy(name).into_owned(), placement })
}
