//! What is asked of the policy database.

use crate::answer::Exchange;
use crate::database::{POLICIES_MAX, Xfrm, read};
use crate::netlink::Writer;
use crate::policy::Policy;
use crate::refusal::{Errno, Refusal, refuse};
use crate::uapi::*;

/// Attributes of the answer to `XFRM_MSG_GETSPDINFO`.
const SPD_COUNTS: u16 = 1;
const SPD_HASH: u16 = 2;

impl Xfrm {
    pub(crate) fn new_policy(
        &mut self,
        exchange: &mut Exchange<'_>,
        body: &[u8],
        update: bool,
    ) -> Result<(), Refusal> {
        let mut policy = Policy::read(body, exchange.now)?;
        self.place.check(&policy)?;
        let known = self.find_policy(&policy.info.selector, policy.info.direction);
        match known {
            Some(_) if !update => {
                return refuse(Errno::EEXIST, "there is a policy with this selector already");
            }
            Some(place) => {
                let old = self.policies.remove(place);
                policy.info.index = old.info.index;
            }
            None if self.policies.len() >= POLICIES_MAX => {
                return refuse(Errno::ENOBUFS, "there are 8192 policies already");
            }
            None if policy.info.index == 0 => {
                policy.info.index = self.next_index | u32::from(policy.info.direction);
                self.next_index = self.next_index.wrapping_add(8).max(8);
            }
            None => {}
        }
        let told = policy.write(exchange.header(exchange.header.kind));
        let rank = |it: &Policy| (it.info.direction, it.info.priority);
        let place = self.policies.partition_point(|it| rank(it) <= rank(&policy));
        self.policies.insert(place, policy);
        exchange.notify(group::POLICY, told);
        Ok(())
    }

    fn find_policy(&self, selector: &Selector, direction: u8) -> Option<usize> {
        self.policies.iter().position(|it| it.is(selector, direction))
    }

    /// By its index, or else by its selector, as the kernel does.
    fn find_policy_by_id(&self, id: &PolicyId) -> Result<usize, Refusal> {
        if id.direction > DIRECTION_FORWARD {
            return refuse(Errno::EINVAL, "no such direction");
        }
        let found = match id.index {
            0 => self.find_policy(&id.selector, id.direction),
            index => self
                .policies
                .iter()
                .position(|it| it.info.index == index && it.info.direction == id.direction),
        };
        found.ok_or_else(|| Refusal::new(Errno::ENOENT, "there is no such policy"))
    }

    pub(crate) fn delete_policy(
        &mut self,
        exchange: &mut Exchange<'_>,
        body: &[u8],
    ) -> Result<(), Refusal> {
        let (id, _): (PolicyId, _) = read(body)?;
        let policy = self.policies.remove(self.find_policy_by_id(&id)?);
        let writer = Writer::new(exchange.header(kind::DEL_POLICY), &id);
        let told = policy.write_attributes(writer.with(attribute::POLICY, &policy.info));
        exchange.notify(group::POLICY, told);
        Ok(())
    }

    pub(crate) fn tell_policy(
        &mut self,
        exchange: &mut Exchange<'_>,
        body: &[u8],
    ) -> Result<(), Refusal> {
        let (id, _): (PolicyId, _) = read(body)?;
        let policy = &self.policies[self.find_policy_by_id(&id)?];
        let told = policy.write(exchange.header(kind::NEW_POLICY));
        exchange.reply(told);
        Ok(())
    }

    pub(crate) fn dump_policies(&mut self, exchange: &mut Exchange<'_>) {
        let header = exchange.header(kind::NEW_POLICY);
        let told: Vec<_> = self.policies.iter().map(|it| it.write(header)).collect();
        exchange.reply_all(told.into_iter());
    }

    pub(crate) fn flush_policies(
        &mut self,
        exchange: &mut Exchange<'_>,
        _body: &[u8],
    ) -> Result<(), Refusal> {
        if self.policies.is_empty() {
            return Ok(());
        }
        self.policies.clear();
        let writer = Writer::new(exchange.header(kind::FLUSH_POLICY), &[0u8; 0]);
        let told = writer.with(attribute::POLICY_TYPE, &PolicyType::default()).finish();
        exchange.notify(group::POLICY, told);
        Ok(())
    }

    pub(crate) fn count_policies(
        &mut self,
        exchange: &mut Exchange<'_>,
        body: &[u8],
    ) -> Result<(), Refusal> {
        let (flags, _): (u32, _) = read(body)?;
        let count = |direction| {
            self.policies.iter().filter(|it| it.info.direction == direction).count() as u32
        };
        let counts = PolicyCounts {
            inward: count(DIRECTION_IN),
            outward: count(DIRECTION_OUT),
            forward: count(DIRECTION_FORWARD),
            ..PolicyCounts::default()
        };
        let hash = HashInfo { now: self.policies.len() as u32, max: POLICIES_MAX as u32 };
        let writer = Writer::new(exchange.header(kind::NEW_SPD_INFO), &flags);
        exchange.reply(writer.with(SPD_COUNTS, &counts).with(SPD_HASH, &hash).finish());
        Ok(())
    }
}
