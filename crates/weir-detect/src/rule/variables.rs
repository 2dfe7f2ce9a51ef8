//! Variables of rules, and the groups that name them: `[$HOME_NET,!10.0.0.1]`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::ranges::{Ranges, address_range, port_range};
use crate::hosts::Hosts;

/// How deep groups and variables may stand in each other.
const DEPTH_MAX: usize = 32;

/// What `$NAME` stands for in rules: addresses and ports, in the language of rule headers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Variables {
    /// Such as `HOME_NET`.
    pub addresses: BTreeMap<String, String>,
    /// Such as `HTTP_PORTS`.
    pub ports: BTreeMap<String, String>,
    /// What the hosts are, where that is known (`host-os-policy`).
    pub hosts: Hosts,
    /// Sets of values that rules name and need say nothing else of: `NAME, type string, load FILE`.
    pub sets: Vec<String>,
}

impl Default for Variables {
    /// Those of Suricata's own configuration.
    fn default() -> Self {
        let own = |list: &[(&str, &str)]| {
            list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        Self {
            addresses: own(&[
                ("HOME_NET", "[192.168.0.0/16,10.0.0.0/8,172.16.0.0/12]"),
                ("EXTERNAL_NET", "!$HOME_NET"),
                ("HTTP_SERVERS", "$HOME_NET"),
                ("SMTP_SERVERS", "$HOME_NET"),
                ("SQL_SERVERS", "$HOME_NET"),
                ("DNS_SERVERS", "$HOME_NET"),
                ("TELNET_SERVERS", "$HOME_NET"),
                ("AIM_SERVERS", "$EXTERNAL_NET"),
                ("DC_SERVERS", "$HOME_NET"),
                ("DNP3_SERVER", "$HOME_NET"),
                ("DNP3_CLIENT", "$HOME_NET"),
                ("MODBUS_CLIENT", "$HOME_NET"),
                ("MODBUS_SERVER", "$HOME_NET"),
                ("ENIP_CLIENT", "$HOME_NET"),
                ("ENIP_SERVER", "$HOME_NET"),
            ]),
            hosts: Hosts::default(),
            sets: Vec::new(),
            ports: own(&[
                ("HTTP_PORTS", "80"),
                ("SHELLCODE_PORTS", "!80"),
                ("ORACLE_PORTS", "1521"),
                ("SSH_PORTS", "22"),
                ("DNP3_PORTS", "20000"),
                ("MODBUS_PORTS", "502"),
                ("FILE_DATA_PORTS", "[$HTTP_PORTS,110,143]"),
                ("FTP_PORTS", "21"),
                ("GENEVE_PORTS", "6081"),
                ("VXLAN_PORTS", "4789"),
                ("TEREDO_PORTS", "3544"),
                ("SIP_PORTS", "[5060, 5061]"),
            ]),
        }
    }
}

/// Reads groups, each text once: rules share what they name alike.
#[derive(Debug)]
pub(crate) struct Groups<'a> {
    variables: &'a Variables,
    known: HashMap<(bool, String), Arc<Ranges>>,
}

impl<'a> Groups<'a> {
    pub(crate) fn new(variables: &'a Variables) -> Self {
        Self { variables, known: HashMap::new() }
    }

    /// The addresses that `text` names.
    pub(crate) fn addresses(&mut self, text: &str) -> Result<Arc<Ranges>, String> {
        self.group(text, true)
    }

    /// The ports that `text` names.
    pub(crate) fn ports(&mut self, text: &str) -> Result<Arc<Ranges>, String> {
        self.group(text, false)
    }

    fn group(&mut self, text: &str, is_address: bool) -> Result<Arc<Ranges>, String> {
        let key = (is_address, text.to_owned());
        if let Some(known) = self.known.get(&key) {
            return Ok(known.clone());
        }
        let ranges = Arc::new(self.read(text, is_address, 0)?);
        if ranges.is_empty() {
            return Err(format!("`{text}` names nothing"));
        }
        self.known.insert(key, ranges.clone());
        Ok(ranges)
    }

    fn read(&self, text: &str, is_address: bool, depth: usize) -> Result<Ranges, String> {
        let text = text.trim();
        if depth > DEPTH_MAX {
            return Err(format!("`{text}`: groups deeper than {DEPTH_MAX}"));
        }
        if let Some(negated) = text.strip_prefix('!') {
            return Ok(self.read(negated, is_address, depth + 1)?.complement());
        }
        if let Some(name) = text.strip_prefix('$') {
            let table = if is_address { &self.variables.addresses } else { &self.variables.ports };
            let value = table.get(name).ok_or_else(|| format!("no variable `${name}`"))?;
            return self.read(value, is_address, depth + 1);
        }
        if let Some(list) = text.strip_prefix('[') {
            let list = list.strip_suffix(']').ok_or_else(|| format!("`{text}` has no end"))?;
            return self.list(list, is_address, depth);
        }
        if text.contains(',') {
            return self.list(text, is_address, depth);
        }
        if text.eq_ignore_ascii_case("any") {
            return Ok(Ranges::all());
        }
        let range = if is_address { address_range(text) } else { port_range(text) };
        range.ok_or_else(|| {
            let what = if is_address { "an address" } else { "a port" };
            format!("`{text}` is not {what}")
        })
    }

    /// What the members name that are not negated (all, if there is none), without the others.
    fn list(&self, list: &str, is_address: bool, depth: usize) -> Result<Ranges, String> {
        let (mut inside, mut outside) = (Ranges::default(), Ranges::default());
        let mut only_negated = true;
        for member in members(list) {
            if let Some(negated) = member.strip_prefix('!') {
                outside = outside.union(&self.read(negated, is_address, depth + 1)?);
            } else if !member.is_empty() {
                only_negated = false;
                inside = inside.union(&self.read(member, is_address, depth + 1)?);
            }
        }
        if only_negated {
            inside = Ranges::all();
        }
        Ok(inside.without(&outside))
    }
}

/// The members of a list, those of inner lists left together.
fn members(list: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    list.split(move |character| {
        match character {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        character == ',' && depth == 0
    })
    .map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::ranges::number;

    fn contains(text: &str, address: &str) -> bool {
        let variables = Variables::default();
        let ranges = Groups::new(&variables).addresses(text).unwrap();
        ranges.contains(number(address.parse().unwrap()))
    }

    #[test]
    fn groups_nest_and_negate() {
        assert!(contains("$HOME_NET", "10.1.1.1") && !contains("$HOME_NET", "11.1.1.1"));
        assert!(!contains("$EXTERNAL_NET", "10.1.1.1") && contains("$EXTERNAL_NET", "8.8.8.8"));
        assert!(contains("[$EXTERNAL_NET,!8.8.8.8]", "8.8.8.9"));
        assert!(!contains("[$EXTERNAL_NET,!8.8.8.8]", "8.8.8.8"));
        assert!(contains("![8.8.8.8,[1.1.1.1,!1.1.1.2]]", "1.1.1.2"));
        assert!(contains("[!8.8.8.8]", "8.8.8.9"), "nothing but negations is all but those");
    }

    #[test]
    fn wrong_groups_say_what_is_wrong() {
        let mut variables = Variables::default();
        variables.addresses.insert("LOOP".into(), "$LOOP".into());
        let mut groups = Groups::new(&variables);
        for (wrong, says) in [
            ("$NO_SUCH", "no variable"),
            ("[10.0.0.1", "no end"),
            ("!any", "names nothing"),
            ("$LOOP", "deeper"),
            ("10.0.0.300", "not an address"),
        ] {
            assert!(groups.addresses(wrong).unwrap_err().contains(says), "{wrong}");
        }
        assert!(groups.ports("70000").unwrap_err().contains("not a port"));
        assert!(groups.ports("[80,!$HTTP_PORTS]").is_err());
        assert!(groups.ports("!$HTTP_PORTS").unwrap().contains(81));
    }
}
