//! The switch by which some NICs (mlx5 with NVIDIA's driver: private flag `sniffer`) show taps the
//! RDMA traffic that their hardware carries past the kernel.

use weir_port::Interface;

const FLAG: &str = "sniffer";

/// Holds the flag set, where there is one; restores it when dropped.
#[derive(Debug)]
pub(super) struct Sniffer {
    /// The interface whose flag must be cleared again.
    restore: Option<Interface>,
}

impl Sniffer {
    /// Sets the flag of `interface`. An interface without such a flag, or a driver that refuses, is
    /// no error: the second gives the reason.
    pub(super) fn set(interface: &str) -> (Self, Option<String>) {
        let none = Self { restore: None };
        let Ok(device) = Interface::find(interface) else { return (none, None) };
        match device.private_flag(FLAG) {
            Ok(Some(false)) => match device.set_private_flag(FLAG, true) {
                Ok(()) => (Self { restore: Some(device) }, None),
                Err(error) => (none, Some(format!("{interface}: cannot set `{FLAG}`: {error}"))),
            },
            // Set by somebody else, or not there: not ours to clear.
            _ => (none, None),
        }
    }
}

impl Drop for Sniffer {
    fn drop(&mut self) {
        if let Some(device) = &self.restore
            && let Err(error) = device.set_private_flag(FLAG, false)
        {
            let name = device.name();
            eprintln!("weir: {name}: cannot clear the private flag `{FLAG}`: {error}");
        }
    }
}
