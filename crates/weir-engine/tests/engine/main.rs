//! What the engine claims, in one program: each file has its own subject.

mod access;
mod access_fastpath;
mod access_links;
mod access_oracle;
mod access_paths;
mod access_psn;
mod access_reject;
mod access_state;
mod access_terms;
mod buffers;
mod conversations;
mod esp;
mod esp_scapy;
mod esp_tshark;
mod fastpath;
mod icrc_tag;
mod judged;
mod losses;
mod offload;
mod peers;
mod proof;
mod rollout;
mod spreading;
mod tagged;
mod talk;
mod wire_forms;
