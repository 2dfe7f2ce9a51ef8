//! The kernel and [`FrameFilter::takes`] say the same about every frame, its tag beside it or not.

use super::*;
use crate::sys::program::test_run;

const EXPRESSIONS: [&str; 22] = [
    "ip or arp",
    "not ip",
    "udp port 4791",
    "tcp or udp dst port 53",
    "ip6 and udp",
    "host 10.77.0.2",
    "net 10.77.0.0/25 and not port 22",
    "vlan",
    "vlan 5 and ip",
    "vlan and vlan and udp",
    "ether proto 0x8915",
    "ether host 02:00:00:00:00:01",
    "ether broadcast or ether multicast",
    "tcp[tcpflags] & (tcp-syn|tcp-fin) != 0",
    "udp[8:4] & 0xffffff = 17",
    "less 100",
    "greater 101 and portrange 1000-5000",
    "ether[12:4] = 0x81006005 or ether[14:2] & 0xfff = 7",
    "ether[13:4] > 7 and ether[15:2] * 3 - len >= 5",
    "ether[len - 20] < 64 or ether[ether[5] & 15:2] = 0x8100",
    "ether[ether[4] & 31:4] ^ 0x1234 > 0x80000000",
    "len / (ether[3] & 3) > 20 or ip[ip[8] % (ip[9] & 7):1] << 3 = 16",
];

/// Numbers that repeat (Marsaglia's xorshift).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % below
    }
}

fn frame(dice: &mut Dice) -> Vec<u8> {
    let mut frame: Vec<u8> = (0..60 + dice.roll(80)).map(|_| dice.roll(256) as u8).collect();
    frame[..6].copy_from_slice(&[2, 0, 0, 0, dice.roll(64) as u8, dice.roll(32) as u8]);
    let ethertype = [0x0800u16, 0x0800, 0x86dd, 0x0806, 0x8915, 0x8100, 0x88a8][dice.roll(7)];
    frame[12..14].copy_from_slice(&ethertype.to_be_bytes());
    let mut at = 14;
    if matches!(ethertype, 0x8100 | 0x88a8) {
        frame[14..18].copy_from_slice(&[0, 5 + dice.roll(3) as u8, 8, 0]);
        at = 18;
    }
    frame[at] = 0x45 + dice.roll(2) as u8;
    frame[at + 6] = 0;
    frame[at + 7] = 0;
    frame[at + 9] = [6, 17, 17, 1][dice.roll(4)];
    frame[at + 12..at + 20].copy_from_slice(&[10, 77, 0, dice.roll(4) as u8, 10, 77, 0, 2]);
    let port = [4791u16, 53, 22, 1000, 6000][dice.roll(5)];
    frame[at + 22..at + 24].copy_from_slice(&port.to_be_bytes());
    // Some end early; the kernel tries none without the header that its type promises.
    if dice.roll(4) == 0 {
        let least = match ethertype {
            0x0800 => 34,
            0x86dd => 54,
            _ => 15,
        };
        frame.truncate(least + dice.roll(30));
    }
    frame
}

/// `filter` for the kernel; with a tag that is put beside the frame first.
fn loaded(filter: &FrameFilter, tag: Option<(u16, u16)>) -> OwnedFd {
    let mut code = assemble(filter.program(), &Ending::Return).expect("it has a form");
    if let Some((proto, tci)) = tag {
        const SKB_VLAN_PUSH: i32 = 18;
        let push = [
            Instruction::new(ALU64 | MOVE | REGISTER, CONTEXT, 1, 0, 0),
            Instruction::new(ALU32 | MOVE, 2, 0, 0, proto.to_be().into()),
            Instruction::new(ALU32 | MOVE, 3, 0, 0, tci.into()),
            Instruction::new(CALL, 0, 0, 0, SKB_VLAN_PUSH),
            Instruction::new(ALU64 | MOVE | REGISTER, 1, CONTEXT, 0, 0),
        ];
        code.splice(0..0, push);
    }
    program::load_classifier(&code).expect("root loads it, and the kernel finds no fault")
}

#[test]
fn the_kernel_takes_what_the_gateway_takes() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: loading a kernel program needs root");
        return;
    }
    let mut dice = Dice(0x5eed);
    let mut answers = [0; 2];
    for expression in EXPRESSIONS {
        let filter = FrameFilter::compile(expression).expect(expression);
        for tag in [None, Some((0x8100, 0x6005)), Some((0x88a8, 7))] {
            let program = loaded(&filter, tag);
            for _ in 0..300 {
                let bytes = frame(&mut dice);
                let mut whole = bytes.clone();
                if let Some((proto, tci)) = tag {
                    let tag: [u16; 2] = [proto, tci];
                    whole.splice(12..12, tag.map(u16::to_be_bytes).concat());
                }
                let expected = filter.takes(&whole, whole.len() as u32);
                let taken = test_run(program.as_fd(), &bytes).expect("the kernel runs it") != 0;
                assert_eq!(taken, expected, "{expression}, tag {tag:x?}: {bytes:02x?}");
                answers[usize::from(taken)] += 1;
            }
        }
    }
    assert!(answers.iter().all(|it| *it > 2000), "both answers came: {answers:?}");
}

#[test]
fn what_has_no_form_in_the_kernel_is_left_to_the_gateway() {
    let instruction = |code, value| FilterInstruction { code, yes: 0, no: 0, value };
    let (accept, odd) = (instruction(0x06, 1), instruction(0x34, 0));
    assert!(assemble(&[accept], &Ending::Return).is_some());
    assert!(assemble(&[odd, accept], &Ending::Return).is_none(), "divided by zero");
    let far = FilterInstruction { code: 0x15, yes: 200, no: 0, value: 0 };
    assert!(assemble(&[far, accept], &Ending::Return).is_none(), "a jump to nowhere");
    let long = vec![instruction(0x20, 0); 4000];
    let long = [vec![FilterInstruction { code: 0x05, yes: 0, no: 0, value: 4000 }], long];
    let long = [long.concat(), vec![accept]].concat();
    assert!(assemble(&long, &Ending::Return).is_none(), "too far for a jump");
}
