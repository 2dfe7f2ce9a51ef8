use super::*;

fn definitions(rules: &[&str], files: &[(&str, &str)]) -> (Vec<DatasetTest>, Definitions) {
    let files: BTreeMap<String, String> =
        files.iter().map(|(name, text)| ((*name).into(), (*text).into())).collect();
    let kept = KeptFiles(files.clone());
    let mut definitions = Definitions::default();
    let texts = Texts { beside: &files, kept: &kept };
    let tests = rules.iter().map(|it| definitions.dataset(it, texts).unwrap()).collect();
    (tests, definitions)
}

fn sets(rules: &[&str], files: &[(&str, &str)]) -> (Vec<DatasetTest>, Datasets) {
    let (tests, definitions) = definitions(rules, files);
    (tests, Datasets::new(&definitions, 1))
}

fn refused(rules: &[&str]) -> String {
    let (beside, kept) = (BTreeMap::new(), KeptFiles::default());
    let mut definitions = Definitions::default();
    let (last, before) = rules.split_last().unwrap();
    let texts = Texts { beside: &beside, kept: &kept };
    before.iter().for_each(|it| _ = definitions.dataset(it, texts).unwrap());
    definitions.dataset(last, texts).unwrap_err()
}

impl Datasets {
    /// What a rule of nothing else says.
    fn does(&mut self, test: DatasetTest, bytes: &[u8]) -> bool {
        let holds = self.holds(test, bytes);
        self.commit();
        holds
    }
}

#[test]
fn a_value_is_put_once_and_taken_once() {
    let rules = ["set,a,type string", "isset,a", "unset,a", "isnotset,a"];
    let (tests, mut sets) = sets(&rules, &[]);
    let [set, is_set, unset, is_not_set] = tests.try_into().unwrap();
    assert!(!sets.does(is_set, b"x") && sets.does(is_not_set, b"x"));
    assert!(sets.does(set, b"x") && !sets.does(set, b"x"));
    assert!(sets.does(is_set, b"x") && !sets.does(is_set, b"y"));
    assert!(sets.does(unset, b"x") && !sets.does(unset, b"x"));
}

#[test]
fn a_value_of_the_file_is_taken_and_put_again() {
    let rules = ["unset,a,type string,state t", "isset,a", "set,a"];
    let (tests, mut sets) = sets(&rules, &[("t", "ZXZpbA==\n")]);
    let [unset, is_set, set] = tests.try_into().unwrap();
    assert!(sets.does(is_set, b"evil") && !sets.does(set, b"evil"));
    assert!(sets.does(unset, b"evil") && !sets.does(unset, b"evil"));
    assert!(!sets.does(is_set, b"evil"));
    assert!(sets.does(set, b"evil") && sets.does(is_set, b"evil"));
}

#[test]
fn files_are_read_as_their_type_says() {
    let rules = [
        "isset,t,type string,load t",
        "isset,m,type md5,load m",
        "isset,i,type ip,load i",
        "isset,j,type ipv4,state nowhere",
    ];
    let files = [
        ("t", "ZXZpbA==\n"),
        ("m", "d41d8cd98f00b204e9800998ecf8427e\n"),
        ("i", "10.0.0.1\n2001:db8::1\n"),
    ];
    let (tests, mut sets) = sets(&rules, &files);
    assert!(sets.does(tests[0], b"evil") && !sets.does(tests[0], b"good"));
    assert!(sets.does(tests[1], &crate::digest::md5(b"")));
    assert!(sets.does(tests[2], &[10, 0, 0, 1]) && !sets.does(tests[2], &[10, 0, 0, 2]));
    assert!(!sets.does(tests[3], &[10, 0, 0, 1]));
}

#[test]
fn what_is_written_is_what_was_read() {
    for (kind, line) in [
        (Kind::String, "ZXZpbA=="),
        (Kind::String, "YWI="),
        (Kind::String, "YWJj"),
        (Kind::Md5, "d41d8cd98f00b204e9800998ecf8427e"),
        (Kind::Ip, "10.0.0.1"),
        (Kind::Ip, "2001:0db8:0000:0000:0000:0000:0000:0001"),
        (Kind::Ipv4, "192.0.2.7"),
    ] {
        assert_eq!(kind.line(&kind.written(line).unwrap()), line);
    }
}

#[test]
fn what_cannot_be_is_refused() {
    for wrong in ["put,a,type string", "set,a", "set,a,type x", "isset,a,type ip,load none"] {
        refused(&[wrong]);
    }
    refused(&["set,a,type ip", "isset,a,type md5"]);
    assert!(refused(&["set,a,type ip,state x", "set,a,type ip,state y"]).contains("other files"));
    let json = "set,a,type ip,load a,format json,value_key ip,context_key c";
    assert!(refused(&[json]).contains("isset"));
}

#[test]
fn a_rule_names_no_file_of_other_folders() {
    let files = [("/etc/passwd", "root:x:0:0\n"), ("../a", "ZXZpbA==\n")];
    let beside = files.map(|(name, text)| (name.to_owned(), text.to_owned())).into();
    let texts = Texts { beside: &beside, kept: &KeptFiles::default() };
    let mut definitions = Definitions::default();
    for file in ["load /etc/passwd", "load ../a", "state ../a", "save /etc/passwd"] {
        let why = definitions.dataset(&format!("isset,a,type string,{file}"), texts).unwrap_err();
        assert!(why.contains("leads out") && !why.contains("root"), "{why}");
    }
    let why = definitions.reputation("r,>,1,type string,load ../a", texts).unwrap_err();
    assert!(why.contains("leads out"), "{why}");
}

#[test]
fn a_set_has_reputations_or_none() {
    let beside = BTreeMap::from([("list".to_owned(), "ZXZpbA==,5\n".to_owned())]);
    let kept = KeptFiles::default();
    let texts = Texts { beside: &beside, kept: &kept };
    let mut definitions = Definitions::default();
    definitions.reputation("r,>,1,type string,load list", texts).unwrap();
    let why = definitions.dataset("isset,r,type string", texts).unwrap_err();
    assert_eq!(why, "r is named by both dataset and datarep");
}

#[test]
fn a_bad_line_of_a_kept_file_is_left_out_and_of_a_list_refuses_the_rule() {
    let text = "ZXZpbA==\n\u{fffd}\u{fffd}!\nx y\nZ29vZA==\n".to_owned();
    let beside = BTreeMap::from([("list".to_owned(), text.clone())]);
    let kept = KeptFiles(BTreeMap::from([("kept".to_owned(), text)]));
    let texts = Texts { beside: &beside, kept: &kept };
    let mut definitions = Definitions::default();
    let why = definitions.dataset("isset,a,type string,load list", texts).unwrap_err();
    assert_eq!(why, "dataset a: line 2 of its file is no text in base64");
    let test = definitions.dataset("isset,b,type string,state kept", texts).unwrap();
    let spoiled = definitions.take_spoiled();
    assert_eq!(spoiled.len(), 1);
    assert!(spoiled[0].starts_with("dataset file kept"));
    assert!(spoiled[0].ends_with(": 2, the first is line 2"), "and nothing that it says");
    let mut sets = Datasets::new(&definitions, 1);
    assert!(sets.does(test, b"evil") && sets.does(test, b"good") && !sets.does(test, b"x y"));
}

#[test]
fn a_set_of_the_configuration_needs_no_more_than_its_name() {
    let beside = BTreeMap::from([("/lists/a".to_owned(), "ZXZpbA==\n".to_owned())]);
    let texts = Texts { beside: &beside, kept: &KeptFiles::default() };
    let mut definitions = Definitions::default();
    definitions.declare("a, type string, load /lists/a", texts).unwrap();
    assert!(definitions.declare("b, load /lists/a", texts).is_err(), "it has no type");
    let test = definitions.dataset("isset,a", texts).unwrap();
    let mut sets = Datasets::new(&definitions, 1);
    assert!(sets.does(test, b"evil") && !sets.does(test, b"good"));
}

#[test]
fn files_that_rules_name_are_found() {
    let rules = "alert dns any any -> any any (dns.query; dataset:isset,a,type string,load \
                 a.lst; sid:1;)\n# alert dns any any -> any any (dataset:set,b,load b; sid:2;)\n\
                 alert dns any any -> any any (dns.query; dataset:set,c,type string, state c; \
                 sid:3;)\nalert http any any -> any any (filemd5:!list; sid:4;)\n\
                 alert http any any -> any any (filesha256:/etc/shadow; sid:5;)\n\
                 alert dns any any -> any any (dns.query; dataset:isset,d,type string,load \
                 ../d; sid:6;)\n\
                 alert dns any any -> any any (dns.query; datarep:e,>,1,load /e; sid:7;)\n\
                 alert dns any any -> any any (dns.query; dataset:set,f,state ../f; sid:8;)";
    let file = |name: &str, place| NamedFile { name: name.into(), place };
    let expected = [
        file("a.lst", FileLocation::Beside),
        file("c", FileLocation::Kept),
        file("list", FileLocation::Beside),
    ];
    assert_eq!(files(rules), expected, "and not those that lie elsewhere");
}

#[test]
fn memory_bounds_what_rules_add() {
    let (tests, mut sets) = sets(&["set,a,type string,memcap 200"], &[]);
    assert!(sets.does(tests[0], b"one") && sets.does(tests[0], b"two"));
    assert!(!sets.does(tests[0], b"three"));
    assert_eq!(sets.take_lost(), 1);
}

#[test]
fn memory_is_bounded_where_no_rule_says_so() {
    let (tests, mut sets) = sets(&["set,a,type string", "set,b,type string,memcap 200mb"], &[]);
    let mut value = vec![b'x'; VALUE_LEN_MAX];
    let mut put = |test: DatasetTest| {
        let one_more = |number: &u32| {
            value[..4].copy_from_slice(&number.to_ne_bytes());
            sets.does(test, &value)
        };
        let count = (0..1650).filter(one_more).count();
        (count, sets.take_lost())
    };
    let room = (100 << 20) / (VALUE_LEN_MAX + 64);
    assert_eq!(put(tests[0]), (room, 1650 - room as u64));
    assert_eq!(put(tests[1]), (1650, 0));
}

#[test]
fn a_set_that_is_kept_tells_its_changes_and_others_do_not() {
    let rules = ["set,a,type string,state a.lst", "unset,a", "set,b,type string"];
    let (tests, definitions) = definitions(&rules, &[("a.lst", "b2xk\n")]);
    let file: Arc<str> = "a.lst".into();
    let kept: Vec<KeptSet> = definitions.kept().collect();
    let lines = vec!["b2xk".to_owned()];
    assert_eq!(kept, [KeptSet { file: file.clone(), lines, is_loaded: true }]);
    let mut sets = Datasets::new(&definitions, 1);
    sets.keep_changes();
    assert!(sets.does(tests[0], b"new") && sets.does(tests[2], b"else"));
    assert!(sets.does(tests[1], b"old") && !sets.does(tests[1], b"none"));
    let change = |line: &str, is_set| Change { file: file.clone(), line: line.into(), is_set };
    assert_eq!(sets.take_changes(), [change("bmV3", true), change("b2xk", false)]);
    assert_eq!(sets.take_changes(), []);
}

#[test]
fn detectors_take_over_what_others_put() {
    let rules = ["set,a,type string", "isset,a", "unset,a"];
    let (tests, definitions) = definitions(&rules, &[]);
    let mut one = Datasets::new(&definitions, 7);
    let mut two = Datasets::new(&definitions, 7);
    one.share();
    assert!(one.does(tests[0], b"x"));
    two.add_shared(&one.take_shared());
    assert!(two.does(tests[1], b"x"));
    assert!(one.does(tests[2], b"x"));
    two.add_shared(&one.take_shared());
    assert!(!two.does(tests[1], b"x"));
    assert!(one.take_shared().is_empty());
}

#[test]
fn other_rules_go_on_with_what_rules_put_and_read_files_anew() {
    let rules = ["set,a,type string", "isset,b,type string,load b"];
    let (tests, before) = definitions(&rules, &[("b", "b2xk\n")]);
    let mut sets = Datasets::new(&before, 1);
    assert!(sets.does(tests[0], b"x"));
    let rules = ["isset,b,type string,load b", "isset,a,type string"];
    let (tests, after) = definitions(&rules, &[("b", "bmV3\n")]);
    sets.swap(&after);
    assert!(sets.does(tests[1], b"x"));
    assert!(sets.does(tests[0], b"new") && !sets.does(tests[0], b"old"));
}

#[test]
fn objects_of_json_tell_what_is_known_of_a_value() {
    let array = r#"{"data":{"hosts":[{"host":"evil","by":"a"},{"other":1},{"host":"bad","n":2}]}}"#;
    let lines = "{\"ip\":\"10.0.0.1\",\"why\":\"x\"}\n\n{\"ip\":\"fe80::1\"}\n";
    let rules = [
        "isset,h,type string,load h,format json,value_key host,array_key data.hosts,context_key k",
        "isset,i,type ip,load i,format ndjson,value_key ip,context_key k,remove_key",
    ];
    let (tests, mut sets) = sets(&rules, &[("h", array), ("i", lines)]);
    assert!(!sets.does(tests[0], b"good") && sets.found().is_empty());
    assert!(sets.does(tests[0], b"bad") && sets.does(tests[1], &[10, 0, 0, 1]));
    let told: Vec<&str> = sets.found().iter().map(|it| &*it.json).collect();
    assert_eq!(told, [r#"{"host":"bad","n":2}"#, r#"{"why":"x"}"#]);
    sets.forget_found();
    assert!(sets.found().is_empty());
}

#[test]
fn an_object_of_json_with_another_kind_of_value_refuses_the_rule() {
    for (format, text, place) in [
        ("json", r#"[{"ip":"10.0.0.1"},{"nope":1},3,{"ip":"foo"}]"#, "element 4"),
        ("json", r#"[{"ip":"10.0.0.1"},{"ip":7}]"#, "element 2"),
        ("ndjson", "{\"ip\":\"10.0.0.1\"}\n\n{\"ip\":null}\n", "line 3"),
    ] {
        let beside = BTreeMap::from([("a".to_owned(), text.to_owned())]);
        let texts = Texts { beside: &beside, kept: &KeptFiles::default() };
        let rule = format!("isset,a,type ip,load a,format {format},value_key ip,context_key k");
        let why = Definitions::default().dataset(&rule, texts).unwrap_err();
        assert_eq!(why, format!("dataset a: {place} has no IP address at ip"));
    }
}

#[test]
fn where_no_rule_may_have_a_set_kept_others_work() {
    let beside = BTreeMap::from([("a".to_owned(), "ZXZpbA==\n".to_owned())]);
    let texts = Texts { beside: &beside, kept: &KeptFiles::default() };
    let mut definitions = Definitions::new(false);
    for rule in ["set,k,type string,state k", "isset,k,type string,save k"] {
        assert!(definitions.dataset(rule, texts).unwrap_err().contains("allow-write"), "{rule}");
    }
    for rule in ["set,n,type string", "unset,n", "isset,a,type string,load a"] {
        assert!(definitions.dataset(rule, texts).is_ok(), "{rule}");
    }
    definitions.declare("of_all,type string,state k", texts).unwrap();
    assert!(definitions.dataset("set,of_all", texts).is_ok());
}

/// As Suricata 8.0.7 loads them.
#[test]
fn a_reputation_is_a_number_to_65535() {
    for (text, is_one) in [("5", true), ("05", true), ("65535", true), ("65536", false)]
        .into_iter()
        .chain([("-1", false), ("abc", false), ("", false), ("0x5", false)])
    {
        let beside = BTreeMap::from([("a".to_owned(), format!("ZXZpbA==,{text}\n"))]);
        let texts = Texts { beside: &beside, kept: &KeptFiles::default() };
        let loaded = Definitions::default().reputation("a,>,1,type string,load a", texts);
        assert_eq!(loaded.is_ok(), is_one, "{text:?}");
    }
    let texts = Texts { beside: &BTreeMap::new(), kept: &KeptFiles::default() };
    assert!(Definitions::default().reputation("a,>,0x10,type string", texts).is_err());
}
