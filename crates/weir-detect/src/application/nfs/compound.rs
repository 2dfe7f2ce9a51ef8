//! Calls of NFS version 4 and their answers: files that are read, written and removed. As with
//! Suricata, other operations are no transactions; those that name a file tell whose handle an
//! answer gives.

use super::four::{self, Asked, Told};
use super::{Call, Nfs, WAITING_MAX, Xdr};
use crate::application::unit::{Record, Said, Unit};
use crate::buffers::event::AppEvent;
use crate::rule::Protocol;
use crate::value::Object;

impl Nfs {
    /// A call of version 4.
    pub(super) fn compound(
        &mut self,
        identifier: u32,
        (procedure, mut xdr): (u32, Xdr<'_>),
        (kind, credentials): (&'static str, Object),
        said: &mut Said,
    ) {
        if procedure != 1 {
            return;
        }
        let operations = four::asked(&mut xdr).unwrap_or_default();
        let call = Call {
            number: self.count,
            identifier,
            version: 4,
            procedure,
            handle: Vec::new(),
            name: Vec::new(),
            rename: None,
            at: 0,
            credentials,
            kind,
            is_more: false,
        };
        let (mut handle, mut name): (&[u8], &[u8]) = (&[], &[]);
        // What waits for its answer: the last that is told, or what names a file.
        let mut waits: Option<Call> = None;
        for operation in operations {
            match operation {
                Asked::Handle(of) => handle = of,
                Asked::Open(of) | Asked::Lookup(of) | Asked::Create(of) => name = of,
                Asked::Remove(of) => {
                    let call = Call { procedure: four::REMOVE, ..call.clone() };
                    waits = Some(Call { name: of.to_vec(), ..call });
                }
                // Further reads go on behind the first.
                Asked::Read(at) if waits.as_ref().is_none_or(|it| !it.reads()) => {
                    let (handle, name) = (handle.to_vec(), self.name_of(handle));
                    let call = Call { procedure: four::READ, at, handle, name, ..call.clone() };
                    // Who reads is not told.
                    waits = Some(Call { credentials: Object::default(), kind: "NULL", ..call });
                }
                Asked::Write(at, stable, length, data) => {
                    let is_more = self.is_written(handle);
                    let number = self.count;
                    self.count += u64::from(!is_more);
                    let (handle, name) = (handle.to_vec(), self.name_of(handle));
                    let call =
                        Call { procedure: four::WRITE, number, handle, name, ..call.clone() };
                    self.write_piece(call, (at, stable), (length, data), said);
                }
                Asked::Commit => self.kept(handle, identifier, said),
                Asked::Close => self.closed(handle, identifier, said),
                Asked::Read(_) | Asked::Rename(..) | Asked::GetHandle | Asked::Other(_) => {}
            }
        }
        let named = || Call { name: name.to_vec(), ..call };
        let call = waits.or_else(|| (!name.is_empty()).then(named));
        call.into_iter().for_each(|it| self.ask(it, said));
    }

    /// Keeps a call until it is answered.
    fn ask(&mut self, mut call: Call, said: &mut Said) {
        if call.reads() {
            let first = self.reader_of(&call.handle);
            (call.number, call.is_more) = (first.unwrap_or(self.count), first.is_some());
            self.count += u64::from(first.is_none());
        } else if call.procedure == four::REMOVE {
            self.count += 1;
            let mut unit = call.unit();
            unit.tells("rpc", call.rpc("unknown"));
            unit.tells("nfs", call.object(None));
            said.units.push(unit);
        }
        if self.unanswered.make_room(&mut self.waiting, WAITING_MAX) {
            let mut unit = Unit::new(Protocol::Nfs, call.number);
            unit.odd(AppEvent::NfsMany);
            said.units.push(unit);
        }
        self.waiting.push_back(call);
    }

    /// What became of a call; nothing where it was denied.
    pub(super) fn compounded(&mut self, mut call: Call, xdr: Option<Xdr<'_>>, said: &mut Said) {
        let answer = xdr.and_then(|mut it| {
            let (_verifier, accepted) = ((it.number()?, it.opaque()?), it.number()?);
            (accepted == 0).then(|| four::told(&mut it))?
        });
        let (status, operations) = answer.unwrap_or_default();
        let mut unit = call.unit();
        let mut is_seen = call.procedure == four::REMOVE;
        let object = call.object(Some(super::status_name(status)));
        let mut objects = vec![("rpc", call.rpc("ACCEPTED")), ("nfs", object)];
        let mut is_told = is_seen;
        for operation in operations {
            match operation {
                Told::Handle(handle) if !call.name.is_empty() && call.procedure == 1 => {
                    self.remember(handle, &call.name);
                }
                Told::Read(is_last, length, data) if call.reads() => {
                    let piece = (is_last, (length, data));
                    self.read_piece(&call, piece, (&mut objects, &mut unit), said);
                    call.at = call.at.saturating_add(length);
                    (is_told, is_seen) = (is_last, true);
                }
                _ => {}
            }
        }
        if is_told {
            let record = Record::new("nfs", call.number, Object::default()).from(1);
            said.records.push(Record { objects: objects.clone(), ..record });
        }
        if is_seen {
            objects.into_iter().for_each(|(name, object)| unit.tells(name, object));
            said.units.push(unit);
        }
    }

    /// A client wants what it wrote to be kept.
    fn kept(&mut self, handle: &[u8], identifier: u32, said: &mut Said) {
        let written = self.written.iter_mut().find(|it| it.call.handle == handle);
        let Some(file) = written.filter(|it| it.told.is_none() && it.content.is_whole()) else {
            return;
        };
        file.last = identifier;
        let mut unit = file.call.unit();
        unit.whole_file(file.content.size, file.content.digests());
        said.units.push(unit);
        file.keep(said);
    }

    /// A client is done with a file: with that one of several pieces is told.
    fn closed(&mut self, handle: &[u8], identifier: u32, said: &mut Said) {
        let is_of = |it: &super::Written| it.call.handle == handle && it.pieces > 1;
        let Some(place) = self.written.iter().position(is_of) else { return };
        let mut file = self.written.remove(place);
        file.last = identifier;
        let record = file.end(said);
        said.records.push(record);
    }
}
