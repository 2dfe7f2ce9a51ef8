//! What a connection keeps in memory.

use super::{Application, Conversation, MessageUpdate};
use crate::heap::{HeapSize, heap_size};

impl HeapSize for Application {
    fn heap_size(&self) -> usize {
        match self {
            Self::Unknown | Self::None | Self::Other(_, None) => 0,
            Self::Http(it) => it.heap_size(),
            Self::Http2(it) => it.heap_size(),
            Self::Websocket(it, parser) => it.heap_size() + parser.heap_size(),
            Self::Tls(it) => it.heap_size(),
            Self::Dns(it) => it.heap_size(),
            Self::Ssh(it) => it.heap_size(),
            Self::Other(_, Some(parser)) => parser.heap_size(),
        }
    }
}

impl HeapSize for MessageUpdate {
    /// Those that are kept hold nothing.
    fn heap_size(&self) -> usize {
        0
    }
}

heap_size!(Conversation { streams, application, framer, late, later });
