//! Who is blocked and who is always let through: what `weir block` and `weir allow` change, kept in
//! the state directory over a restart.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Serialize};
use weir_engine::plain::{BLOCKS_MAX, Block, Blocks};
use weir_engine::policy;
use weir_store::clock;
use weir_wire::frame::Time;

use crate::api::blocks::{AllowedEntry, BlockEntry, BlocksRequest, BlocksSnapshot};
use crate::config::address::Prefix;

/// What all gateways of a directory shared, before each had its own: read where that is not there.
const SHARED: &str = "blocks.json";
/// Between two looks whether a change is in force.
const LOOK: Duration = Duration::from_millis(5);
const NS_PER_S: u64 = 1_000_000_000;

/// The lists, and the file that keeps them.
#[derive(Debug)]
pub struct BlockBook {
    path: PathBuf,
    shared: Arc<Blocks>,
    blocks: Vec<(StoredBlock, Arc<Block>)>,
    allowed: Vec<AllowedEntry>,
}

/// A block as the file has it.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct StoredBlock {
    prefix: Prefix,
    since_ns: u64,
    until_ns: Option<u64>,
    #[serde(default)]
    reason: String,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Lists {
    blocks: Vec<StoredBlock>,
    allowed: Vec<AllowedEntry>,
}

impl BlockBook {
    /// The file of a gateway, by its name: several may share a state directory.
    pub fn path(state_dir: &Path, gateway: &str) -> PathBuf {
        state_dir.join(format!("blocks-{gateway}.json"))
    }

    /// The file that is read at first: an older version's, as long as the gateway has none.
    pub fn source(state_dir: &Path, gateway: &str) -> PathBuf {
        let own = Self::path(state_dir, gateway);
        if own.exists() { own } else { state_dir.join(SHARED) }
    }

    /// Reads what `state_dir` keeps for a gateway.
    ///
    /// # Errors
    /// The file exists but cannot be read. A start without it would silently lift its blocks.
    pub fn open(state_dir: &Path, gateway: &str) -> io::Result<Self> {
        let path = Self::path(state_dir, gateway);
        let lists = match fs::read(Self::source(state_dir, gateway)) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Lists::default(),
            Err(error) => return Err(error),
        };
        let blocks = lists.blocks.into_iter().map(|kept| (kept.clone(), kept.block())).collect();
        let book = Self { path, shared: Arc::default(), blocks, allowed: lists.allowed };
        book.publish();
        Ok(book)
    }

    /// What workers look at.
    pub fn shared(&self) -> &Arc<Blocks> {
        &self.shared
    }

    /// Does what is asked, and says how the lists stand.
    ///
    /// What the disk cannot keep is in force nonetheless, with a warning: until the next start.
    ///
    /// # Errors
    /// What is to be removed is not there, or a list is full: then nothing changed.
    pub fn answer(&mut self, request: &BlocksRequest) -> Result<BlocksSnapshot> {
        let now = clock::time().0;
        self.drop_expired(now);
        if *request == BlocksRequest::List {
            return Ok(self.snapshot(now));
        }
        let before = (self.blocks.clone(), self.allowed.clone());
        let mut changed = self.change(request, now);
        if changed.is_ok() && self.blocks.len() + self.allowed.len() > BLOCKS_MAX {
            changed = Err(anyhow!("the lists are full: {BLOCKS_MAX} entries"));
        }
        if let Err(error) = changed {
            (self.blocks, self.allowed) = before;
            return Err(error);
        }
        let warning = self.write().err().map(|error| format!("{error:#}: until the next start"));
        self.publish();
        Ok(BlocksSnapshot { warning, ..self.snapshot(now) })
    }

    fn change(&mut self, request: &BlocksRequest, now: u64) -> Result<()> {
        let held = (self.blocks.len(), self.allowed.len());
        match request {
            BlocksRequest::List => {}
            BlocksRequest::Block { prefix, ttl_s, reason, force } => {
                if prefix.length_bits() == 0 && !force {
                    bail!(
                        "{prefix} is everybody: nothing would pass; --force blocks it all the same"
                    );
                }
                let until_ns = ttl_s.map(|it| now.saturating_add(it.saturating_mul(NS_PER_S)));
                let kept = StoredBlock {
                    prefix: *prefix,
                    since_ns: now,
                    until_ns,
                    reason: reason.clone(),
                };
                self.blocks.retain(|(known, _)| known.prefix != *prefix);
                let block = kept.block();
                self.blocks.push((kept, block));
            }
            BlocksRequest::Unblock { prefix } => {
                self.blocks.retain(|(known, _)| known.prefix != *prefix);
                if self.blocks.len() == held.0 {
                    bail!("{prefix} is not blocked: `weir block list` says what is");
                }
            }
            BlocksRequest::Allow { prefix, reason, force } => {
                if prefix.length_bits() == 0 && !force {
                    bail!(
                        "{prefix} is everybody: no block and no rule would drop anything; --force \
                         allows it all the same"
                    );
                }
                self.allowed.retain(|known| known.prefix != *prefix);
                let reason = reason.clone();
                self.allowed.push(AllowedEntry { prefix: *prefix, since_ns: now, reason });
            }
            BlocksRequest::Disallow { prefix } => {
                self.allowed.retain(|known| known.prefix != *prefix);
                if self.allowed.len() == held.1 {
                    bail!("{prefix} is not on the allow list: `weir allow list` says what is");
                }
            }
            BlocksRequest::All { requests } => {
                for request in requests {
                    if matches!(request, BlocksRequest::All { .. } | BlocksRequest::List) {
                        bail!("`all` has changes of single prefixes alone");
                    }
                    self.change(request, now)?;
                }
            }
        }
        Ok(())
    }

    /// Forgets what is over; workers look at the time themselves.
    fn drop_expired(&mut self, now: u64) {
        let held = self.blocks.len();
        self.blocks.retain(|(kept, _)| kept.until_ns.is_none_or(|until| now < until));
        if self.blocks.len() < held {
            self.publish();
        }
    }

    /// Waits, at most for `patience`, until the kernel drops what the last change says.
    pub fn wait_until_in_force(&self, patience: Duration) {
        let begun = clock::now();
        while !self.shared.are_followed() && begun.elapsed() < patience {
            std::thread::sleep(LOOK);
        }
    }

    /// Forgets what is over, where something may be: to be called every second or so.
    pub fn tick(&mut self) {
        self.drop_expired(clock::time().0);
    }

    fn publish(&self) {
        let blocks: Vec<_> = self.blocks.iter().map(|(_, block)| Arc::clone(block)).collect();
        let allowed: Vec<_> = self.allowed.iter().map(|it| engine_prefix(it.prefix)).collect();
        self.shared.replace(&blocks, &allowed);
    }

    fn write(&self) -> Result<()> {
        let blocks = self.blocks.iter().map(|(kept, _)| kept.clone()).collect();
        let lists = Lists { blocks, allowed: self.allowed.clone() };
        let new = self.path.with_extension("json.new");
        let write = || -> io::Result<()> {
            let mut options = fs::OpenOptions::new();
            let mut file =
                options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
            file.write_all(&serde_json::to_vec_pretty(&lists)?)?;
            file.sync_all()?;
            fs::rename(&new, &self.path)
        };
        let written = write().inspect_err(|_| _ = fs::remove_file(&new));
        written.with_context(|| format!("cannot keep {}", self.path.display()))
    }

    fn snapshot(&self, now: u64) -> BlocksSnapshot {
        let blocks = self.blocks.iter().map(|(kept, block)| {
            let [packets, bytes] = block.dropped();
            BlockEntry {
                prefix: kept.prefix,
                since_ns: kept.since_ns,
                seconds_left: kept.until_ns.map(|it| it.saturating_sub(now).div_ceil(NS_PER_S)),
                reason: kept.reason.clone(),
                packets,
                bytes,
            }
        });
        let (blocks, allowed) = (blocks.collect(), self.allowed.clone());
        BlocksSnapshot { blocks, allowed, warning: None }
    }
}

fn engine_prefix(prefix: Prefix) -> policy::Prefix {
    policy::Prefix::new(prefix.network(), prefix.length_bits())
}

impl StoredBlock {
    fn block(&self) -> Arc<Block> {
        Arc::new(Block::new(engine_prefix(self.prefix), self.until_ns.map(Time)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(prefix: &str, ttl_s: Option<u64>) -> BlocksRequest {
        let prefix = prefix.parse().unwrap();
        BlocksRequest::Block { prefix, ttl_s, reason: "scan".into(), force: false }
    }

    fn allow(prefix: &str, force: bool) -> BlocksRequest {
        let prefix = prefix.parse().unwrap();
        BlocksRequest::Allow { prefix, reason: String::new(), force }
    }

    #[test]
    fn each_gateway_of_a_directory_has_its_own_and_begins_with_what_all_had() {
        let folder = tempfile::tempdir().unwrap();
        let mut one = BlockBook::open(folder.path(), "one").unwrap();
        one.answer(&block("192.0.2.1", None)).unwrap();
        let mut other = BlockBook::open(folder.path(), "other").unwrap();
        assert!(!other.shared().stop_anybody());
        other.answer(&block("192.0.2.2", None)).unwrap();
        fs::copy(BlockBook::path(folder.path(), "one"), folder.path().join(SHARED)).unwrap();
        for (name, expected) in [("one", "192.0.2.1"), ("other", "192.0.2.2"), ("new", "192.0.2.1")]
        {
            let mut book = BlockBook::open(folder.path(), name).unwrap();
            let lists = book.answer(&BlocksRequest::List).unwrap();
            let blocked: Vec<_> = lists.blocks.iter().map(|it| it.prefix.to_string()).collect();
            assert_eq!(blocked, [format!("{expected}/32")], "{name}");
        }
    }

    #[test]
    fn several_changes_are_one_or_none() {
        let folder = tempfile::tempdir().unwrap();
        let mut book = BlockBook::open(folder.path(), "gw").unwrap();
        let unblock = |prefix: &str| BlocksRequest::Unblock { prefix: prefix.parse().unwrap() };
        let mut ask = |requests: Vec<BlocksRequest>| {
            let answer = book.answer(&BlocksRequest::All { requests });
            answer.map(|it| it.blocks.len()).map_err(|it| it.to_string())
        };
        assert_eq!(ask(vec![block("192.0.2.1", None), block("192.0.2.2", None)]), Ok(2));
        let refused = ask(vec![block("192.0.2.3", None), unblock("192.0.2.9")]).unwrap_err();
        assert!(refused.contains("192.0.2.9/32 is not blocked"), "{refused}");
        assert_eq!(ask(vec![unblock("192.0.2.1")]), Ok(1), "the third was not blocked");
        assert!(ask(vec![BlocksRequest::List]).is_err());
    }

    #[test]
    fn what_cannot_be_kept_is_in_force_and_said() {
        let folder = tempfile::tempdir().unwrap();
        let mut book = BlockBook::open(folder.path(), "gw").unwrap();
        fs::create_dir(folder.path().join("blocks-gw.json.new")).unwrap();
        let lists = book.answer(&block("192.0.2.1", None)).unwrap();
        let warning = lists.warning.unwrap();
        assert!(warning.contains("cannot keep") && warning.contains("next start"), "{warning}");
        assert!(book.shared().stop_anybody());
    }

    #[test]
    fn everybody_is_allowed_by_force_alone() {
        let folder = tempfile::tempdir().unwrap();
        let mut book = BlockBook::open(folder.path(), "gw").unwrap();
        assert!(book.answer(&allow("0.0.0.0/0", false)).is_err());
        book.answer(&allow("0.0.0.0/0", true)).unwrap();
    }

    #[test]
    fn everybody_is_blocked_by_force_alone() {
        let folder = tempfile::tempdir().unwrap();
        let mut book = BlockBook::open(folder.path(), "gw").unwrap();
        for all in ["0.0.0.0/0", "::/0"] {
            let mut request = block(all, None);
            let why = book.answer(&request).unwrap_err().to_string();
            assert!(why.contains("is everybody"), "{why}");
            if let BlocksRequest::Block { force, .. } = &mut request {
                *force = true;
            }
            book.answer(&request).unwrap();
        }
        // What `weir serve` asks has no such word.
        let asked = r#"{"what":"block","prefix":"0.0.0.0/0","ttl_s":null,"reason":""}"#;
        let request: BlocksRequest = serde_json::from_str(asked).unwrap();
        assert!(book.answer(&request).is_err());
    }

    #[test]
    fn lists_outlive_a_restart_and_what_is_over_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let mut book = BlockBook::open(folder.path(), "gw").unwrap();
        assert!(!book.shared().stop_anybody());
        book.answer(&block("192.0.2.0/24", None)).unwrap();
        book.answer(&block("2001:db8::7", Some(0))).unwrap();
        let allow = allow("192.0.2.9", false);
        book.answer(&allow).unwrap();
        drop(book);
        let mut book = BlockBook::open(folder.path(), "gw").unwrap();
        let lists = book.answer(&BlocksRequest::List).unwrap();
        assert_eq!((lists.blocks.len(), lists.allowed.len()), (1, 1));
        assert_eq!(lists.blocks[0].prefix.to_string(), "192.0.2.0/24");
        assert_eq!((lists.blocks[0].seconds_left, lists.blocks[0].reason.as_str()), (None, "scan"));
        let unknown = BlocksRequest::Unblock { prefix: "192.0.2.7".parse().unwrap() };
        assert!(book.answer(&unknown).unwrap_err().to_string().contains("not blocked"));
        fs::write(BlockBook::path(folder.path(), "gw"), "{").unwrap();
        assert!(BlockBook::open(folder.path(), "gw").is_err(), "no block is lost silently");
    }
}
