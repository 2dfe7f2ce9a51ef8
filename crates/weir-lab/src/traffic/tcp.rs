//! One TCP connection by the hosts' own stacks whose bytes are compared on arrival.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::interrupt;
use crate::topology::{Lab, Side};
use crate::traffic::bypass::on_own_thread;

/// The port of ordinary TCP in the lab: iperf3's.
pub const PORT: u16 = 5201;
/// No read or write of a working lab takes longer.
const PATIENCE: Duration = Duration::from_secs(30);
const CHUNK: usize = 64 * 1024;

/// Sends `len` bytes, no two 64 KiB of which are alike, from host A to host B, and returns how many
/// arrived as sent before the first that did not.
///
/// # Errors
/// No connection, or it stalls.
pub fn transfer(lab: &Lab, len: usize) -> Result<u64> {
    let address = SocketAddr::from((lab.host_v4(Side::B), PORT));
    let listener = on_own_thread(|| {
        lab.host(Side::B).enter()?;
        listen(address)
    })?;
    let sender = on_own_thread(|| {
        lab.host(Side::A).enter()?;
        TcpStream::connect_timeout(&address, PATIENCE).context("no TCP connection to host B")
    })?;
    let (receiver, _) = listener.accept()?;
    for stream in [&sender, &receiver] {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
    }
    std::thread::scope(|scope| {
        let sending = scope.spawn(move || send(sender, len));
        let intact = compare(receiver, len)?;
        sending.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(intact)
    })
}

/// Listens at `address`. A child that another thread has forked, and that has not yet come to its
/// `exec`, holds a copy of the listener before this one for a moment: so this tries again.
fn listen(address: SocketAddr) -> Result<TcpListener> {
    let until = Instant::now() + PATIENCE;
    loop {
        match TcpListener::bind(address) {
            Err(error) if error.kind() == ErrorKind::AddrInUse && Instant::now() < until => {
                interrupt::check()?;
                std::thread::sleep(Duration::from_millis(10));
            }
            other => return other.context("host B cannot listen"),
        }
    }
}

fn send(mut stream: TcpStream, len: usize) -> Result<()> {
    for number in 0..len.div_ceil(CHUNK) {
        interrupt::check()?;
        let chunk = chunk(number);
        stream.write_all(&chunk[..CHUNK.min(len - number * CHUNK)]).context("TCP stalls")?;
    }
    Ok(())
}

fn compare(mut stream: TcpStream, len: usize) -> Result<u64> {
    let mut intact = 0;
    let mut buffer = vec![0; CHUNK];
    for number in 0..len.div_ceil(CHUNK) {
        interrupt::check()?;
        let expected = chunk(number);
        let part = &mut buffer[..CHUNK.min(len - number * CHUNK)];
        stream.read_exact(part).context("TCP stalls")?;
        let same = part.iter().zip(&expected).take_while(|(a, b)| a == b).count();
        intact += same as u64;
        if same < part.len() {
            break;
        }
    }
    Ok(intact)
}

/// Bytes that differ from chunk to chunk: a multiplicative generator seeded by the number.
fn chunk(number: usize) -> Vec<u8> {
    let mut state = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(CHUNK);
    while bytes.len() < CHUNK {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        bytes.extend_from_slice(&state.rotate_left(17).to_le_bytes());
    }
    bytes
}
