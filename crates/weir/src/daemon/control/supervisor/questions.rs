//! What is asked of a running gateway by its sockets.

use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use weir_store::clock;

use super::blocks::CONTROL;
use super::reading::Wanted;
use super::{Gateway, STATUS_WAIT};
use crate::api::dto::{AssociationKey, CutRequest, KeysRequest, Request, Response};
use crate::config::Keys;
use crate::config::policy::associations;
use crate::daemon::control::socket::{Output, Question};
use crate::daemon::keys::keying::Keying;
use crate::daemon::keys::secrets;
use crate::daemon::pair::evidence;

impl Gateway {
    /// Answers those who asked for counters before the workers published some last.
    pub(super) fn answer_status(&mut self, now: Instant) {
        for (asked, answer) in std::mem::take(&mut self.status_asked) {
            let may_wait = now.saturating_duration_since(asked) < STATUS_WAIT;
            if may_wait && !self.workers.iter().all(|it| it.have_published_since(asked)) {
                self.status_asked.push((asked, answer));
                continue;
            }
            // After so long a wait they are as old as they say.
            let result = self.snapshot().map(|it| Response::Status(Box::new(it)));
            let _ = answer.send(result.unwrap_or_else(|it| Response::Error(format!("{it:#}"))));
        }
    }

    /// Does what is asked; the answer may come later.
    pub(super) fn answer(&mut self, question: Question) {
        let Question { request, answer, output } = question;
        let result = match request {
            Request::Status => {
                self.status_asked.push((clock::now(), answer));
                return;
            }
            Request::Keys(request) => {
                self.read(self.source.clone(), Wanted::Keys { request, answer });
                return;
            }
            Request::EvidenceCut(request) => {
                match self.cut_evidence(request, output, answer.clone()) {
                    // The answer comes from a thread of its own.
                    Ok(()) => return,
                    Err(error) => Err(error),
                }
            }
            Request::Reload(request) => {
                let within = request.confirm_within_ms.map(Duration::from_millis);
                self.read_file(Wanted::Reload { within, answer });
                return;
            }
            Request::Blocks(request) => self.block(CONTROL, &request),
            Request::Operate { by, blocks } => self.block(&by, &blocks),
            Request::Remark { by, alert, is_acknowledged, comment } => {
                self.remark(&by, alert, is_acknowledged, &comment)
            }
            Request::Suppress { by, suppression } => self.suppress(&by, &suppression),
            Request::Configure { by, configure } => {
                self.configure(by, configure, answer);
                return;
            }
            Request::Evidence { by, cut } => {
                self.told(&by, "evidence cut", "begun");
                match self.cut_evidence(cut, output, answer.clone()) {
                    Ok(()) => return,
                    Err(error) => Err(error),
                }
            }
            Request::Configuration => Ok(self.configuration_response()),
            Request::Confirm => self.confirm().map(|()| self.configuration_response()),
            Request::Rollback => self.roll_back_asked(),
        };
        let _ = answer.send(result.unwrap_or_else(|it| Response::Error(format!("{it:#}"))));
    }

    /// The keys in use; `keys` are those of the configuration.
    pub(super) fn keys(&self, request: &KeysRequest, keys: &Keys) -> Result<Vec<AssociationKey>> {
        let mut found = Vec::new();
        for ((worker, pair), keying) in
            self.workers.iter().zip(&self.settings.pairs).zip(&self.keying)
        {
            if request.pair.as_ref().is_some_and(|name| *name != pair.name) {
                continue;
            }
            for (number, running) in worker.running().enumerate() {
                let configured = associations(pair, keys, number)?;
                found.extend(secrets::configured(&pair.name, &configured, running));
            }
            let agreed = keying.as_ref().and_then(Keying::keys).unwrap_or_default();
            found.extend(secrets::agreed(&pair.name, &agreed));
        }
        found.retain(|it| request.peer.as_ref().is_none_or(|name| *name == it.peer));
        tracing::warn!(count = found.len(), "keys of associations were told on request");
        Ok(found)
    }

    /// Has the evidence written to `output` and `answer` told.
    fn cut_evidence(
        &mut self,
        request: CutRequest,
        output: Option<Output>,
        answer: Sender<Response>,
    ) -> Result<()> {
        let output = output.context("no file was passed beside the request (SCM_RIGHTS)")?;
        let Some(kept) = &self.settings.evidence else {
            bail!("no packets are kept: add a table [evidence] to the configuration");
        };
        let wanted = |name: &str| request.pair.as_ref().is_none_or(|pair| pair == name);
        let mut holdings = Vec::new();
        for (worker, pair) in self.workers.iter().zip(&self.settings.pairs) {
            if !wanted(&pair.name) {
                continue;
            }
            let folder = kept.disk.as_ref().map(|disk| disk.folder.as_path());
            let gateway = &self.settings.gateway.name;
            holdings.push(evidence::holding(gateway, pair, folder, worker.evidence()?));
        }
        if holdings.is_empty() {
            let names: Vec<_> = self.settings.pairs.iter().map(|it| it.name.as_str()).collect();
            bail!("there is no such pair; there are: {}", names.join(", "));
        }
        let now = clock::time();
        let turn = self.cuts.take()?;
        std::thread::Builder::new().name("cut".into()).spawn(move || {
            let _turn = turn;
            let report = evidence::cut(output, &holdings, &request, now);
            let response = match report {
                Ok(report) => Response::Evidence(report),
                Err(error) => Response::Error(format!("{error:#}")),
            };
            let _ = answer.send(response);
        })?;
        Ok(())
    }
}
