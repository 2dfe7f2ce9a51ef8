//! Network namespaces for tests: `left -- [pl  middle  pr] -- right`, removed when dropped.
#![allow(dead_code, reason = "each test file uses its part")]
#![expect(clippy::disallowed_methods, reason = "tests wait from outside")]

use std::fs::File;
use std::io::IoSlice;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use weir_port::{Outgoing, Port, Transmitted};
use weir_wire::frame::{Frame, Offload};

/// Whether namespaces can be made here; says so when not.
pub(crate) fn possible() -> bool {
    let root = rustix::process::geteuid().is_root();
    let tool = Command::new("ip").arg("-V").output().is_ok();
    if !root || !tool {
        eprintln!("SKIPPED: network namespaces need root and iproute2");
    }
    root && tool
}

/// Three namespaces in a row, joined by two veth pairs. All names end in a number of their own.
pub(crate) struct Lab {
    pub(crate) left: Namespace,
    pub(crate) middle: Namespace,
    pub(crate) right: Namespace,
}

impl Lab {
    /// `l0` in left (10.77.0.1), `pl` and `pr` in middle, `r0` in right (10.77.0.2).
    pub(crate) fn new(mtu: u32) -> Self {
        let lab = Self {
            left: Namespace::new("left"),
            middle: Namespace::new("middle"),
            right: Namespace::new("right"),
        };
        for (outer, name, port) in [(&lab.left, "l0", "pl"), (&lab.right, "r0", "pr")] {
            ip(&format!(
                "link add {name} netns {} mtu {mtu} type veth peer name {port} netns {} mtu {mtu}",
                outer.name, lab.middle.name
            ));
            outer.ip(&format!("link set {name} up"));
            lab.middle.ip(&format!("link set {port} up"));
        }
        lab.left.ip("addr add 10.77.0.1/24 dev l0");
        lab.right.ip("addr add 10.77.0.2/24 dev r0");
        lab
    }
}

/// One network namespace, deleted with this value.
pub(crate) struct Namespace {
    pub(crate) name: String,
}

impl Namespace {
    pub(crate) fn new(role: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("weir-{role}-{}-{number}", std::process::id());
        ip(&format!("netns add {name}"));
        let namespace = Self { name };
        // The kernel's own chatter would be counted among the frames of a test.
        namespace.command("sysctl", &["-qw", "net.ipv6.conf.all.disable_ipv6=1"]);
        namespace.command("sysctl", &["-qw", "net.ipv6.conf.default.disable_ipv6=1"]);
        namespace.ip("link set lo up");
        namespace
    }

    /// `ip` with these words, inside.
    pub(crate) fn ip(&self, words: &str) {
        ip(&format!("-n {} {words}", self.name));
    }

    /// A command inside, waited for.
    pub(crate) fn command(&self, program: &str, arguments: &[&str]) -> Output {
        let mut command = self.prepare(program, arguments);
        command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
    }

    /// A command inside, running until the value is dropped.
    pub(crate) fn spawn(&self, program: &str, arguments: &[&str]) -> Running {
        let mut command = self.prepare(program, arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Running(Some(command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"))))
    }

    fn prepare(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]).args(arguments);
        command
    }

    /// What `make` makes on a thread inside.
    pub(crate) fn within<T: Send>(&self, make: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                let file = File::open(format!("/run/netns/{}", self.name)).expect("a namespace");
                let kind = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(file.as_fd(), kind).expect("root enters");
                make()
            });
            inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let deleted = Command::new("ip").args(["netns", "del", &self.name]).status();
        if !deleted.is_ok_and(|status| status.success()) {
            eprintln!("namespace {} is left behind", self.name);
        }
    }
}

/// A process that ends with this value.
pub(crate) struct Running(Option<Child>);

impl Running {
    /// Waits for its own end.
    pub(crate) fn finish(mut self) -> Output {
        self.0.take().expect("it runs").wait_with_output().expect("it ends")
    }

    pub(crate) fn kill(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

fn ip(words: &str) {
    let output = Command::new("ip").args(words.split(' ')).output().expect("iproute2");
    assert!(output.status.success(), "ip {words}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Sends one plain frame.
pub(crate) fn send(port: &mut impl Port, bytes: &[u8]) -> Transmitted {
    let parts = [IoSlice::new(bytes)];
    port.transmit(&[Outgoing { parts: &parts, offload: Offload::default() }])
}

/// Receives until `enough` says so, at most two seconds; the frames' bytes.
pub(crate) fn receive(port: &mut impl Port, enough: impl Fn(&[Vec<u8>]) -> bool) -> Vec<Vec<u8>> {
    let mut seen = Vec::new();
    let end = Instant::now() + Duration::from_secs(2);
    while !enough(&seen) && Instant::now() < end {
        let take = &mut |frames: &mut [Frame<'_>]| {
            for frame in frames.iter() {
                assert!(frame.headroom() >= 128 && frame.tailroom() >= 64, "the promised room");
                seen.push(frame.bytes().to_vec());
            }
        };
        if port.receive(take).expect("the port lives") == 0 {
            let descriptors = port.poll_fd().into_iter().collect::<Vec<_>>();
            weir_port::wait(&descriptors, Duration::from_millis(20)).expect("it can be polled");
        }
    }
    seen
}

/// Carries what waits at `from` to `to`; notes the longest frame.
pub(crate) fn forward(from: &mut dyn Port, to: &mut dyn Port, longest: &mut usize) -> usize {
    from.receive(&mut |frames| {
        *longest = frames.iter().map(|frame| frame.len()).fold(*longest, usize::max);
        let parts: Vec<_> = frames.iter().map(|frame| [IoSlice::new(frame.bytes())]).collect();
        let outgoing: Vec<_> = parts
            .iter()
            .zip(frames.iter())
            .map(|(parts, frame)| Outgoing { parts, offload: frame.meta.offload })
            .collect();
        let done = to.transmit(&outgoing);
        assert_eq!(done.sent + done.dropped, frames.len() as u64);
    })
    .expect("the port lives")
}

/// Carries both ways until `done`, or half a minute has passed; the longest frame each way.
pub(crate) fn carry(a: &mut dyn Port, b: &mut dyn Port, done: &AtomicBool) -> (usize, usize) {
    let (mut there, mut back) = (0, 0);
    let descriptors: Vec<_> = [&*a, &*b].iter().filter_map(|port| port.poll_fd()).collect();
    let end = Instant::now() + Duration::from_secs(30);
    while !done.load(Ordering::Relaxed) && Instant::now() < end {
        if forward(a, b, &mut there) + forward(b, a, &mut back) == 0 {
            weir_port::wait(&descriptors, Duration::from_millis(10)).expect("they can be polled");
        }
    }
    (there, back)
}

/// Bounds how long a connection waits for what does not come.
pub(crate) fn impatient(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a connected stream");
    stream.set_write_timeout(Some(Duration::from_secs(20))).expect("a connected stream");
    stream
}

/// An Ethernet frame of `len` bytes of an experimental type, its content told by `seed`.
pub(crate) fn frame(len: usize, seed: u8) -> Vec<u8> {
    let mut bytes = vec![0x02, 0, 0, 0, 0, 2, 0x02, 0, 0, 0, 0, 1, 0x88, 0xb5];
    bytes.extend((bytes.len()..len).map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed)));
    bytes
}
