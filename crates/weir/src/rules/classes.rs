//! Classes of rules (`classtype`): those that are known without a file, and those that files have.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Result, bail};
use weir_detect::{Classes, RuleIndex, RuleSet};

/// Names that are told of at once.
const NAMED_MAX: usize = 10;

/// The classes of Suricata's classification.config (name, description, priority), by whose
/// descriptions those who read alerts filter: many rules name one and come without that file.
const BUILT_IN: &str = "\
attempted-admin,Attempted Administrator Privilege Gain,1
attempted-user,Attempted User Privilege Gain,1
command-and-control,Malware Command and Control Activity Detected,1
credential-theft,Successful Credential Theft Detected,1
domain-c2,Domain Observed Used for C2 Detected,1
exploit-kit,Exploit Kit Activity Detected,1
inappropriate-content,Inappropriate Content was Detected,1
policy-violation,Potential Corporate Privacy Violation,1
shellcode-detect,Executable code was detected,1
successful-admin,Successful Administrator Privilege Gain,1
successful-user,Successful User Privilege Gain,1
targeted-activity,Targeted Malicious Activity was Detected,1
trojan-activity,A Network Trojan was detected,1
unsuccessful-user,Unsuccessful User Privilege Gain,1
web-application-attack,Web Application Attack,1
attempted-dos,Attempted Denial of Service,2
attempted-recon,Attempted Information Leak,2
bad-unknown,Potentially Bad Traffic,2
coin-mining,Crypto Currency Mining Activity Detected,2
default-login-attempt,Attempt to login by a default username and password,2
denial-of-service,Detection of a Denial of Service Attack,2
external-ip-check,Device Retrieving External IP Address Detected,2
misc-attack,Misc Attack,2
non-standard-protocol,Detection of a non-standard protocol or event,2
pup-activity,Possibly Unwanted Program Detected,2
rpc-portmap-decode,Decode of an RPC Query,2
social-engineering,Possible Social Engineering Attempted,2
successful-dos,Denial of Service,2
successful-recon-largescale,Large Scale Information Leak,2
successful-recon-limited,Information Leak,2
suspicious-filename-detect,A suspicious filename was detected,2
suspicious-login,An attempted login using a suspicious username was detected,2
system-call-detect,A system call was detected,2
unusual-client-port-connection,A client was using an unusual port,2
web-application-activity,access to a potentially vulnerable web application,2
icmp-event,Generic ICMP event,3
misc-activity,Misc activity,3
network-scan,Detection of a Network Scan,3
not-suspicious,Not Suspicious Traffic,3
protocol-command-decode,Generic Protocol Command Decode,3
string-detect,A suspicious string was detected,3
unknown,Unknown Traffic,3
tcp-connection,A TCP connection was detected,4
";

/// The classes that are known without a file.
pub(crate) fn built_in() -> Classes {
    let mut classes = Classes::default();
    for line in BUILT_IN.lines() {
        classes.read(&format!("config classification: {line}"));
    }
    classes
}

/// Reads the classes of a file.
///
/// # Errors
/// It has lines, and none says what a class is.
pub(super) fn read(text: &str, path: &Path, classes: &mut Classes) -> Result<()> {
    let mut lines = text.lines().map(str::trim);
    let is_empty = lines.all(|it| it.is_empty() || it.starts_with('#'));
    if classes.read(text) == 0 && !is_empty {
        bail!(
            "{}: no line of it is `config classification: NAME,DESCRIPTION,PRIORITY`",
            path.display()
        );
    }
    Ok(())
}

/// What is said of rules whose classes nobody knows; `None`: there is none.
pub(super) fn unknown(rules: &RuleSet, classes: &Classes) -> Option<String> {
    let all = (0..rules.len() as u32).map(|it| rules.rule(RuleIndex(it)));
    let named: BTreeSet<&str> =
        all.map(|it| it.class.as_str()).filter(|it| !it.is_empty() && !classes.knows(it)).collect();
    if named.is_empty() {
        return None;
    }
    let mut words = named.iter().take(NAMED_MAX).copied().collect::<Vec<_>>().join(", ");
    if named.len() > NAMED_MAX {
        words += &format!(" and {} others", named.len() - NAMED_MAX);
    }
    Some(format!("classtype without a class, so that severity is 3: {words}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_class_is_refused_and_an_empty_one_is_not() {
        let mut classes = Classes::default();
        let mut read = |text: &str| read(text, Path::new("c"), &mut classes);
        read("# nothing yet\n\n").unwrap();
        read("config classification: mine,My own,2\nrubbish\n").unwrap();
        for wrong in ["rubbish\n", "config classification: mine\n", "\u{1}\u{2}"] {
            assert!(read(wrong).unwrap_err().to_string().starts_with("c: no line of it is"));
        }
    }
}
