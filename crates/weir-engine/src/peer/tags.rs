//! What belongs to a peer whose packets carry tags.

use crate::counters::TagCounters;
use crate::esp::icrc_tag::{IcrcTag, TagRefusal};
use crate::policy::KeyedBy;

/// Its keys, and what was done with them.
#[derive(Debug)]
pub(crate) struct TaggedPeer {
    pub(crate) tag: IcrcTag,
    pub(crate) counters: TagCounters,
}

impl TaggedPeer {
    /// One whose keys are agreed; there are none yet.
    pub(crate) fn agreed(keyed_by: KeyedBy) -> Self {
        Self::shared(IcrcTag::agreed(keyed_by))
    }

    /// One that tags with keys of a file.
    pub(crate) fn shared(tag: IcrcTag) -> Self {
        Self { tag, counters: TagCounters::default() }
    }

    /// Whether there is a key to tag with.
    pub(crate) fn can_tag(&self) -> bool {
        self.tag.can_tag()
    }

    /// Counts a packet that was refused.
    pub(crate) fn count(&mut self, refusal: TagRefusal) {
        match refusal {
            TagRefusal::Foreign => self.counters.foreign += 1,
            TagRefusal::Forged => self.counters.forged += 1,
            TagRefusal::OtherEpoch => self.counters.old_epoch += 1,
            TagRefusal::FailureLimit => self.counters.limited += 1,
            _ => {}
        }
    }
}
