//! Variables of rules, and the groups that name them: `[$HOME_NET,!10.0.0.1]`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::ranges::{Ranges, address_range, port_range};
use crate::hosts::Hosts;

/// How deep groups may stand in each other.
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
    /// Rules may have sets of values kept in files (`datasets`: `rules`: `allow-write`).
    pub keeps_sets: bool,
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
            keeps_sets: true,
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

/// Reads groups and variables, each once: rules share what they name alike.
#[derive(Debug)]
pub(crate) struct Groups<'a> {
    known: HashMap<(bool, String), Read<Ranges>>,
    addresses: Known<'a>,
    ports: Known<'a>,
}

/// What a text names, or what is wrong with it.
type Read<T> = Result<Arc<T>, String>;

/// What a text names, and what it excepts. As in Suricata, members of inner lists and of variables
/// count as members of the list itself: of `[$A,10.0.0.1]`, what `$A` excepts is excepted from all.
#[derive(Clone, Debug, Default)]
struct Named {
    inside: Ranges,
    outside: Ranges,
}

/// Variables of one kind, and what those that were asked for name.
#[derive(Debug)]
struct Known<'a> {
    is_address: bool,
    texts: &'a BTreeMap<String, String>,
    read: HashMap<&'a str, Read<Named>>,
}

impl<'a> Groups<'a> {
    pub(crate) fn new(variables: &'a Variables) -> Self {
        let known = |texts, is_address| Known { is_address, texts, read: HashMap::new() };
        Self {
            known: HashMap::new(),
            addresses: known(&variables.addresses, true),
            ports: known(&variables.ports, false),
        }
    }

    /// The addresses that `text` names.
    pub(crate) fn addresses(&mut self, text: &str) -> Result<Arc<Ranges>, String> {
        self.group(text, true)
    }

    /// The ports that `text` names.
    pub(crate) fn ports(&mut self, text: &str) -> Result<Arc<Ranges>, String> {
        self.group(text, false)
    }

    /// Whether addresses are excepted in what `text` names, by itself or by its variables.
    pub(crate) fn excepts(&self, text: &str) -> bool {
        let mut seen = HashSet::new();
        let mut waiting = vec![text];
        while let Some(text) = waiting.pop() {
            if text.contains('!') {
                return true;
            }
            let named = names(text).filter(|it| seen.insert(*it));
            waiting.extend(named.filter_map(|it| self.addresses.texts.get(it)).map(String::as_str));
        }
        false
    }

    fn group(&mut self, text: &str, is_address: bool) -> Read<Ranges> {
        let variables = if is_address { &mut self.addresses } else { &mut self.ports };
        let key = (is_address, text.to_owned());
        let read = self.known.entry(key).or_insert_with(|| {
            variables.read_named_in(text);
            let named = variables.read(text, 0)?;
            let ranges = if is_address { named.addresses() } else { named.ports() };
            match ranges.is_empty() {
                true => Err(format!("`{text}` names nothing")),
                false => Ok(Arc::new(ranges)),
            }
        });
        read.clone()
    }
}

impl Named {
    fn all() -> Self {
        Self { inside: Ranges::all(), outside: Ranges::default() }
    }

    /// Of each version of IP by itself: where nothing is named and something is excepted, all but
    /// that is meant.
    fn addresses(self) -> Ranges {
        let ipv4 = Ranges::of_ipv4();
        let ipv6 = ipv4.complement();
        if self.inside.is_all() && self.outside.is_empty() {
            return self.inside;
        }
        let of = |family: &Ranges| {
            let outside = self.outside.common(family);
            let inside = self.inside.common(family);
            match inside.is_empty() && !outside.is_empty() {
                true => family.without(&outside),
                false => inside.without(&outside),
            }
        };
        of(&ipv4).union(&of(&ipv6))
    }

    fn ports(self) -> Ranges {
        let Self { inside, outside } = self;
        if outside.is_empty() {
            return inside;
        }
        let inside = if inside.is_empty() { Ranges::all() } else { inside };
        let left = inside.without(&outside);
        let is_port = |it: (u128, u128)| it.0 <= u16::MAX.into();
        if left.iter().any(is_port) { left } else { Ranges::default() }
    }
}

impl<'a> Known<'a> {
    /// Reads the variables that `text` names, those first that others are made of. Names that
    /// stand for nothing are passed over.
    fn read_named_in(&mut self, text: &str) {
        // Those that wait for what they name: the name, and what is left of the names.
        let mut waiting: Vec<(&str, Vec<&str>)> = Vec::new();
        let mut open: HashSet<&str> = HashSet::new();
        for name in names(text) {
            let Some((name, text)) = self.unread(name) else { continue };
            open.insert(name);
            waiting.push((name, names(text).collect()));
            while let Some((name, left)) = waiting.last_mut() {
                let name = *name;
                if let Some(next) = left.pop() {
                    let Some((next, text)) = self.unread(next) else { continue };
                    match open.insert(next) {
                        true => waiting.push((next, names(text).collect())),
                        false => {
                            let why = format!("`${next}` is made of itself");
                            self.read.insert(name, Err(why));
                            left.clear();
                        }
                    }
                    continue;
                }
                if !self.read.contains_key(name) {
                    let read = self.read(&self.texts[name], 0).map(Arc::new);
                    self.read.insert(name, read);
                }
                open.remove(name);
                waiting.pop();
            }
        }
    }

    /// A variable that was not read, and what it is made of.
    fn unread(&self, name: &str) -> Option<(&'a str, &'a str)> {
        let (name, text) = self.texts.get_key_value(name)?;
        (!self.read.contains_key(name.as_str())).then_some((name, text))
    }

    /// What `text` names, of which the variables were read.
    fn read(&self, text: &str, depth: usize) -> Result<Named, String> {
        let text = text.trim();
        if depth > DEPTH_MAX {
            return Err(format!("`{text}`: groups deeper than {DEPTH_MAX}"));
        }
        if members(text).nth(1).is_some() {
            return self.list(text, depth);
        }
        if let Some(negated) = text.strip_prefix('!') {
            return self.negated(negated, depth);
        }
        if let Some(name) = text.strip_prefix('$') {
            let unknown = || Err(format!("no variable `${name}`"));
            let read = self.read.get(name).cloned().unwrap_or_else(unknown);
            return read.map(|it| Named::clone(&it));
        }
        if let Some(list) = text.strip_prefix('[') {
            let list = list.strip_suffix(']').ok_or_else(|| format!("`{text}` has no end"))?;
            return self.list(list, depth);
        }
        if text.eq_ignore_ascii_case("any") {
            return Ok(Named::all());
        }
        let range = if self.is_address { address_range(text) } else { port_range(text) };
        let inside = range.ok_or_else(|| {
            let what = if self.is_address { "an address" } else { "a port" };
            format!("`{text}` is not {what}")
        })?;
        Ok(Named { inside, ..Named::default() })
    }

    /// All but what `text` names: the addresses of an inner list are settled before they are
    /// excepted, as in Suricata.
    fn negated(&self, text: &str, depth: usize) -> Result<Named, String> {
        if !self.is_address {
            return self.negated_ports(text, depth);
        }
        let named = self.read(text, depth + 1)?;
        let outside = named.addresses();
        match outside.is_empty() {
            true => Err(format!("`{text}` names nothing")),
            false => Ok(Named { inside: Ranges::default(), outside }),
        }
    }

    /// All ports but those of a list, whether it names or excepts them; one that it excepts last is
    /// named: so it is in Suricata 8.0.7.
    fn negated_ports(&self, text: &str, depth: usize) -> Result<Named, String> {
        let text = text.trim();
        let named = text.strip_prefix('$').and_then(|it| self.texts.get(it));
        let text = named.map_or(text, |it| it.trim());
        let list = text.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(text);
        let mut all = Named::default();
        let list = list.trim();
        if list.is_empty() {
            return Ok(all);
        }
        let mut left = members(list.strip_suffix(',').unwrap_or(list)).peekable();
        while let Some(member) = left.next() {
            if member.is_empty() {
                return Err(format!("`{list}`: a member of the group is empty"));
            }
            let excepted = member.strip_prefix('!');
            let Named { inside, outside } = self.read(excepted.unwrap_or(member), depth + 1)?;
            let ports = inside.union(&outside);
            let is_named = excepted.is_some() && left.peek().is_none();
            let list = if is_named { &mut all.inside } else { &mut all.outside };
            *list = std::mem::take(list).union(&ports);
        }
        Ok(all)
    }

    /// What the members name and except. A comma may stand behind the last.
    fn list(&self, list: &str, depth: usize) -> Result<Named, String> {
        let list = list.trim();
        let list = list.strip_suffix(',').unwrap_or(list);
        let (mut inside, mut outside) = (Vec::new(), Vec::new());
        for member in members(list) {
            if member.is_empty() {
                return Err(format!("`{list}`: a member of the group is empty"));
            }
            let named = self.read(member, depth + 1)?;
            inside.extend(named.inside.iter());
            outside.extend(named.outside.iter());
        }
        Ok(Named { inside: Ranges::from(inside), outside: Ranges::from(outside) })
    }
}

/// The variables that a text names.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let parts = text.split([',', '[', ']', '!']);
    parts.filter_map(|it| it.trim().strip_prefix('$'))
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

    /// As Suricata 8.0.7 does: `!10.0.0.9` says nothing of IPv6.
    #[test]
    fn each_version_of_ip_is_named_by_itself() {
        const ADDRESSES: [&str; 4] = ["10.0.0.9", "192.0.2.9", "2001:db8::9", "2001:db8::8"];
        for (text, found) in [
            ("any", [1, 1, 1, 1]),
            ("0.0.0.0/0", [1, 1, 0, 0]),
            ("::/0", [0, 0, 1, 1]),
            ("[0.0.0.0/0,::/0]", [1, 1, 1, 1]),
            ("!10.0.0.9", [0, 1, 0, 0]),
            ("!$HOME_NET", [0, 1, 0, 0]),
            ("$EXTERNAL_NET", [0, 1, 0, 0]),
            ("!$EXTERNAL_NET", [1, 0, 0, 0]),
            ("!2001:db8::9", [0, 0, 0, 1]),
            ("[any,!10.0.0.9]", [0, 1, 1, 1]),
            ("[::/0,!10.0.0.9]", [0, 1, 1, 1]),
            ("[!10.0.0.9,!2001:db8::9]", [0, 1, 0, 1]),
            ("[!10.0.0.9,2001:db8::9]", [0, 1, 1, 0]),
            ("[10.0.0.9,!2001:db8::/32]", [1, 0, 0, 0]),
            ("![10.0.0.9,2001:db8::9]", [0, 1, 0, 1]),
            ("![!10.0.0.9]", [1, 0, 0, 0]),
            ("!10.0.0.0-10.255.255.255", [0, 1, 0, 0]),
            ("![10.0.0.0/8,!10.0.0.9]", [1, 1, 0, 0]),
            ("[any,![10.0.0.0/8,!10.0.0.9]]", [1, 1, 1, 1]),
            ("![2001:db8::/32,!2001:db8::9]", [0, 0, 1, 0]),
        ] {
            let holds = ADDRESSES.map(|it| u8::from(contains(text, it)));
            assert_eq!(holds, found, "{text}");
        }
    }

    /// As Suricata 8.0.7 does, which reads inner lists and variables as members of the list.
    #[test]
    fn what_leaves_nothing_is_refused() {
        let variables = Variables::default();
        let mut groups = Groups::new(&variables);
        for wrong in [
            "[$HOME_NET,$EXTERNAL_NET]",
            "!0.0.0.0/0",
            "!::/0",
            "[10.0.0.1,!10.0.0.0/8]",
            "![10.0.0.1,!10.0.0.0/8]",
            "!10.0.0.0/8,10.0.0.9",
        ] {
            assert!(groups.addresses(wrong).is_err(), "{wrong}");
        }
        // Suricata 8.0.7 has these so: what is excepted in a negated list is excepted, but for the
        // last, which is named.
        for (group, named) in [
            ("![80,!81,1024:2000]", &[1, 79, 82, 2001][..]),
            ("![!81,80]", &[1, 79, 82, 1024, 2000, 2001]),
            ("![80,1024:2000,!81]", &[81]),
            ("![!81,!80]", &[80]),
        ] {
            let ports = groups.ports(group).unwrap();
            let all = [1, 79, 80, 81, 82, 1024, 2000, 2001];
            let found: Vec<u128> = all.into_iter().filter(|it| ports.contains(*it)).collect();
            assert_eq!(found, named, "{group}");
        }
        for wrong in [
            "![80:90,!85]",
            "!0:65535",
            "!:",
            "[!0:65535]",
            "![80,,81]",
            "![,80]",
            "-1",
            "[80:90,!80:90]",
        ] {
            assert!(groups.ports(wrong).is_err(), "{wrong}");
        }
        assert!(groups.ports("[80:90,!85]").is_ok() && groups.ports("![!5000]").is_ok());
    }

    #[test]
    fn wrong_groups_say_what_is_wrong() {
        let mut variables = Variables::default();
        for (name, text) in [("LOOP", "$LOOP"), ("ONE", "[10.0.0.1,$TWO]"), ("TWO", "![$ONE]")] {
            variables.addresses.insert(name.into(), text.into());
        }
        let deep = format!("{}10.0.0.1{}", "[".repeat(33), "]".repeat(33));
        let mut groups = Groups::new(&variables);
        for (wrong, says) in [
            ("$NO_SUCH", "no variable"),
            ("[10.0.0.1", "no end"),
            ("!any", "names nothing"),
            ("$LOOP", "made of itself"),
            ("$TWO", "made of itself"),
            ("[10.0.0.9,!$ONE]", "made of itself"),
            (&deep, "deeper"),
            ("10.0.0.300", "not an address"),
            ("[]", "is empty"),
            ("[ ]", "is empty"),
            ("[,]", "is empty"),
            ("[,10.0.0.1]", "is empty"),
            ("[10.0.0.1,,10.0.0.2]", "is empty"),
            ("[10.0.0.1,[]]", "is empty"),
            ("![]", "is empty"),
        ] {
            assert!(groups.addresses(wrong).unwrap_err().contains(says), "{wrong}");
        }
        for empty in ["[]", "[,]", "[80,,81]", "[,80]"] {
            assert!(groups.ports(empty).unwrap_err().contains("is empty"), "{empty}");
        }
        assert!(groups.ports("[80,]").is_ok() && groups.addresses("[!10.0.0.1,]").is_ok());
        assert!(groups.ports("70000").unwrap_err().contains("not a port"));
        assert!(groups.ports("[80,!$HTTP_PORTS]").is_err());
        assert!(groups.ports("!$HTTP_PORTS").unwrap().contains(81));
    }

    /// Every variable names the one before it ten times: read anew at each use, the last would be
    /// read ten to the hundredth times.
    #[test]
    fn variables_of_variables_are_read_once() {
        let mut variables = Variables::default();
        variables.addresses.insert("V0".into(), "[10.0.0.0/8,!10.0.0.1]".into());
        for level in 1..=100 {
            let before = format!("$V{}", level - 1);
            let text = format!("[{},!192.0.2.{level}]", [before.as_str(); 10].join(","));
            variables.addresses.insert(format!("V{level}"), text);
        }
        let mut groups = Groups::new(&variables);
        let last = groups.addresses("$V100").unwrap();
        assert_eq!(groups.addresses.read.len(), 101);
        assert_eq!(last, groups.addresses("$V0").unwrap());
        assert_eq!(groups.addresses.read.len(), 101);
    }

    #[test]
    fn a_group_of_a_hundred_thousand_is_read() {
        let address = |it: u32| std::net::Ipv4Addr::from(0x0a00_0000 + 2 * it).to_string();
        let members: Vec<String> = (0..100_000).map(address).collect();
        let mut variables = Variables::default();
        variables.addresses.insert("MANY".into(), format!("[{}]", members.join(",")));
        let mut groups = Groups::new(&variables);
        assert_eq!(groups.addresses("$MANY").unwrap().iter().count(), 100_000);
        assert_eq!(groups.addresses("[10.0.0.0/8,!$MANY]").unwrap().iter().count(), 100_000);
    }
}
