//! Test hosts, traffic and measurements on one machine.
//!
//! A [`topology::Lab`] is a handful of network namespaces in a row: host A, gateway A, the wire,
//! gateway B, host B. Everything in it is made by, and judged by, tools that are not ours
//! (iproute2, tcpdump, tshark, nftables, iperf3, perftest); Weir is only the thing under test.
//!
//! Nothing outlives its owner: namespaces, processes and files go when their guard is dropped,
//! which Ctrl-C ([`interrupt`]), an error and a panic all lead to. What `kill -9` leaves behind,
//! [`topology::sweep`] removes.

#![forbid(unsafe_code)]

pub mod interrupt;

pub mod process;

pub mod netns;

pub mod topology;

pub mod turn;

pub mod observe;

pub mod traffic;

pub mod gateways;
mod listeners;

mod serve;

pub mod vm;

pub mod eve;
pub mod openvpn;
pub mod play;
pub mod rules;
pub mod thresholds;

pub mod strongswan;

pub mod suricata;
pub mod vpn;
pub mod vpn_end;
pub mod wireguard;

pub mod bench;
pub mod demo;

pub mod study;

pub mod stats;

pub mod report;
