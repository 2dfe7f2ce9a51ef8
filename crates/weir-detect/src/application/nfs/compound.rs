//! Calls of NFS version 4 and their answers: files that are read, written, created and removed. As
//! with Suricata, other operations are no transactions.

use super::Nfs;
use super::call::{Asked, Head, Transaction};
use super::files::{FILE_SYNC, Piece};
use super::four::{self, Operations, Told};
use crate::application::unit::Said;

/// How Suricata names the root.
const ROOT: &[u8] = b"<mount_root>";

impl Nfs {
    /// Operations of a call.
    pub(super) fn compound(
        &mut self,
        head: &Head<'_>,
        asked: &mut Asked,
        said: &mut Said,
    ) -> Option<()> {
        let mut operations = Operations::of_call(head.arguments)?;
        let mut main = None;
        while let Some(operation) = operations.asked() {
            match operation {
                four::Asked::Handle(handle) => {
                    asked.handle = handle.to_vec();
                    asked.name = self.name_of(handle);
                }
                four::Asked::Root => asked.name = ROOT.to_vec(),
                four::Asked::Open(name) => asked.name = name.to_vec(),
                four::Asked::Lookup(name) => asked.found = name.to_vec(),
                four::Asked::Create(name) => {
                    asked.found = name.to_vec();
                    main = Some((four::CREATE, name));
                }
                four::Asked::Remove(name) => main = Some((four::REMOVE, name)),
                four::Asked::Read(at) => {
                    asked.reads.push((asked.handle.clone(), at));
                }
                four::Asked::Write(at, stable, data) if !asked.handle.is_empty() => {
                    asked.procedure = four::WRITE;
                    let piece = Piece { at, data, is_last: stable == FILE_SYNC, side: 0 };
                    self.piece(piece, asked, said);
                    asked.procedure = head.procedure;
                }
                four::Asked::Close | four::Asked::Commit => self.keep(asked, false, said),
                _ => {}
            }
        }
        // The last counts.
        if let Some((operation, name)) = main {
            let mut new = Transaction::new(self.count, head);
            (new.procedure, new.name) = (operation, name.to_vec());
            if operation == four::CREATE {
                new.handle.clone_from(&asked.handle);
            }
            asked.procedure = operation;
            self.begin(new, asked, said);
        }
        (!operations.is_odd).then_some(())
    }

    /// What became of them, up to the first that failed.
    pub(super) fn results(
        &mut self,
        asked: &mut Asked,
        answer: super::xdr::Xdr<'_>,
        said: &mut Said,
    ) -> Option<()> {
        let mut operations = Operations::of_answer(answer)?;
        let mut reads = std::mem::take(&mut asked.reads).into_iter();
        let (main, mut is_opened) = (asked.procedure, false);
        while let Some((operation, status, told)) = operations.told() {
            if asked.number.is_some() && operation == main {
                self.done(asked, Some(status), said);
            }
            match told {
                Told::Read(is_last, data) => {
                    let (handle, at) = reads.next().unwrap_or_default();
                    (asked.handle, asked.procedure) = (handle, four::READ);
                    self.piece(Piece { at, data, is_last, side: 1 }, asked, said);
                }
                Told::Handle(handle) if is_opened && !asked.name.is_empty() => {
                    self.learn(handle, &asked.name, true);
                }
                Told::Handle(handle) if !asked.found.is_empty() => {
                    self.learn(handle, &asked.found, false);
                }
                _ => {}
            }
            is_opened |= operation == four::OPEN;
        }
        (!operations.is_odd).then_some(())
    }
}
