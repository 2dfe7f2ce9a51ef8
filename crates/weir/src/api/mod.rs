//! What the daemon says of itself, and the words it is asked with.

pub mod access;
pub mod blocks;
pub mod configure;
pub mod detection;
pub mod dto;

mod join;
pub mod keys;

pub mod peers;
pub mod port;
pub mod store;
pub mod suppress;
