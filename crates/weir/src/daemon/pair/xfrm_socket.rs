//! Asks the kernel by NETLINK_XFRM and takes in its answers.

use std::io;
use std::os::fd::OwnedFd;

use anyhow::{Context, Result};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};
use weir_xfrm::netlink::messages;
use weir_xfrm::program::{self, Association, Installed};
use weir_xfrm::uapi::kind;
use zeroize::{Zeroize, Zeroizing};

/// The request number of associations of ours. "Weir" in ASCII.
pub(in crate::daemon) const REQUEST: u32 = 0x5765_6972;
/// `if_id` of associations that are of no xfrm interface.
pub(in crate::daemon) const NO_INTERFACE: u32 = 0;

/// The kernel answers in datagrams of at most 32 KiB.
const DATAGRAM_LEN_MAX: usize = 32 * 1024;
/// Datagrams of one answer; a dump that does not end here is given up.
const DATAGRAMS_MAX: usize = 4096;
const NO_SUCH_ASSOCIATION: i32 = 3;
const NO_SUCH_POLICY: i32 = 2;

/// A socket to the kernel's associations and policies.
pub(in crate::daemon) struct XfrmSocket {
    socket: OwnedFd,
    sequence: u32,
    /// What is received lies here and is wiped at once, as far as it goes: to wipe all of it costs
    /// more than the kernel's answer.
    space: Box<[u8]>,
}

impl XfrmSocket {
    /// Opens one in the calling thread's network namespace.
    ///
    /// # Errors
    /// The kernel has no IPsec (`CONFIG_XFRM_USER`).
    pub(in crate::daemon) fn open() -> Result<Self> {
        let kind = (SocketType::RAW, SocketFlags::CLOEXEC, Some(netlink::XFRM));
        let socket = rustix::net::socket_with(AddressFamily::NETLINK, kind.0, kind.1, kind.2)
            .context("this kernel has no IPsec")?;
        Ok(Self { socket, sequence: 0, space: vec![0; DATAGRAM_LEN_MAX].into() })
    }

    /// Has the kernel do what `write` writes, given the number of the request.
    ///
    /// # Errors
    /// The kernel's refusal, as an errno.
    pub(in crate::daemon) fn request(
        &mut self,
        write: impl FnOnce(u32) -> Vec<u8>,
    ) -> io::Result<()> {
        let request = Zeroizing::new(write(self.next()));
        self.exchange(&request, false).map(drop)
    }

    /// What the kernel says of this association.
    ///
    /// # Errors
    /// It has none such: `ESRCH`.
    pub(in crate::daemon) fn read_back(
        &mut self,
        association: &Association<'_>,
    ) -> io::Result<Zeroizing<Vec<u8>>> {
        let sequence = self.next();
        self.send(&association.query(sequence))?;
        let datagram = self.receive()?;
        let answer = messages(&datagram).next().map(|(header, body)| (header.kind, refused(body)));
        match answer {
            Some((kind::NEW_SA, _)) => Ok(datagram),
            Some((_, Some(error))) => Err(error),
            _ => Err(io::Error::other("no answer")),
        }
    }

    /// Removes the associations of ours that are of this xfrm interface; returns the messages that
    /// described them.
    ///
    /// # Errors
    /// The kernel does not list or remove them.
    pub(in crate::daemon) fn remove(&mut self, interface: u32) -> Result<Vec<Zeroizing<Vec<u8>>>> {
        let list = program::list(self.next());
        let mut bodies =
            self.exchange(&list, true).context("cannot list the kernel's associations")?;
        let is_ours = |body: &Zeroizing<Vec<u8>>| {
            Installed::read(body).is_some_and(|it| {
                // A NIC has them by the interface's number. Zero is anybody's.
                let by_nic = interface != NO_INTERFACE && it.request == interface;
                it.interface == interface && (it.request == REQUEST || by_nic)
            })
        };
        bodies.retain(is_ours);
        for body in &bodies {
            let sequence = self.next();
            let removal = program::remove_listed(body, sequence);
            match removal.map_or(Ok(Vec::new()), |it| self.exchange(&it, false)) {
                Err(error) if error.raw_os_error() != Some(NO_SUCH_ASSOCIATION) => {
                    return Err(error).context("cannot remove an association of ours");
                }
                _ => {}
            }
        }
        Ok(bodies)
    }

    /// Removes the policies of this xfrm interface.
    ///
    /// # Errors
    /// The kernel does not list or remove them.
    pub(in crate::daemon) fn remove_policies(&mut self, interface: u32) -> Result<()> {
        let list = program::list_policies(self.next());
        let listed = self.exchange(&list, true).context("cannot list the kernel's policies")?;
        for body in listed {
            let removal = program::remove_listed_policy(&body, interface, self.next());
            match removal.map_or(Ok(Vec::new()), |it| self.exchange(&it, false)) {
                Err(error) if error.raw_os_error() != Some(NO_SUCH_POLICY) => {
                    return Err(error).context("cannot remove a policy of ours");
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn next(&mut self) -> u32 {
        self.sequence += 1;
        self.sequence
    }

    fn send(&self, datagram: &[u8]) -> io::Result<()> {
        rustix::net::send(&self.socket, datagram, SendFlags::empty())?;
        Ok(())
    }

    fn receive(&mut self) -> io::Result<Zeroizing<Vec<u8>>> {
        let (len, _) = rustix::net::recv(&self.socket, &mut self.space[..], RecvFlags::empty())?;
        let datagram = Zeroizing::new(self.space[..len].to_vec());
        self.space[..len].zeroize();
        Ok(datagram)
    }

    /// Sends a request and collects the bodies of its answer, a dump's to its end, until the
    /// acknowledgement otherwise.
    fn exchange(&mut self, datagram: &[u8], is_dump: bool) -> io::Result<Vec<Zeroizing<Vec<u8>>>> {
        self.send(datagram)?;
        let mut bodies = Vec::new();
        for _ in 0..DATAGRAMS_MAX {
            for (header, body) in messages(&self.receive()?) {
                match header.kind {
                    kind::DONE => return Ok(bodies),
                    kind::ERROR => match refused(body) {
                        Some(error) => return Err(error),
                        None if is_dump => {}
                        None => return Ok(bodies),
                    },
                    _ => bodies.push(Zeroizing::new(body.to_vec())),
                }
            }
        }
        Err(io::Error::other("the kernel's netlink answer does not end"))
    }
}

/// The error of an acknowledgement; `None`: there is none.
fn refused(body: &[u8]) -> Option<io::Error> {
    let number = i32::from_ne_bytes(*body.first_chunk()?);
    (number != 0).then(|| io::Error::from_raw_os_error(-number))
}
