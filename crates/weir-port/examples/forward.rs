//! Plain forwarding between two interfaces, to see what a driver can carry:
//! `forward [--driver packet|tap|xdp] A B [--seconds N]`. Runs in the network namespace that it is
//! started in. With `tap`, A and B are created.

#![expect(clippy::disallowed_methods, reason = "an example measures from outside")]

use std::io::IoSlice;
use std::time::{Duration, Instant};

use weir_port::{
    BATCH, Outgoing, PacketOptions, PacketPort, Port, TapOptions, TapPort, Transmitted, XdpOptions,
    XdpPort, wait,
};

type Anything = Box<dyn std::error::Error>;

fn main() -> Result<(), Anything> {
    let mut arguments = std::env::args().skip(1);
    let (mut driver, mut seconds, mut names) = ("packet".to_owned(), 10, Vec::new());
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--driver" => driver = arguments.next().ok_or("--driver needs a name")?,
            "--seconds" => seconds = arguments.next().ok_or("--seconds needs a number")?.parse()?,
            _ => names.push(argument),
        }
    }
    let [a, b] = names.as_slice() else {
        return Err("usage: forward [--driver packet|tap|xdp] A B [--seconds N]".into());
    };
    let mut a = open(&driver, a)?;
    let mut b = open(&driver, b)?;
    let descriptors: Vec<_> = [&a, &b].iter().filter_map(|port| port.poll_fd()).collect();
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut largest = 0;
    while Instant::now() < end {
        let moved =
            forward(&mut *a, &mut *b, &mut largest)? + forward(&mut *b, &mut *a, &mut largest)?;
        if moved == 0 {
            wait(&descriptors, Duration::from_millis(100))?;
        }
    }
    println!(
        "{} {:?}\n{} {:?}",
        a.name().to_owned(),
        a.counters(),
        b.name().to_owned(),
        b.counters()
    );
    println!("largest frame {largest} bytes; {}", memory());
    Ok(())
}

fn open(driver: &str, name: &str) -> Result<Box<dyn Port>, Anything> {
    Ok(match driver {
        "packet" => Box::new(PacketPort::open(name, PacketOptions::default())?),
        "tap" => Box::new(TapPort::open(name, &TapOptions { mtu: 9000, ..TapOptions::default() })?),
        "xdp" => Box::new(XdpPort::open(name, &XdpOptions::default())?),
        _ => return Err(format!("no driver is called {driver}").into()),
    })
}

fn forward(from: &mut dyn Port, to: &mut dyn Port, largest: &mut usize) -> std::io::Result<usize> {
    from.receive(&mut |frames| {
        *largest = frames.iter().map(|frame| frame.len()).fold(*largest, usize::max);
        let parts: Vec<_> = frames.iter().map(|frame| [IoSlice::new(frame.bytes())]).collect();
        let outgoing: Vec<_> = parts
            .iter()
            .zip(frames.iter())
            .map(|(parts, frame)| Outgoing { parts, offload: frame.meta.offload })
            .collect();
        debug_assert!(outgoing.len() <= BATCH);
        let Transmitted { .. } = to.transmit(&outgoing);
    })
}

fn memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().filter(|line| line.starts_with("VmRSS")).collect()
}
