//! Keywords to what they mean, one after the other as a rule writes them.

use super::bytes::{self, Names};
use super::digests::DigestLists;
use super::header::{self, HeaderTest};
use super::hook::{self, Hook};
use super::state::{self, BitNames, FlowTest, StreamSize, Threshold};
use super::step::{ByteOrder, Content, Fast, Step, TextTest, Value};
use super::syntax::{Setting, quoted, unquoted};
use super::{
    Absence, BitTest, Buffer, BufferKey, BufferTest, MessageTest, Numbers, Protocol, Spoken, Tag,
    Transform, UnitTest, Untold, content, pcre, relative, transforms,
};
use crate::alert::TextScope;
use crate::buffers::event::AppEvent;
use crate::countries::Countries;
use crate::dataset::{Definitions, Texts};
use crate::reputation::Reputation;

/// Why a rule is not run: the keyword, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) keyword: String,
    pub(crate) reason: String,
}

impl Refused {
    pub(crate) fn new(keyword: &str, reason: impl Into<String>) -> Self {
        Self { keyword: keyword.to_owned(), reason: reason.into() }
    }
}

/// What rules refer to that does not stand in them.
#[derive(Debug)]
pub(super) struct Known<'a> {
    pub(super) reputation: &'a Reputation,
    pub(super) countries: Option<&'a Countries>,
    /// Sets that rules have named so far.
    pub(super) datasets: Definitions,
    /// Lists of digests, likewise.
    pub(super) digests: DigestLists,
    /// The text of files.
    pub(super) files: Texts<'a>,
}

/// What the options of a rule have said so far.
#[derive(Debug, Default)]
pub(super) struct Collected {
    /// What the rule's header says of the protocol.
    pub(super) protocol: Option<Protocol>,
    pub(super) generator: Option<u32>,
    pub(super) sid: Option<u32>,
    pub(super) revision: u32,
    pub(super) message: String,
    pub(super) class: String,
    pub(super) priority: Option<u32>,
    pub(super) metadata: Vec<(String, String)>,
    pub(super) references: Vec<(String, String)>,
    pub(super) target: Option<String>,
    pub(super) flow: FlowTest,
    pub(super) tests: Vec<HeaderTest>,
    pub(super) buffers: Vec<BufferTest>,
    pub(super) bits: Vec<BitTest>,
    pub(super) stream_sizes: Vec<StreamSize>,
    pub(super) threshold: Option<Threshold>,
    pub(super) texts: Vec<TextTest>,
    pub(super) filter: Option<Threshold>,
    pub(super) is_silent: bool,
    pub(super) tags: Vec<Tag>,
    pub(super) tells_pass: bool,
    pub(super) flow_counts: Vec<state::FlowCount>,
    pub(super) bypasses: bool,
    pub(super) untold: Option<Untold>,
    pub(super) spoken: Vec<Spoken>,
    pub(super) messages: Vec<MessageTest>,
    pub(super) units: Vec<UnitTest>,
    pub(super) app_events: Vec<AppEvent>,
    /// How far what is said must have come.
    pub(super) hook: Option<Hook>,
    /// It asks for numbers in the byte order of a DCE/RPC call, outside of its arguments.
    pub(super) is_of_calls: bool,
    /// It looks at all that a side says in that (`frame:P.stream`).
    pub(super) stream_of: Option<Protocol>,
    names: Names,
    /// Contents go to `sticky`, whose transforms may still come.
    pub(super) sticky: Option<Buffer>,
    /// Nothing was asked of `sticky` so far.
    is_idle: bool,
    /// Whose `sticky` is, where the rule says so.
    side: Option<usize>,
    transforms: Vec<Transform>,
    /// The buffer that holds the last content, for the keywords that change it.
    last: Option<usize>,
    /// Steps go behind `base64_data` of this buffer.
    in_base64: Option<usize>,
}

impl Collected {
    /// Of a rule whose header says that.
    pub(super) fn of(protocol: Option<Protocol>) -> Self {
        Self { protocol, ..Self::default() }
    }

    /// Takes one option in.
    pub(super) fn take(
        &mut self,
        option: &Setting<'_>,
        bits: &mut BitNames,
        known: &mut Known<'_>,
    ) -> Result<(), Refused> {
        let Setting { name, value } = *option;
        let refused = |reason: String| Refused::new(name, reason);
        if self.take_description(name, value).map_err(refused)?
            || self.take_content(name, value).map_err(refused)?
            || self.take_step(name, value, bits).map_err(refused)?
            || self.take_modifier(name, value).map_err(refused)?
            || self.take_state(name, value, bits).map_err(refused)?
            || self.take_spoken(name, value).map_err(refused)?
            || self.take_unit(name, value).map_err(refused)?
        {
            return Ok(());
        }
        if name == "iprep" {
            let test = known.reputation.test(value).map_err(refused)?;
            self.tests.push(HeaderTest::Reputation(test));
            return Ok(());
        }
        if name == "geoip" {
            const NONE: &str = "there is no database of countries: name one, `geoip` in [rules]";
            let countries = known.countries.ok_or_else(|| Refused::new(name, NONE))?;
            self.tests.push(HeaderTest::Country(countries.test(value).map_err(refused)?));
            return Ok(());
        }
        if matches!(name, "dataset" | "datarep") {
            let test = match name {
                "dataset" => known.datasets.dataset(value, known.files),
                _ => known.datasets.reputation(value, known.files),
            };
            if self.sticky.is_none() {
                return Err(Refused::new(name, "it needs a buffer before it"));
            }
            self.push(Step::Dataset(test.map_err(refused)?));
            return Ok(());
        }
        if let Some(test) = known.digests.test(name, value, known.files.beside) {
            self.units.push(test.map_err(refused)?);
            return Ok(());
        }
        let has_length = || self.tests.iter().any(|it| matches!(it, HeaderTest::PayloadLen { .. }));
        if name == "dsize" && has_length() {
            return Err(Refused::new(name, "said before: put it into one range"));
        }
        match header::test(name, value) {
            Some(test) => self.tests.push(test.map_err(refused)?),
            None => return Err(Refused::new(name, "this keyword is not known here")),
        }
        Ok(())
    }

    fn take_spoken(&mut self, name: &str, value: &str) -> Result<bool, String> {
        match name {
            "app-layer-protocol" => {
                let spoken = Spoken::parse(value)?;
                if self.protocol.is_some_and(Protocol::is_application) {
                    return Err("the rule's header says what is spoken".to_owned());
                }
                if self.spoken.iter().any(|it| it.conflicts(&spoken)) {
                    return Err(format!("`{value}` does not go with what was asked before"));
                }
                self.spoken.push(spoken);
            }
            "bypass" => self.bypasses = true,
            "requires" => super::requires::check(value)?,
            "config" => self.untold = Some(untold(value)?),
            "app-layer-event" => {
                let event = value.trim().to_ascii_lowercase();
                if event.starts_with("applayer_") {
                    self.tests.push(header::event(&event)?);
                } else {
                    let known = AppEvent::from_name(&event);
                    let unknown = || format!("`{event}` is not raised here");
                    self.app_events.push(known.ok_or_else(unknown)?);
                }
            }
            "app-layer-state" => self.hook = Some(hook::asked(self.protocol, value)?),
            "absent" => {
                let sticky = self.sticky.filter(|it| *it != Buffer::Payload);
                let buffer = sticky.ok_or("it needs a buffer before it")?;
                if !self.is_idle {
                    return Err("it stands first behind its buffer".to_owned());
                }
                let transforms = self.transforms.clone();
                let place = self.place(BufferKey { buffer, transforms });
                self.buffers[place].absence = match value {
                    "" => Absence::Wanted,
                    "or_else" => Absence::OrElse,
                    other => return Err(format!("`{other}` behind absent")),
                };
            }
            _ => match MessageTest::parse(name, value) {
                Some(test) => self.messages.push(test?),
                None => return Ok(false),
            },
        }
        Ok(true)
    }

    /// What is asked of numbers, and of files.
    fn take_unit(&mut self, name: &str, value: &str) -> Result<bool, String> {
        let (before, behind) = match name {
            "filename" => ("", false),
            "fileext" => (".", true),
            _ => {
                let before = self.units.len();
                self.units.extend(UnitTest::parse(name, value).transpose()?);
                return Ok(self.units.len() > before);
            }
        };
        let (is_negated, text) = unquoted(value);
        let mut content = content::parse(&format!("\"{before}{text}\""))?;
        content.is_negated = is_negated;
        (content.is_nocase, content.ends) = (true, behind);
        self.push_into(Buffer::FileName, Step::Content(content));
        Ok(true)
    }

    /// Keywords that stand for a content of one buffer.
    fn take_content(&mut self, name: &str, value: &str) -> Result<bool, String> {
        let buffer = match name {
            "tls.subject" => Buffer::TlsSubject,
            "tls.issuerdn" => Buffer::TlsIssuer,
            "tls.fingerprint" => Buffer::TlsFingerprint,
            "ssh.softwareversion" => Buffer::SshSoftware,
            "ssh.protoversion" => {
                self.push_into(Buffer::SshProtocol, protocol_version(value)?);
                return Ok(true);
            }
            _ => return Ok(false),
        };
        self.push_into(buffer, Step::Content(content::parse(value)?));
        Ok(true)
    }

    fn take_step(&mut self, name: &str, value: &str, bits: &mut BitNames) -> Result<bool, String> {
        let step = match name {
            "content" | "uricontent" => {
                if quoted(value).is_none() {
                    return Err("a content stands in quotes, with nothing behind them".to_owned());
                }
                let step = Step::Content(content::parse(value)?);
                match name {
                    "uricontent" => self.push_into(Buffer::HttpUri, step),
                    _ => self.push(step),
                }
                return Ok(true);
            }
            "pcre" => {
                self.take_pcre(value, bits)?;
                return Ok(true);
            }
            "isdataat" => {
                let step = bytes::is_data_at(value, &self.names)?;
                if self.ends_last_content(&step) {
                    return Ok(true);
                }
                step
            }
            "byte_test" => bytes::byte_test(value, &self.names)?,
            "byte_jump" => bytes::byte_jump(value, &self.names)?,
            "byte_extract" => bytes::byte_extract(value, &mut self.names)?,
            "byte_math" => bytes::byte_math(value, &mut self.names)?,
            "asn1" => Step::Asn1(super::asn1::Asn1Test::parse(value)?),
            "entropy" => bytes::entropy(value)?,
            "bsize" => Step::Size(Numbers::parse(value, 64)?),
            "urilen" => {
                self.push_beside(bytes::uri_length(value)?);
                return Ok(true);
            }
            "base64_decode" => {
                self.push_base64(bytes::base64(value)?);
                return Ok(true);
            }
            "base64_data" => {
                let is_decode =
                    |it: &BufferTest| matches!(it.steps.last(), Some(Step::Base64 { .. }));
                let place = self.buffers.iter().rposition(is_decode);
                self.in_base64 = Some(place.ok_or("base64_data without base64_decode")?);
                return Ok(true);
            }
            _ => return Ok(false),
        };
        let is_math = matches!(&step, Step::ByteMath { read, .. } if read.is_relative);
        if is_math && self.is_in_buffer() && !relative::has_text(self.steps()) {
            return Err("nothing comes before it in the same buffer".to_owned());
        }
        if relative::order(&step) == Some(ByteOrder::OfCall) {
            self.take_order(matches!(step, Step::ByteExtract { .. }))?;
        }
        // Without a buffer named before, what is relative counts from the last content, wherever
        // that was said to stand.
        match self.last {
            Some(place)
                if relative::is_relative(&step)
                    && self.sticky.is_none()
                    && self.in_base64.is_none() =>
            {
                self.buffers[place].steps.push(step);
            }
            _ => self.push(step),
        }
        Ok(true)
    }

    fn take_pcre(&mut self, value: &str, bits: &mut BitNames) -> Result<(), String> {
        let (expression, buffer) = pcre::parse(value, &mut self.names, bits)?;
        if expression.is_relative && !self.may_follow(buffer.unwrap_or(Buffer::Payload)) {
            return Err("nothing comes before it in the same buffer".to_owned());
        }
        match buffer {
            Some(buffer) if self.sticky.is_none() => {
                self.push_into(buffer, Step::Pcre(expression));
            }
            Some(named)
                if named != Buffer::FileData
                    && self.sticky.is_some_and(|it| it != named && it != Buffer::Payload) =>
            {
                return Err("its flag names a buffer, and another is named before".to_owned());
            }
            _ => self.push(Step::Pcre(expression)),
        }
        Ok(())
    }

    /// Whether what follows is about what a keyword before has named.
    pub(super) fn is_in_buffer(&self) -> bool {
        self.sticky.is_some_and(|it| it != Buffer::Payload) || self.in_base64.is_some()
    }

    /// Whether there is something that an expression outside of such may follow.
    fn may_follow(&self, buffer: Buffer) -> bool {
        let mut same = self.buffers.iter().filter(|it| it.key.buffer == buffer);
        self.is_in_buffer() || same.any(|it| relative::has_text(&it.steps))
    }

    /// `content:"x"; isdataat:!1,relative;` is `endswith`, and moves with its content; behind a
    /// negated one too, which then may stand anywhere but at the end.
    fn ends_last_content(&mut self, step: &Step) -> bool {
        let is_end = matches!(
            step,
            Step::IsDataAt { at: Value::Fixed(1), is_relative: true, is_negated: true }
        );
        let last = self.last.filter(|_| is_end && self.in_base64.is_none());
        match last.and_then(|place| self.buffers[place].steps.last_mut()) {
            Some(Step::Content(content)) => {
                content.ends = true;
                true
            }
            _ => false,
        }
    }

    fn take_modifier(&mut self, name: &str, value: &str) -> Result<bool, String> {
        let buffer = match name {
            "frame" => Some(self.frame(value)?),
            _ => Buffer::from_name(name),
        };
        if let Some(buffer) = buffer {
            self.leave_sticky()?;
            (self.sticky, self.is_idle) = (Some(buffer), true);
            self.side = match (value, buffer) {
                ("", _) | (_, Buffer::Frame(_)) => None,
                _ if name == "frame" => None,
                ("to_server", Buffer::FileData | Buffer::FileName) => Some(0),
                ("to_client", Buffer::FileData | Buffer::FileName) => Some(1),
                _ => return Err(format!("`{value}` behind {name}")),
            };
            self.transforms.clear();
            (self.last, self.in_base64) = (None, None);
            return Ok(true);
        }
        if let Some(buffer) = Buffer::from_modifier(name) {
            self.move_last(buffer)?;
            return Ok(true);
        }
        if name == "replace" {
            self.replace(value)?;
            return Ok(true);
        }
        if let Some(transform) = transforms::parse(name, value)? {
            if self.sticky.is_none() {
                return Err("a transform without a buffer".to_owned());
            }
            self.transforms.push(transform);
            return Ok(true);
        }
        let mut of_payload = self.buffers.iter().filter(|it| it.key.buffer == Buffer::Payload);
        let is_chosen = |it: &Step| matches!(it, Step::Content(it) if it.fast != Fast::Free);
        if name == "fast_pattern" && of_payload.any(|it| it.steps.iter().any(is_chosen)) {
            return Err("one content of the payload is it already: leave it at one".to_owned());
        }
        let names = self.names.clone();
        let named = |text: &str, most| match names.within(text, most)? {
            Value::Fixed(it) if it < 0 && name == "offset" => Err(format!("`{text}`: below 0")),
            value => Ok(Some(value)),
        };
        let last = match name {
            "nocase" | "offset" | "depth" | "distance" | "within" | "startswith" | "endswith"
            | "fast_pattern" => self.last_content()?,
            _ => return Ok(false),
        };
        match name {
            "nocase" if last.is_nocase => return Err(TWICE.to_owned()),
            "startswith" | "depth" if last.starts => return Err(TWICE.to_owned()),
            "startswith" if last.depth.is_some() => return Err(TWICE.to_owned()),
            "nocase" => last.is_nocase = true,
            "offset" => put(&mut last.offset, named(value, u16::MAX.into())?)?,
            "depth" => put(&mut last.depth, named(value, u16::MAX.into())?)?,
            "distance" => put(&mut last.distance, named(value, DISTANCE_MAX)?)?,
            "within" => put(&mut last.within, named(value, DISTANCE_MAX)?)?,
            "startswith" => last.starts = true,
            "endswith" => last.ends = true,
            _ => content::set_fast(last, value)?,
        }
        Ok(true)
    }

    fn take_state(
        &mut self,
        name: &str,
        value: &str,
        names: &mut BitNames,
    ) -> Result<bool, String> {
        let bit = match name {
            "flow" => {
                let (flow, fragments) = state::flow(value)?;
                if self.tests.iter().any(|it| matches!(it, HeaderTest::Rebuilt(_))) {
                    return Err("said before: put all of it into one".to_owned());
                }
                self.flow.and(flow)?;
                self.tests.extend(fragments.map(HeaderTest::Rebuilt));
                return Ok(true);
            }
            "tcp.session" => {
                self.flow.phases = Some(state::Phases::parse(value)?);
                return Ok(true);
            }
            "stream_size" => {
                self.stream_sizes.push(state::stream_size(value)?);
                return Ok(true);
            }
            _ if name.starts_with("flow.") => match state::flow_count(name, value) {
                Some(count) => {
                    self.flow_counts.push(count?);
                    return Ok(true);
                }
                None => return Ok(false),
            },
            "threshold" | "detection_filter" if self.has_threshold() => {
                return Err("the rule has a threshold or a filter".to_owned());
            }
            "threshold" => {
                self.threshold = Some(state::threshold(value, false)?);
                return Ok(true);
            }
            "detection_filter" => {
                self.filter = Some(state::threshold(value, true)?);
                return Ok(true);
            }
            "flowvar" | "pktvar" => {
                let kept = if name == "flowvar" { TextScope::Flow } else { TextScope::Packet };
                self.texts.push(text(kept, value, names)?);
                return Ok(true);
            }
            "flowbits" => state::flow_bits(value, names)?,
            "xbits" => state::x_bits(value, names)?,
            "hostbits" => state::host_bits(value, names)?,
            "flowint" => Some(state::flow_integer(value, names)?),
            _ => return Ok(false),
        };
        match bit {
            Some(bit) => self.bits.push(bit),
            None => self.is_silent = true,
        }
        Ok(true)
    }

    /// Whether a further threshold is refused: one behind an application's buffer is taken, as
    /// Suricata does, and the last counts.
    fn has_threshold(&self) -> bool {
        let is_of_packet = self.sticky.is_none_or(|it| it == Buffer::Payload);
        is_of_packet && (self.threshold.is_some() || self.filter.is_some())
    }

    /// Steps behind `base64_data` belong to what was decoded.
    fn steps(&mut self) -> &mut Vec<Step> {
        let place = match (self.in_base64, self.sticky) {
            (Some(place), _) => place,
            (None, Some(buffer)) => {
                let transforms = self.transforms.clone();
                self.place(BufferKey { buffer, transforms })
            }
            (None, None) => {
                self.place(BufferKey { buffer: Buffer::Payload, transforms: Vec::new() })
            }
        };
        self.last = Some(place);
        let steps = &mut self.buffers[place].steps;
        if self.in_base64.is_some() {
            let decode = steps.iter().rposition(|it| matches!(it, Step::Base64 { .. }));
            if let Some(at) = decode {
                let Step::Base64 { then, .. } = &mut steps[at] else { unreachable!("found above") };
                return then;
            }
        }
        steps
    }

    fn place(&mut self, key: BufferKey) -> usize {
        let side = self.side.filter(|_| self.sticky == Some(key.buffer));
        let is_first = self.sticky == Some(key.buffer) && std::mem::take(&mut self.is_idle);
        let known = self.buffers.iter().rposition(|it| it.key == key && it.side == side);
        // Named again, it is another of several.
        let is_other = is_first && crate::buffers::may_be_many(key.buffer);
        known.filter(|_| !is_other).unwrap_or_else(|| {
            let (steps, absence) = (Vec::new(), Absence::Fails);
            self.buffers.push(BufferTest { key, steps, absence, side });
            self.buffers.len() - 1
        })
    }

    /// A buffer that is named must be asked something.
    fn leave_sticky(&self) -> Result<(), String> {
        match self.sticky.filter(|it| self.is_idle && *it != Buffer::Payload) {
            Some(idle) => Err(format!("nothing is asked of {}", idle.name())),
            None => Ok(()),
        }
    }

    fn push(&mut self, step: Step) {
        self.steps().push(step);
    }

    /// Behind a content, in the buffer in which that stands.
    fn push_base64(&mut self, step: Step) {
        match self.last.filter(|_| self.sticky.is_none() && self.in_base64.is_none()) {
            Some(place) => self.buffers[place].steps.push(step),
            None => self.push(step),
        }
    }

    fn push_into(&mut self, buffer: Buffer, step: Step) {
        let place = self.place(BufferKey { buffer, transforms: Vec::new() });
        self.buffers[place].steps.push(step);
        self.last = Some(place);
    }

    /// The same where what follows is still about the content before it.
    fn push_beside(&mut self, (buffer, step): (Buffer, Step)) {
        let last = self.last;
        self.push_into(buffer, step);
        self.last = last.or(self.last);
    }

    /// `content:"x"; http_uri;`: the last content of the payload stands in that buffer.
    fn move_last(&mut self, buffer: Buffer) -> Result<(), String> {
        const NONE: &str = "no content before it";
        let payload = self.buffers.iter_mut().find(|it| it.key.buffer == Buffer::Payload);
        let steps = &mut payload.ok_or(NONE)?.steps;
        let is_content = |it: &Step| matches!(it, Step::Content(_));
        let step = steps.remove(steps.iter().rposition(is_content).ok_or(NONE)?);
        self.push_into(buffer, step);
        Ok(())
    }

    fn last_content(&mut self) -> Result<&mut Content, String> {
        let place = self.last.ok_or("no content before it")?;
        let mut steps = &mut self.buffers[place].steps;
        if self.in_base64.is_some()
            && let Some(at) = steps.iter().rposition(|it| matches!(it, Step::Base64 { .. }))
        {
            let Step::Base64 { then, .. } = &mut steps[at] else { unreachable!("found above") };
            steps = then;
        }
        match steps.iter_mut().rev().find(|it| matches!(it, Step::Content(_))) {
            Some(Step::Content(content)) => Ok(content),
            _ => Err("no content before it".to_owned()),
        }
    }

    /// What contradicts itself, and what only the whole rule tells: which steps lead others.
    pub(super) fn finish(&mut self) -> Result<(), Refused> {
        self.leave_sticky().map_err(|why| Refused::new("sticky buffer", why))?;
        self.buffers.retain(|it| !it.steps.is_empty() || it.absence != Absence::Fails);
        self.buffers.iter().try_for_each(check_absence)?;
        let payload = self.tests.iter().find_map(|it| match it {
            HeaderTest::PayloadLen { most, .. } => *most,
            _ => None,
        });
        for test in &mut self.buffers {
            relative::finish(&mut test.steps)?;
            content::spell(test);
            let sizes = test.steps.iter().filter_map(|it| match it {
                Step::Size(numbers) => numbers.most(),
                _ => None,
            });
            let is_payload = test.key.buffer == Buffer::Payload;
            let most = sizes.chain(payload.filter(|_| is_payload)).min();
            let has_room = |it: &Step| most.is_none_or(|most| relative::least(it) <= most);
            let of_all = payload.filter(|_| is_payload);
            let is_too_long =
                of_all.is_some_and(|most| relative::longest(&test.steps) > most as i64);
            if is_too_long || !test.steps.iter().all(has_room) {
                return Err(Refused::new("content", "it does not fit into so few bytes"));
            }
        }
        Ok(())
    }
}

/// How far a content is from the one before, at most.
const DISTANCE_MAX: i64 = 1 << 20;

/// What contradicts itself in what is said of a buffer that may be absent.
fn check_absence(test: &BufferTest) -> Result<(), Refused> {
    let refused = |why: &str| Err(Refused::new("absent", why));
    let is_chosen = |it: &Step| matches!(it, Step::Content(it) if it.fast != Fast::Free);
    match test.absence {
        Absence::Wanted if !test.steps.is_empty() => refused("contents of what must not be there"),
        Absence::OrElse if test.steps.is_empty() => refused("or else what? it asks nothing else"),
        Absence::OrElse if test.steps.iter().any(is_chosen) => {
            refused("what need not be there is no fast pattern")
        }
        _ => Ok(()),
    }
}

/// Why a content's place is refused.
const TWICE: &str = "said before of the same content";

/// What is said of a content once.
fn put(said: &mut Option<Value>, value: Option<Value>) -> Result<(), String> {
    match said.is_some() {
        true => Err(TWICE.to_owned()),
        false => {
            *said = value;
            Ok(())
        }
    }
}

/// Whether a content may be the rule's fast pattern, and how good it is as one.
pub(super) fn fast_rank(content: &Content) -> Option<(u8, usize)> {
    let chosen = u8::from(content.fast != Fast::Free);
    (!content.is_negated).then_some((chosen, content.bytes.len()))
}

/// `ssh.protoversion:2_compat`: that version, or what servers say that speak the one before too.
fn protocol_version(value: &str) -> Result<Step, String> {
    let version = unquoted(value).1.trim();
    if version == "2_compat" {
        const TWO: &str = "\"/^(?:2|1\\.99)/\"";
        let (expression, _) = pcre::parse(TWO, &mut Names::default(), &mut BitNames::default())?;
        return Ok(Step::Pcre(expression));
    }
    let is_version = |it: u8| it.is_ascii_digit() || it == b'.';
    if version.is_empty() || !version.bytes().all(is_version) {
        return Err(format!("`{version}` is no version of SSH"));
    }
    let content = content::parse(version)?;
    Ok(Step::Content(Content { starts: true, ends: true, ..content }))
}

/// `config:logging disable, type tx, scope tx`; `tracking` means the same to Suricata 8.0.7.
fn untold(value: &str) -> Result<Untold, String> {
    let mut words: Vec<&str> = value.split(',').map(str::trim).collect();
    words.iter_mut().filter(|it| **it == "tracking disable").for_each(|it| *it = "logging disable");
    match words.as_slice() {
        ["logging disable", "type flow", "scope flow"] => Ok(Untold::Flow),
        ["logging disable", "type tx", "scope tx"] => Ok(Untold::Transaction),
        _ => Err(format!("`{value}` behind config")),
    }
}

/// `flowvar:name,"text"`
fn text(kept: TextScope, value: &str, names: &mut BitNames) -> Result<TextTest, String> {
    let (name, content) = value.split_once(',').ok_or("a name and a content are missing")?;
    Ok(TextTest { kept, name: names.text(name), content: content::parse(content)? })
}
