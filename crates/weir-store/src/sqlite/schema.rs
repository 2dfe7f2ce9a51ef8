//! The tables, and how a file of an earlier version becomes one of this version.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use rustix::fs::{Gid, chown};
use rustix::process::geteuid;

use super::files::Files;
use super::writer::StoreOptions;

/// Version of the tables that this program writes; [`MIGRATIONS`] has a step for each.
pub const SCHEMA_VERSION: i64 = MIGRATIONS.len() as i64;

/// `weir` in ASCII: tells our files from other people's (SQLite's `application_id`).
pub(super) const APPLICATION_ID: i64 = 0x7765_6972;

/// Of a folder that is made for the store.
const FOLDER_MODE: u32 = 0o750;

/// SQLite's default page.
const PAGE_BYTES: u64 = 4096;

/// What is left of the write-ahead log after a checkpoint, bytes.
const WAL_BYTES: u64 = 16 << 20;

/// Each step makes version N + 1 of version N. A released step is never changed.
const MIGRATIONS: &[&str] = &[
    "
    CREATE TABLE pair (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
    CREATE TABLE flow (
        id INTEGER PRIMARY KEY, started_ns INTEGER NOT NULL, last_ns INTEGER NOT NULL,
        pair INTEGER NOT NULL, protocol INTEGER NOT NULL,
        source BLOB NOT NULL, source_port INTEGER NOT NULL,
        destination BLOB NOT NULL, destination_port INTEGER NOT NULL,
        vlan INTEGER NOT NULL, side TEXT, packets INTEGER NOT NULL, bytes INTEGER NOT NULL,
        reply_packets INTEGER NOT NULL, reply_bytes INTEGER NOT NULL,
        tcp_flags INTEGER NOT NULL, congestion_marks INTEGER NOT NULL,
        fast_packets INTEGER NOT NULL, reason TEXT NOT NULL);
    CREATE INDEX flow_last ON flow (last_ns);
    CREATE TABLE conversation (
        id INTEGER PRIMARY KEY, started_ns INTEGER NOT NULL, last_ns INTEGER NOT NULL,
        pair INTEGER NOT NULL, encapsulation TEXT NOT NULL, service TEXT NOT NULL,
        source BLOB NOT NULL, source_qp INTEGER, destination BLOB NOT NULL,
        destination_qp INTEGER NOT NULL, vlan INTEGER NOT NULL, partition_key INTEGER NOT NULL,
        path_mtu INTEGER NOT NULL, side TEXT, packets INTEGER NOT NULL, bytes INTEGER NOT NULL,
        payload_bytes INTEGER NOT NULL, messages INTEGER NOT NULL,
        reply_packets INTEGER NOT NULL, reply_bytes INTEGER NOT NULL,
        reply_payload_bytes INTEGER NOT NULL, reply_messages INTEGER NOT NULL,
        send_bytes INTEGER NOT NULL, write_bytes INTEGER NOT NULL, read_bytes INTEGER NOT NULL,
        atomic_bytes INTEGER NOT NULL, retransmissions INTEGER NOT NULL, naks INTEGER NOT NULL,
        rnr_naks INTEGER NOT NULL, cnp INTEGER NOT NULL, congestion_marks INTEGER NOT NULL,
        missing INTEGER NOT NULL, icrc_bad INTEGER NOT NULL, response_ns INTEGER,
        reason TEXT NOT NULL);
    CREATE INDEX conversation_last ON conversation (last_ns);
    CREATE TABLE talk (
        resolution_s INTEGER NOT NULL, time_s INTEGER NOT NULL, pair INTEGER NOT NULL,
        kind TEXT NOT NULL, a BLOB NOT NULL, b BLOB NOT NULL,
        a_packets INTEGER NOT NULL, a_bytes INTEGER NOT NULL,
        b_packets INTEGER NOT NULL, b_bytes INTEGER NOT NULL,
        PRIMARY KEY (resolution_s, time_s, pair, kind, a, b)) WITHOUT ROWID;
    CREATE TABLE scope (
        id INTEGER PRIMARY KEY, pair TEXT NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL,
        UNIQUE (pair, kind, name));
    CREATE TABLE counter_name (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
    CREATE TABLE counter (
        resolution_s INTEGER NOT NULL, time_s INTEGER NOT NULL, scope INTEGER NOT NULL,
        name INTEGER NOT NULL, value INTEGER NOT NULL,
        PRIMARY KEY (resolution_s, time_s, scope, name)) WITHOUT ROWID;
    CREATE TABLE peer_state (
        id INTEGER PRIMARY KEY, time_ns INTEGER NOT NULL, pair TEXT NOT NULL, peer TEXT NOT NULL,
        state TEXT NOT NULL, endpoint TEXT);
    CREATE TABLE event (
        id INTEGER PRIMARY KEY, time_ns INTEGER NOT NULL, who TEXT NOT NULL, what TEXT NOT NULL,
        outcome TEXT NOT NULL);
",
    "
    CREATE TABLE alert (
        id INTEGER PRIMARY KEY, time_ns INTEGER NOT NULL, pair TEXT NOT NULL,
        sid INTEGER NOT NULL, severity INTEGER NOT NULL, action TEXT NOT NULL,
        signature TEXT NOT NULL, category TEXT NOT NULL, protocol TEXT NOT NULL,
        source BLOB NOT NULL, source_port INTEGER NOT NULL,
        destination BLOB NOT NULL, destination_port INTEGER NOT NULL, event TEXT NOT NULL);
    CREATE INDEX alert_time ON alert (time_ns);
",
    "
    CREATE TABLE label (
        first BLOB NOT NULL, last BLOB NOT NULL, length_bits INTEGER NOT NULL,
        host TEXT, tenant TEXT, job TEXT, rail TEXT);
",
    "
    CREATE TABLE alert_note (
        alert INTEGER PRIMARY KEY, note_time_ns INTEGER NOT NULL, who TEXT NOT NULL,
        is_acknowledged INTEGER NOT NULL, comment TEXT NOT NULL);
",
    "
    ALTER TABLE flow ADD COLUMN source_peer TEXT;
    ALTER TABLE flow ADD COLUMN destination_peer TEXT;
",
    "
    ALTER TABLE conversation ADD COLUMN asked INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE conversation ADD COLUMN reply_asked INTEGER NOT NULL DEFAULT 0;
",
    "
    ALTER TABLE flow ADD COLUMN exporter TEXT;
    ALTER TABLE conversation ADD COLUMN exporter TEXT;
",
    // Hours of before the records go over to the sums by address; the rest is added up anew.
    "
    CREATE TABLE rollup (
        slice_s INTEGER NOT NULL, dimension INTEGER NOT NULL, time_s INTEGER NOT NULL,
        key BLOB NOT NULL, records INTEGER NOT NULL, packets INTEGER NOT NULL,
        bytes INTEGER NOT NULL, reply_packets INTEGER NOT NULL, reply_bytes INTEGER NOT NULL,
        retransmissions INTEGER NOT NULL, naks INTEGER NOT NULL, response_ns INTEGER NOT NULL,
        PRIMARY KEY (slice_s, dimension, time_s, key)) WITHOUT ROWID;
    CREATE TABLE rollup_state (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
    INSERT INTO rollup_state (name, value)
        SELECT 'until_3600', coalesce(min(first_s / 3600 * 3600),
            (SELECT max(time_s) + 3600 FROM talk WHERE resolution_s = 3600), 0)
        FROM (SELECT min(last_ns) / 1000000000 AS first_s FROM flow
              UNION ALL SELECT min(last_ns) / 1000000000 FROM conversation);
    INSERT INTO rollup_state (name, value) SELECT 'until_60', value FROM rollup_state;
    INSERT INTO rollup_state (name, value)
        SELECT 'until_600', value FROM rollup_state WHERE name = 'until_60';
    INSERT INTO rollup (slice_s, dimension, time_s, key, records, packets, bytes, reply_packets,
                        reply_bytes, retransmissions, naks, response_ns)
        SELECT 3600, 0, time_s, unhex(tag || hex(address)), count(*), sum(packets), sum(bytes),
            sum(reply_packets), sum(reply_bytes), 0, 0, 0
        FROM (SELECT time_s, kind, a AS address, a_packets AS packets, a_bytes AS bytes,
                     b_packets AS reply_packets, b_bytes AS reply_bytes
              FROM talk WHERE resolution_s = 3600
              UNION ALL SELECT time_s, kind, b, b_packets, b_bytes, a_packets, a_bytes
              FROM talk WHERE resolution_s = 3600)
        JOIN (SELECT 'rdma' AS name, '00' AS tag UNION ALL SELECT 'tcp', '01'
              UNION ALL SELECT 'udp', '02' UNION ALL SELECT 'icmp', '03'
              UNION ALL SELECT 'other', '04') ON name = kind
        WHERE time_s < (SELECT value FROM rollup_state WHERE name = 'until_3600')
        GROUP BY time_s, tag, address;
    DROP TABLE talk;
",
    "
    ALTER TABLE conversation ADD COLUMN source_peer TEXT;
    ALTER TABLE conversation ADD COLUMN destination_peer TEXT;
",
    "
    CREATE TABLE stretch (
        id INTEGER PRIMARY KEY, from_s INTEGER NOT NULL, until_s INTEGER NOT NULL);
",
    "
    CREATE TABLE suppression (
        id INTEGER PRIMARY KEY, sid INTEGER NOT NULL, first BLOB NOT NULL, last BLOB NOT NULL,
        since_ns INTEGER NOT NULL, until_ns INTEGER NOT NULL, who TEXT NOT NULL,
        reason TEXT NOT NULL);
    CREATE INDEX suppression_sid ON suppression (sid);
",
    // Blocks are made of the records by and by; one goes with the first of its records.
    "
    CREATE TABLE flow_block (
        first_id INTEGER PRIMARY KEY, last_id INTEGER NOT NULL, first_ns INTEGER NOT NULL,
        last_ns INTEGER NOT NULL, columns BLOB NOT NULL);
    CREATE INDEX flow_block_span ON flow_block (last_ns, first_ns, last_id);
    CREATE TRIGGER flow_removed AFTER DELETE ON flow BEGIN
        DELETE FROM flow_block WHERE last_id >= OLD.id AND first_id =
            (SELECT max(first_id) FROM flow_block WHERE first_id <= OLD.id);
    END;
    CREATE TABLE conversation_block (
        first_id INTEGER PRIMARY KEY, last_id INTEGER NOT NULL, first_ns INTEGER NOT NULL,
        last_ns INTEGER NOT NULL, columns BLOB NOT NULL);
    CREATE INDEX conversation_block_span ON conversation_block (last_ns, first_ns, last_id);
    CREATE TRIGGER conversation_removed AFTER DELETE ON conversation BEGIN
        DELETE FROM conversation_block WHERE last_id >= OLD.id AND first_id =
            (SELECT max(first_id) FROM conversation_block WHERE first_id <= OLD.id);
    END;
",
    "
    CREATE TABLE alert_number (next INTEGER NOT NULL);
    INSERT INTO alert_number SELECT coalesce(max(id), 0) + 1 FROM alert;
",
];

/// Why a store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The folder or the file.
    #[error(
        "cannot use {path}: {error}; check the folder, the disk, and who may read it (`[store] \
         group`)"
    )]
    Io {
        /// Which.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// A program after this one wrote it.
    #[error(
        "{path} has schema {found}, this program knows {SCHEMA_VERSION}: a newer Weir wrote it. \
         Use that one, or move the file aside; nothing is stored until then"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
    },
    /// A database of something else.
    #[error("{0} is a database of another program; give `[store] path` a file of its own")]
    Foreign(PathBuf),
    /// Another process writes it.
    #[error(
        "{0} is written by another gateway or `weir collect`: give each a store of its own \
         (`[store] path`, `--store`); nothing is stored until then"
    )]
    Taken(PathBuf),
    /// It waits for its log to be read, where no file can be made.
    #[error(
        "{0} cannot be read here: what came last stands in {0}-wal, and that needs a file {0}-shm. \
         Copy both to a folder that you may write to, and read them there"
    )]
    Unfinished(PathBuf),
    /// SQLite refuses.
    #[error("{path}: {error}")]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// What it says.
        error: rusqlite::Error,
    },
}

impl StoreError {
    /// Whether the file's bytes are no database any more.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Sqlite { error, .. } if is_damage(error))
    }
}

/// Whether SQLite says that the file is damaged.
pub(super) fn is_damage(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error_code();
    matches!(code, Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}

/// Opens the file of `options`, makes it where there is none, and brings it to this version. The
/// claim to it is to be kept for as long as the connection.
pub(super) fn open(options: &StoreOptions) -> Result<(Connection, Files), StoreError> {
    let StoreOptions { path, group, retention, .. } = options;
    let io_failed = |error| StoreError::Io { path: path.clone(), error };
    let is_new = prepare(path, *group).map_err(io_failed)?;
    let mut files = Files::claim(path)?;
    // Not before: who may read what another writes is the other's to say.
    open_to(path, *group, is_new).map_err(io_failed)?;
    let failed = |error| StoreError::Sqlite { path: path.clone(), error };
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags).map_err(failed)?;
    let found = version(&connection, path)?;
    configure(&connection, retention.size_bytes_max).map_err(failed)?;
    migrate(&mut connection, found).map_err(failed)?;
    super::rollup::advance::records_removed(&connection).map_err(failed)?;
    files.note_log(path);
    Ok((connection, files))
}

/// The schema of the file at `path`; zero: it is empty.
pub(super) fn version(connection: &Connection, path: &Path) -> Result<i64, StoreError> {
    let failed = |error| StoreError::Sqlite { path: path.to_owned(), error };
    let number = |pragma: &str| {
        connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0)).map_err(failed)
    };
    let tables = "SELECT count(*) FROM sqlite_schema";
    let tables: i64 = connection.query_row(tables, [], |row| row.get(0)).map_err(failed)?;
    let (application, found) = (number("application_id")?, number("user_version")?);
    if application != APPLICATION_ID && (tables > 0 || application != 0) {
        return Err(StoreError::Foreign(path.to_owned()));
    }
    if found > SCHEMA_VERSION {
        return Err(StoreError::Newer { path: path.to_owned(), found });
    }
    Ok(found)
}

/// The folder that the file lies in.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes the folder and the file where there are none; whether they are new.
fn prepare(path: &Path, group: Option<u32>) -> io::Result<bool> {
    let folder = folder_of(path);
    let is_new = !path.exists();
    if !folder.exists() {
        fs::create_dir_all(folder)?;
        fs::set_permissions(folder, fs::Permissions::from_mode(FOLDER_MODE))?;
        share(folder, group)?;
    }
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    Ok(is_new)
}

/// Lets `group`, or nobody, read the files, and the folder if the store makes such.
fn open_to(path: &Path, group: Option<u32>, is_new: bool) -> io::Result<()> {
    let folder = folder_of(path);
    if !is_new && is_own(folder)? {
        // It was made before there was this group.
        share(folder, group)?;
    }
    // SQLite gives -wal and -shm the owner, group and mode of the file beside them, when it makes
    // them.
    let mode = if group.is_some() { 0o640 } else { 0o600 };
    for end in ["", "-wal", "-shm"] {
        let file = beside(path, end);
        if end.is_empty() || file.exists() {
            share(&file, group)?;
            fs::set_permissions(&file, fs::Permissions::from_mode(mode))?;
        }
    }
    Ok(())
}

/// Whether a folder is as [`prepare`] makes one: others' are left alone.
fn is_own(folder: &Path) -> io::Result<bool> {
    let found = fs::metadata(folder)?;
    Ok(found.uid() == geteuid().as_raw() && found.mode() & 0o7777 == FOLDER_MODE)
}

fn share(path: &Path, group: Option<u32>) -> io::Result<()> {
    match group {
        Some(group) if fs::metadata(path)?.gid() != group => {
            Ok(chown(path, None, Some(Gid::from_raw(group)))?)
        }
        _ => Ok(()),
    }
}

fn configure(connection: &Connection, size_bytes_max: u64) -> rusqlite::Result<()> {
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "journal_size_limit", WAL_BYTES as i64)?;
    connection.pragma_update(None, "max_page_count", (size_bytes_max / PAGE_BYTES) as i64)?;
    // Who may only read cannot make -wal and -shm: they stay when the gateway has ended.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    // Memory of the thread, in KiB.
    connection.pragma_update(None, "cache_size", -8192)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(())
}

fn migrate(connection: &mut Connection, found: i64) -> rusqlite::Result<()> {
    for (step, sql) in MIGRATIONS.iter().enumerate().skip(found as usize) {
        let transaction = connection.transaction()?;
        transaction.execute_batch(sql)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", step as i64 + 1)?;
        transaction.commit()?;
    }
    Ok(())
}

/// Renames a damaged file, and what SQLite keeps beside it, to `FILE.damaged`, over an earlier one.
pub(super) fn move_aside(path: &Path) -> io::Result<PathBuf> {
    let aside = beside(path, ".damaged");
    for end in ["-wal", "-shm", ""] {
        match fs::rename(beside(path, end), beside(&aside, end)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let _ = fs::remove_file(beside(&aside, end));
            }
            renamed => renamed?,
        }
    }
    Ok(aside)
}

/// What SQLite keeps beside the file at `path`, by the end of its name.
pub(super) fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_that_comes_later_may_read_what_is_there_and_others_folders_stay_as_they_are() {
        if !geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store/gw-a.sqlite");
        let ready = |group: Option<u32>| {
            let is_new = prepare(&path, group).unwrap();
            open_to(&path, group, is_new).unwrap();
        };
        ready(None);
        let all = || ["", "-wal", "-shm"].map(|end| beside(&path, end));
        all().iter().skip(1).for_each(|it| fs::write(it, "").unwrap());
        ready(Some(4242));
        let store = folder.path().join("store");
        assert_eq!(fs::metadata(&store).unwrap().gid(), 4242);
        for file in all() {
            let found = fs::metadata(&file).unwrap();
            assert_eq!((found.gid(), found.mode() & 0o777), (4242, 0o640), "{}", file.display());
        }
        fs::set_permissions(&store, fs::Permissions::from_mode(0o755)).unwrap();
        ready(Some(4343));
        assert_eq!(fs::metadata(&store).unwrap().gid(), 4242);
        assert_eq!(fs::metadata(&path).unwrap().gid(), 4343);
    }

    #[test]
    fn who_does_not_get_a_store_leaves_it_to_its_readers() {
        let folder = tempfile::tempdir().unwrap();
        let options = StoreOptions {
            path: folder.path().join("gw-a.sqlite"),
            group: Some(rustix::process::getegid().as_raw()),
            retention: crate::sqlite::Retention {
                size_bytes_max: 1 << 20,
                records_s: 60,
                minutes_s: 60,
                hours_s: 60,
            },
        };
        let _open = open(&options).unwrap();
        let other = StoreOptions { group: None, ..options };
        assert!(matches!(open(&other), Err(StoreError::Taken(_))));
        assert_eq!(fs::metadata(&other.path).unwrap().mode() & 0o777, 0o640);
    }
}
