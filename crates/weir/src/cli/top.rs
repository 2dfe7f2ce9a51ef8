//! `weir top`: what this machine's gateways do, at a glance, in a terminal.

use std::io::{self, IsTerminal, Read};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use weir_serve::gateways::Places;
use weir_serve::live::{Board, Point};
use weir_serve::status::Status;
use weir_store::clock;

use super::records::STORES_DEFAULT;
use crate::api::dto::{Request, Response};
use crate::daemon::control::socket;

mod data;
mod screen;
mod trace;

use data::Data;
use trace::Trace;

const HELP: &str = "\
Keys:
  1 talkers   2 queue pairs   3 tunnels   4 alerts   5 drops   Tab: the next of them
  g: one gateway after the other, then all   up, down, PageUp, PageDown: move   p: stand still
  r: record a trace for Perfetto (ui.perfetto.dev), and end it: --trace FILE
  q, Esc: leave

Rates and tunnels are a second old at most. Talkers, queue pairs and alerts come from the store of
the last hour: a conversation is there when it ended or after `active_timeout_s`.

Exit codes:
  0  done
  1  no gateway runs here, or this is no terminal
  2  the command line is wrong";

/// Between two looks at gateways.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Between two looks at stores.
const ASK_EVERY: Duration = Duration::from_secs(2);

/// Bytes of a status, at most.
const STATUS_BYTES_MAX: u64 = 32 << 20;

/// How long a gateway may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// Arguments of `weir top`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct TopArgs {
    /// Where gateways keep their sockets; several allowed
    #[arg(long, default_value = "/run/weir", value_name = "DIRECTORY")]
    pub run_dir: Vec<PathBuf>,
    /// Where gateways keep their stores, or a store; several allowed
    #[arg(long, default_values = STORES_DEFAULT, value_name = "PATH")]
    pub store: Vec<PathBuf>,
    /// Where `r` records to; a file that is there is replaced
    #[arg(long, default_value = "weir-top.trace.json", value_name = "FILE")]
    pub trace: PathBuf,
}

/// Which table is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum View {
    Talkers,
    QueuePairs,
    Tunnels,
    Alerts,
    Drops,
}

impl View {
    const ALL: [Self; 5] =
        [Self::Talkers, Self::QueuePairs, Self::Tunnels, Self::Alerts, Self::Drops];

    fn name(self) -> &'static str {
        match self {
            Self::Talkers => "talkers",
            Self::QueuePairs => "queue pairs",
            Self::Tunnels => "tunnels",
            Self::Alerts => "alerts",
            Self::Drops => "drops",
        }
    }

    fn next(self) -> Self {
        let own = Self::ALL.iter().position(|it| *it == self).unwrap_or(0);
        Self::ALL[(own + 1) % Self::ALL.len()]
    }
}

/// What the keys have chosen.
#[derive(Debug)]
struct Choice {
    view: View,
    /// One gateway's name; absent: all.
    gateway: Option<String>,
    first_row: usize,
    is_paused: bool,
    /// What is recorded to; absent: nothing is.
    trace: Option<Trace>,
    /// What became of the recording before.
    said: String,
}

impl Choice {
    /// Begins to record, or ends it.
    fn toggle_trace(&mut self, path: &Path, places: &Places, data: &Data) {
        if self.trace.is_some() {
            return self.end_trace(places);
        }
        match Trace::begin(path, clock::seconds(), &data.points) {
            Ok(trace) => self.trace = Some(trace),
            Err(error) => self.said = format!("cannot write {}: {error}", path.display()),
        }
    }

    fn end_trace(&mut self, places: &Places) {
        let Some(trace) = self.trace.take() else { return };
        let path = trace.path().display().to_string();
        self.said = match trace.end(places, clock::seconds()) {
            Ok(()) => format!("recorded to {path}"),
            Err(error) => format!("cannot write {path}: {error}"),
        };
    }
}

/// Runs `weir top`.
///
/// # Errors
/// No gateway runs here, or standard output is no terminal.
pub fn run(args: &TopArgs) -> Result<ExitCode> {
    if !io::stdout().is_terminal() {
        bail!("`weir top` draws in a terminal; for scripts there is `weir status --json`");
    }
    let places = Places { run_folders: args.run_dir.clone(), stores: args.store.clone() };
    if look(&places, &Board::default()) == 0 {
        bail!(
            "no gateway answers in {:?} (--run-dir); is one running, and are you root or in the \
               group of `[store]`?",
            args.run_dir
        );
    }
    let mut terminal = ratatui::try_init().context("cannot draw in this terminal")?;
    let done = watch(&mut terminal, &places, &args.trace);
    ratatui::restore();
    done.map(|()| ExitCode::SUCCESS)
}

fn watch(terminal: &mut ratatui::DefaultTerminal, places: &Places, trace: &Path) -> Result<()> {
    let board = Board::default();
    let mut choice = Choice {
        view: View::Talkers,
        gateway: None,
        first_row: 0,
        is_paused: false,
        trace: None,
        said: String::new(),
    };
    let mut data = Data::default();
    let (mut looked, mut asked) = (None::<Instant>, None::<Instant>);
    let is_due = |at: Option<Instant>, every| at.is_none_or(|at| at.elapsed() >= every);
    loop {
        if !choice.is_paused && is_due(looked, LOOK_EVERY) {
            look(places, &board);
            looked = Some(clock::now());
            data.points = board.listen().0;
            data.statuses = board.statuses();
            if let Some(trace) = &mut choice.trace {
                trace.add(&data.points);
            }
        }
        if !choice.is_paused && is_due(asked, ASK_EVERY) {
            data.ask(choice.view, places);
            asked = Some(clock::now());
        }
        terminal.draw(|frame| screen::draw(frame, &data, &choice))?;
        if !event::poll(LOOK_EVERY / 2)? {
            continue;
        }
        let Event::Key(key) = event::read()? else { continue };
        if key.kind != KeyEventKind::Press {
            continue;
        }
        let is_control_c =
            key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
        if is_control_c || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) {
            choice.end_trace(places);
            return Ok(());
        }
        if key.code == KeyCode::Char('r') {
            choice.toggle_trace(trace, places, &data);
        }
        let before = choice.view;
        press(key.code, &mut choice, &data);
        if choice.view != before {
            asked = None;
        }
    }
}

fn press(key: KeyCode, choice: &mut Choice, data: &Data) {
    let turn_to = |choice: &mut Choice, view| (choice.view, choice.first_row) = (view, 0);
    match key {
        KeyCode::Char(digit @ '1'..='5') => {
            turn_to(choice, View::ALL[usize::from(digit as u8 - b'1')]);
        }
        KeyCode::Tab => turn_to(choice, choice.view.next()),
        KeyCode::Up => choice.first_row = choice.first_row.saturating_sub(1),
        KeyCode::Down => choice.first_row += 1,
        KeyCode::PageUp => choice.first_row = choice.first_row.saturating_sub(10),
        KeyCode::PageDown => choice.first_row += 10,
        KeyCode::Char('p') => choice.is_paused = !choice.is_paused,
        KeyCode::Char('g') => {
            let names: Vec<&String> = data.statuses.iter().map(|it| &it.name).collect();
            let own = choice.gateway.as_ref().and_then(|it| names.iter().position(|n| *n == it));
            let next = own.map_or(0, |own| own + 1);
            choice.gateway = names.get(next).map(|it| (*it).clone());
            choice.first_row = 0;
        }
        _ => {}
    }
}

/// Looks at each gateway; how many answered.
fn look(places: &Places, board: &Board) -> usize {
    let mut answered = 0;
    for socket in places.sockets().values() {
        if let Ok(status) = published(socket) {
            board.note(status);
            answered += 1;
        }
    }
    // Gateways without a store tell it by their control sockets, to root.
    for folder in &places.run_folders {
        let Ok(entries) = std::fs::read_dir(folder) else { continue };
        for path in entries.flatten().map(|it| it.path()) {
            let is_control = path.extension().is_some_and(|it| it == "sock");
            if is_control
                && !path.with_extension("status").exists()
                && let Ok(status) = told(&path)
            {
                board.note(status);
                answered += 1;
            }
        }
    }
    answered
}

/// What the gateway behind a status socket published last.
fn published(socket: &Path) -> io::Result<Status> {
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut text = Vec::new();
    stream.take(STATUS_BYTES_MAX).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

fn told(socket: &Path) -> Result<Status> {
    match socket::ask(socket, &Request::Status)? {
        Response::Status(snapshot) => Ok(serde_json::from_value(serde_json::to_value(snapshot)?)?),
        _ => bail!("the gateway answers another question"),
    }
}

/// The points of the chosen gateway, or of all.
fn chosen<'p>(points: &'p [Point], choice: &'p Choice) -> impl Iterator<Item = &'p Point> {
    let is_chosen = |it: &&Point| choice.gateway.as_ref().is_none_or(|name| *name == it.gateway);
    points.iter().filter(is_chosen)
}
