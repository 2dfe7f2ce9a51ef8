//! Calls of DCE/RPC over pipes.

use super::{Head, Smb, WAITING_MAX, names};
use crate::application::rpc::{Call, Progress, Rpc};
use crate::application::unit::{Record, Said, Unit};
use crate::heap::heap_size;
use crate::rule::{Field, Protocol};
use crate::value::Object;

/// Services of which Suricata tells the calls; rules look at those of others, too.
const SERVICES: [&[u8]; 7] =
    [b"atsvc", b"lsarpc", b"samr", b"spoolss", b"srvsvc", b"svcctl", b"winreg"];

/// What is called over a pipe.
#[derive(Debug, Default)]
pub(super) struct Pipe {
    rpc: Rpc,
    /// Calls are transactions that are told of.
    pub(super) is_told: bool,
    waiting: Vec<Waiting>,
    /// The call of which its client sent something last, and the command and key of that message.
    newest: Option<(u32, (u16, u64))>,
    /// Its client called a file a pipe: what is read and written there is the file's still.
    pub(super) is_aside: bool,
}
heap_size!(Pipe { rpc, waiting });

/// A call that waits for its answer.
#[derive(Debug)]
struct Waiting {
    call: u32,
    number: u64,
    /// What begins its `smb`.
    head: Head,
    /// It will be answered later.
    is_pending: bool,
}
heap_size!(Waiting { head });

impl Pipe {
    /// One by that name.
    pub(super) fn of(name: &[u8]) -> Self {
        let name = name.strip_prefix(b"\\").unwrap_or(name);
        Self { is_told: SERVICES.contains(&name), ..Self::default() }
    }

    /// One whose name is not known, that is told of.
    pub(super) fn told() -> Self {
        Self { is_told: true, ..Self::default() }
    }

    /// The newest transaction of its calls that wait: they stand in the order of their numbers.
    pub(super) fn newest_number(&self) -> Option<u64> {
        self.waiting.last().map(|it| it.number)
    }

    /// Where a call stands among those that wait, and whether it is new.
    fn wait(&mut self, call: u32, number: u64, head: &Head) -> (usize, bool) {
        if let Some(place) = self.waiting.iter().position(|it| it.call == call) {
            return (place, false);
        }
        if self.waiting.len() == WAITING_MAX {
            self.waiting.remove(0);
        }
        self.waiting.push(Waiting { call, number, head: head.clone(), is_pending: false });
        (self.waiting.len() - 1, true)
    }

    /// The newest call will be answered later.
    pub(super) fn postpone(&mut self) {
        let newest = self.newest.map(|it| it.0);
        let newest = self.waiting.iter_mut().find(|it| Some(it.call) == newest);
        newest.into_iter().for_each(|it| it.is_pending = true);
    }

    /// Calls that nobody answered, with what waited for it.
    fn take_waiting(&mut self) -> Vec<(Waiting, Call)> {
        let mut calls = self.rpc.take_waiting();
        let waiting = std::mem::take(&mut self.waiting).into_iter().filter_map(|it| {
            let place = calls.iter().position(|call| call.identifier == it.call)?;
            Some((it, calls.swap_remove(place)))
        });
        waiting.collect()
    }
}

impl Smb {
    /// Bytes of a pipe: each call is a transaction of its own.
    pub(super) fn call(
        &mut self,
        side: usize,
        place: usize,
        bytes: &[u8],
        head: &Head,
        said: &mut Said,
    ) {
        let Some(mut pipe) = self.files[place].pipe.take() else { return };
        let mut rpc = std::mem::take(&mut pipe.rpc);
        rpc.take(side, bytes, &mut |rpc, Progress { call, is_done }| {
            if side == 0 {
                pipe.newest = Some((call.identifier, (head.command, head.key)));
            }
            if !pipe.is_told {
                let mut unit = self.aside();
                unit.number(Field::SmbVersion, head.version);
                rpc.fill(&call, side, &mut unit);
                return said.units.push(unit);
            }
            let (place, is_new) = pipe.wait(call.identifier, self.count, head);
            self.count += u64::from(is_new);
            let waiting = &pipe.waiting[place];
            let object = self.call_object(waiting, &call, Some(0));
            let mut unit = Unit::new(Protocol::Smb, waiting.number);
            unit.number(Field::SmbVersion, head.version);
            rpc.fill(&call, side, &mut unit);
            unit.tells("smb", object.clone());
            said.units.push(unit);
            if is_done {
                let number = pipe.waiting.remove(place).number;
                // What nobody asked for is told when all ends.
                match call.was_asked() {
                    true => said.records.push(Record::new("smb", number, object)),
                    false => self.keep_call(number, object),
                }
            }
        });
        pipe.rpc = rpc;
        self.files[place].pipe = Some(pipe);
    }

    /// A server does not take what a message brought of the newest call of a pipe.
    pub(super) fn deny(&mut self, file: u128, head: &Head, said: &mut Said) {
        let file = self.files.iter_mut().find(|it| it.identifier == file);
        let Some(pipe) = file.and_then(|it| it.pipe.as_mut()) else { return };
        let newest = pipe.newest.filter(|it| it.1 == (head.command, head.key));
        let denied = |it: &Waiting| newest.is_some_and(|newest| newest.0 == it.call);
        let place = pipe.waiting.iter().position(denied);
        let Some(place) = place else { return };
        let waiting = pipe.waiting.remove(place);
        let Some(call) = pipe.rpc.forget(waiting.call) else { return };
        let object = self.call_object(&waiting, &call, Some(head.status));
        said.records.push(Record::new("smb", waiting.number, object));
    }

    /// Calls of a pipe that is closed are told as unanswered when all ends.
    pub(super) fn tell_calls_later(&mut self, pipe: Option<Box<Pipe>>) {
        for (waiting, call) in pipe.into_iter().flat_map(|mut it| it.take_waiting()) {
            let object = self.call_object(&waiting, &call, None);
            self.keep_call(waiting.number, object);
        }
    }

    fn keep_call(&mut self, number: u64, object: Object) {
        if self.unanswered_calls.len() < WAITING_MAX {
            self.unanswered_calls.push((number, object));
        }
    }

    /// What is told of a call: with a status, once it has one.
    fn call_object(&self, waiting: &Waiting, call: &Call, status: Option<u32>) -> Object {
        let mut object = self.object(&waiting.head, waiting.number);
        let status = status.or(waiting.is_pending.then_some(names::STATUS_PENDING));
        names::put_status(&mut object, status);
        object
            .with("session_id", waiting.head.session)
            .with("tree_id", waiting.head.tree)
            .with("dcerpc", call.object(true))
    }
}
