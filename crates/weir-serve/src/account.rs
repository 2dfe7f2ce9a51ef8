//! Users and groups by name, and becoming one of them.
//!
//! Names are looked up in /etc/passwd and /etc/group; accounts of a directory service are given by
//! number.

use std::fs;
use std::io;

use rustix::process::{Gid, Uid};
use rustix::thread;

/// Why there is no such account.
#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    /// The file has no such name.
    #[error("there is no {kind} `{name}` in {file}; make it, or give its number")]
    Unknown {
        /// `user` or `group`.
        kind: &'static str,
        /// What was asked for.
        name: String,
        /// Where it was looked for.
        file: &'static str,
    },
    /// The kernel refuses.
    #[error("cannot become user {user}: {error}; start as root, or as that user")]
    Refused {
        /// Its number.
        user: u32,
        /// What the kernel says.
        error: io::Error,
    },
}

/// Who to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    /// User number.
    pub user: u32,
    /// Group number.
    pub group: u32,
}

/// The number of a group, by name or number.
///
/// # Errors
/// [`AccountError::Unknown`].
pub fn group(name: &str) -> Result<u32, AccountError> {
    let text = fs::read_to_string("/etc/group").unwrap_or_default();
    find_group(&text, name)
}

/// `USER` or `USER:GROUP`, each by name or number; a user's own group is that of /etc/passwd.
///
/// # Errors
/// [`AccountError::Unknown`].
pub fn account(text: &str) -> Result<Account, AccountError> {
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let (user, named_group) = match text.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (text, None),
    };
    let line = passwd.lines().map(|it| it.split(':').collect::<Vec<_>>());
    let known = line.filter(|it| it.len() > 3).find(|it| it[0] == user || it[2] == user);
    // The last number means nobody: the kernel leaves who asks for it as it is.
    let number = |text: &str| text.parse::<u32>().ok().filter(|it| *it != u32::MAX);
    let user_number = known.as_ref().and_then(|it| number(it[2])).or_else(|| number(user));
    let file = "/etc/passwd";
    let unknown = || AccountError::Unknown { kind: "user", name: user.to_owned(), file };
    let user_number = user_number.ok_or_else(unknown)?;
    let own_group = known.as_ref().and_then(|it| number(it[3]));
    let group_number = match (named_group, own_group) {
        (Some(name), _) => group(name)?,
        (None, Some(own)) => own,
        (None, None) => return Err(unknown()),
    };
    Ok(Account { user: user_number, group: group_number })
}

fn find_group(text: &str, name: &str) -> Result<u32, AccountError> {
    let lines = text.lines().map(|it| it.split(':').collect::<Vec<_>>());
    let mut known = lines.filter(|it| it.len() > 2 && it[0] == name);
    let number = known.next().and_then(|it| it[2].parse().ok()).or_else(|| name.parse().ok());
    let number = number.filter(|it| *it != u32::MAX);
    let file = "/etc/group";
    number.ok_or_else(|| AccountError::Unknown { kind: "group", name: name.to_owned(), file })
}

/// Whether this process is root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Becomes `account` for good: all user and group numbers are set, other groups given up. Call it
/// before the process has other threads: the kernel changes only the one that calls.
///
/// # Errors
/// [`AccountError::Refused`].
pub fn become_account(account: Account) -> Result<(), AccountError> {
    let Account { user, group } = account;
    let change = || -> rustix::io::Result<()> {
        let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(group));
        thread::set_thread_groups(&[])?;
        thread::set_thread_res_gid(gid, gid, gid)?;
        thread::set_thread_res_uid(uid, uid, uid)?;
        if rustix::process::geteuid() != uid {
            return Err(rustix::io::Errno::PERM);
        }
        thread::set_no_new_privs(true)
    };
    change().map_err(|error| AccountError::Refused { user, error: error.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_found_by_name_and_by_number() {
        let text = "root:x:0:\nweir:x:998:alice\n";
        assert_eq!(find_group(text, "weir").unwrap(), 998);
        assert_eq!(find_group(text, "64").unwrap(), 64);
        assert!(find_group(text, "nobody-here").unwrap_err().to_string().contains("/etc/group"));
    }

    #[test]
    fn a_number_without_a_known_group_needs_one() {
        assert_eq!(account("64999:64998").unwrap(), Account { user: 64999, group: 64998 });
        assert!(account("64999").is_err());
        // What leaves a process as it is, root, is no account.
        assert!(account("4294967295:64998").is_err() && account("64999:4294967295").is_err());
        assert_eq!(account("root").unwrap(), Account { user: 0, group: 0 });
    }
}
