//! Queue-pair conversations: who talks to which queue pair, in order or not, and how it is
//! answered.
//!
//! ```text
//!  BTH --QueuePairKey--> ConversationTable --> Conversation { [Direction; 2] }
//!                              |                     PsnTracker: gap, late, seen, jump
//!                     cm, pairing: which two directions are one conversation
//! ```

pub mod cm;
mod departed;
pub mod key;
pub mod loss;
pub mod pairing;
pub mod psn;
pub mod qp;
mod stage_data;
pub mod table;

pub(crate) use departed::DEPARTED_BYTES;
pub use key::QueuePairKey;
pub use loss::{LossWay, Losses};
pub use psn::{PsnOrder, PsnTracker};
pub use qp::{
    Conversation, Direction, DirectionCounters, Joined, NAK_CAUSES, OperationClass, Volume,
};
pub(crate) use stage_data::StageData;
pub use table::{ConversationHandle, ConversationTable};
