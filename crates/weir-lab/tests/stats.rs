//! The statistics against strangers: on published data sets, SciPy's and R's answers.
//!
//! What R and the papers print for these data sets is written here; SciPy is asked where Debian's
//! python3-scipy is installed, and scikit-posthocs for Dunn's test where that is.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use weir_lab::process;
use weir_lab::stats::table::Table;
use weir_lab::stats::{self, Observation};

const BOTTLE_CAPS: &[&[f64]] =
    &[&[340.0, 345.0, 330.0, 342.0, 338.0], &[339.0, 333.0, 344.0], &[347.0, 343.0, 349.0, 355.0]];

const INSECT_SPRAYS: &[&[f64]] = &[
    &[10.0, 7.0, 20.0, 14.0, 14.0, 12.0, 10.0, 23.0, 17.0, 20.0, 14.0, 13.0],
    &[11.0, 17.0, 21.0, 11.0, 16.0, 14.0, 17.0, 17.0, 19.0, 21.0, 7.0, 13.0],
    &[0.0, 1.0, 7.0, 2.0, 3.0, 1.0, 2.0, 1.0, 3.0, 0.0, 1.0, 4.0],
    &[3.0, 5.0, 12.0, 6.0, 4.0, 3.0, 5.0, 5.0, 5.0, 5.0, 2.0, 4.0],
    &[3.0, 5.0, 3.0, 5.0, 3.0, 6.0, 1.0, 1.0, 3.0, 2.0, 6.0, 4.0],
    &[11.0, 9.0, 15.0, 22.0, 15.0, 16.0, 13.0, 10.0, 26.0, 26.0, 24.0, 13.0],
];

const PLANT_GROWTH: &[&[f64]] = &[
    &[4.17, 5.58, 5.18, 6.11, 4.50, 4.61, 5.17, 4.53, 5.33, 5.14],
    &[4.81, 4.17, 4.41, 3.59, 5.87, 3.83, 6.03, 4.89, 4.32, 4.69],
    &[6.31, 5.12, 5.54, 5.50, 5.37, 5.29, 4.92, 6.15, 5.80, 5.26],
];

/// Weights of men, from Shapiro and Wilk's own paper (1965).
const WEIGHTS: &[&[f64]] =
    &[&[148.0, 154.0, 158.0, 160.0, 161.0, 162.0, 166.0, 170.0, 182.0, 195.0, 236.0]];

fn groups(data: &[&[f64]]) -> Vec<Vec<f64>> {
    data.iter().map(|group| group.to_vec()).collect()
}

fn close(ours: f64, theirs: f64, relative: f64, what: &str) {
    let distance = (ours - theirs).abs();
    assert!(distance <= relative * theirs.abs().max(1e-12), "{what}: {ours}, not {theirs}");
}

#[test]
fn published_answers_come_out() {
    // Kruskal and Wallis (1952), section 2: H = 5.656.
    let test = stats::kruskal_wallis(&groups(BOTTLE_CAPS)).unwrap();
    close(test.h, 5.656, 1e-4, "H of bottle caps");
    close(test.epsilon_squared, 5.656 / 11.0, 1e-4, "epsilon squared is H over n - 1");
    // R 4: kruskal.test(count ~ spray, InsectSprays); (weight ~ group, PlantGrowth).
    let test = stats::kruskal_wallis(&groups(INSECT_SPRAYS)).unwrap();
    close(test.h, 54.691, 1e-5, "H of sprays, with ties");
    close(test.p, 1.511e-10, 1e-3, "p of sprays");
    let test = stats::kruskal_wallis(&groups(PLANT_GROWTH)).unwrap();
    close(test.h, 7.9882, 1e-5, "H of plants");
    close(test.p, 0.01842, 1e-3, "p of plants");
    // R 4: anova(lm(weight ~ group, PlantGrowth)); car::leveneTest.
    let test = stats::anova(&groups(PLANT_GROWTH)).unwrap();
    close(test.f, 4.8461, 1e-5, "F of plants");
    close(test.p, 0.01591, 1e-3, "p of plants");
    close(stats::levene(&groups(PLANT_GROWTH)).unwrap().w, 1.1192, 1e-4, "Levene of plants");
    // R 4: shapiro.test; the paper's own tables gave W = 0.79.
    let test = stats::shapiro_wilk(WEIGHTS[0]).unwrap();
    close(test.w, 0.79, 0.01, "W of weights");
    // Cliff's delta by counting: of 5 x 4 pairs, one exceeds (345 > 343), 19 do not.
    let (caps, least) = (groups(BOTTLE_CAPS), (1.0 - 19.0) / 20.0);
    close(stats::cliffs_delta(&caps[0], &caps[2]), least, 1e-12, "Cliff's delta");
    assert_eq!(stats::holm(&[0.01, 0.04, 0.03]), [0.03, 0.06, 0.06]);
}

#[test]
fn scipy_agrees() {
    let Some(answers) = scipy(&all_data()) else { return };
    for (name, data) in all_data() {
        let theirs = &answers[&name];
        let number = |test: &str, at: usize| theirs[test][at].as_f64().expect("a number");
        let samples: Vec<f64> = data.iter().flatten().copied().collect();
        let shapiro = stats::shapiro_wilk(&samples).unwrap();
        close(shapiro.w, number("shapiro_wilk", 0), 1e-6, &format!("{name}: W"));
        close(shapiro.p, number("shapiro_wilk", 1), 1e-4, &format!("{name}: p of W"));
        if data.len() < 2 {
            continue;
        }
        let kruskal = stats::kruskal_wallis(&data).unwrap();
        close(kruskal.h, number("kruskal_wallis", 0), 1e-9, &format!("{name}: H"));
        close(kruskal.p, number("kruskal_wallis", 1), 1e-8, &format!("{name}: p of H"));
        let mann = stats::mann_whitney(&data[0], &data[1]).unwrap();
        close(mann.u, number("mann_whitney", 0), 1e-12, &format!("{name}: U"));
        close(mann.p, number("mann_whitney", 1), 1e-8, &format!("{name}: p of U"));
        let levene = stats::levene(&data).unwrap();
        close(levene.w, number("levene", 0), 1e-9, &format!("{name}: Levene"));
        close(levene.p, number("levene", 1), 1e-7, &format!("{name}: p of Levene"));
        let anova = stats::anova(&data).unwrap();
        close(anova.f, number("anova", 0), 1e-9, &format!("{name}: F"));
        close(anova.p, number("anova", 1), 1e-7, &format!("{name}: p of F"));
        for pair in stats::dunn(&data) {
            let theirs = theirs["dunn_holm"][pair.a][pair.b].as_f64();
            let theirs = theirs.or_else(|| committed_dunn(&name, pair.a, pair.b));
            let Some(theirs) = theirs else { continue };
            close(pair.p_holm, theirs, 1e-4, &format!("{name}: Dunn {} {}", pair.a, pair.b));
        }
    }
}

#[test]
fn dunn_is_as_scikit_posthocs_has_it() {
    let mut judged = 0;
    for (name, data) in all_data() {
        for pair in stats::dunn(&data) {
            let Some(theirs) = committed_dunn(&name, pair.a, pair.b) else { continue };
            close(pair.p_holm, theirs, 1e-4, &format!("{name}: {} {}", pair.a, pair.b));
            judged += 1;
        }
    }
    assert_eq!(judged, 3 + 15 + 3, "each pair of three data sets");
}

/// R's warpbreaks: breaks of yarn by wool (A, B) and tension (L, M, H), nine looms each.
const WARP_BREAKS: [[f64; 9]; 6] = [
    [26.0, 30.0, 54.0, 25.0, 70.0, 52.0, 51.0, 26.0, 67.0],
    [18.0, 21.0, 29.0, 17.0, 12.0, 18.0, 35.0, 30.0, 36.0],
    [36.0, 21.0, 24.0, 18.0, 10.0, 43.0, 28.0, 15.0, 26.0],
    [27.0, 14.0, 29.0, 19.0, 29.0, 31.0, 41.0, 20.0, 44.0],
    [42.0, 26.0, 19.0, 16.0, 39.0, 28.0, 21.0, 39.0, 29.0],
    [20.0, 21.0, 24.0, 17.0, 13.0, 15.0, 15.0, 16.0, 28.0],
];

fn warp_breaks() -> Vec<Observation> {
    let cell = |(at, values): (usize, &[f64; 9])| {
        values.map(|value| Observation { levels: vec![at / 3, at % 3], value })
    };
    WARP_BREAKS.iter().enumerate().flat_map(cell).collect()
}

#[test]
fn factors_and_their_interaction_are_as_r_has_them() {
    let effects = stats::effects(&warp_breaks());
    // R 4: anova(lm(breaks ~ wool * tension, warpbreaks)).
    let published = [(3.7653, 0.0582130, 1), (8.4980, 0.0006926, 2), (4.1891, 0.0210442, 2)];
    assert_eq!(effects.len(), published.len());
    for (effect, (f, p, df)) in effects.iter().zip(published) {
        let name = format!("{:?}", effect.factors);
        close(effect.f, f, 1e-4, &format!("F of {name}"));
        close(effect.p, p, 1e-4, &format!("p of {name}"));
        assert_eq!((effect.df, effect.df_residual), (df, 48), "{name}");
    }
    // A missing combination, or one run of each, leaves nothing to judge by.
    let whole = warp_breaks();
    assert!(stats::effects(&whole[9..]).is_empty());
    let once: Vec<_> = whole.chunks(9).map(|cell| cell[0].clone()).collect();
    assert!(stats::effects(&once).is_empty() && stats::aligned_rank_effects(&once).is_empty());
}

#[test]
fn statsmodels_agrees_on_unequal_cells_and_on_aligned_ranks() {
    let mut three = Vec::new();
    for at in 0..2 * 3 * 2 * 4 {
        let levels = vec![at % 2, at / 2 % 3, at / 6 % 2];
        let noise = ((at * at * 13 + 7 * at) % 31) as f64 / 7.0;
        let value = noise + 2.0 * levels[0] as f64 + (levels[1] * levels[2]) as f64;
        three.push(Observation { levels, value });
    }
    // Cells of different sizes, each still there.
    let unequal: Vec<Observation> =
        warp_breaks().into_iter().enumerate().filter(|it| it.0 % 5 != 0).map(|it| it.1).collect();
    for (name, data) in [("warp", warp_breaks()), ("three", three), ("unequal", unequal)] {
        let rows: Vec<Value> = data.iter().map(|it| json!([it.levels, it.value])).collect();
        let mut command = Command::new(judging_python());
        command.arg(folder_of_judges().join("statsmodels_answers.py"));
        let input = json!(rows).to_string();
        let said = match process::run_with_input(&mut command, &input, LIMIT) {
            Ok(said) => said.stdout,
            Err(reason) if reason.to_string().contains("No module named") => {
                return eprintln!("SKIPPED: statsmodels_agrees: no statsmodels: {reason}");
            }
            Err(reason) => panic!("{reason:#}"),
        };
        let theirs: Value = serde_json::from_str(&said).expect("the judge speaks JSON");
        for (kind, ours) in
            [("means", stats::effects(&data)), ("aligned", stats::aligned_rank_effects(&data))]
        {
            assert_eq!(ours.len(), (1 << data[0].levels.len()) - 1, "{name}");
            for effect in ours {
                let key = effect.factors.iter().map(usize::to_string).collect::<Vec<_>>().join(":");
                let answer = &theirs[kind][&key];
                let what = format!("{name}, {kind}, {key}");
                close(effect.f, answer[0].as_f64().expect("F"), 1e-7, &what);
                close(effect.p, answer[1].as_f64().expect("p"), 1e-6, &what);
            }
        }
    }
}

#[test]
fn a_bootstrap_interval_covers_the_mean_and_comes_again() {
    let samples = &groups(PLANT_GROWTH)[0];
    let [low, high] = stats::mean_interval(samples, 1).unwrap();
    // SciPy's bootstrap(method="percentile") of these: 4.69 to 5.38, by seed 0.01 about that.
    assert!((4.66..4.72).contains(&low) && (5.35..5.42).contains(&high), "{low} to {high}");
    assert_eq!(stats::mean_interval(samples, 1), Some([low, high]));
    assert_ne!(stats::mean_interval(samples, 2), Some([low, high]));
    assert_eq!(stats::mean_interval(&[1.0], 1), None);
}

#[test]
fn what_cannot_be_tested_has_no_answer() {
    let equal = vec![vec![1.0; 4], vec![1.0; 4]];
    assert_eq!(stats::kruskal_wallis(&equal), None);
    assert!(stats::dunn(&equal).is_empty());
    assert_eq!(stats::anova(&equal), None);
    // Of two samples each, distances from the median are equal but for rounding.
    let pairs = vec![vec![0.1, 0.3], vec![1.1, 1.7], vec![2.3, 2.31]];
    assert_eq!(stats::levene(&pairs), None);
    assert_eq!(stats::shapiro_wilk(&[1.0, 2.0]), None);
    assert_eq!(stats::mann_whitney(&[1.0], &[]), None);
    assert_eq!(stats::summary(&[]), None);
}

#[test]
fn a_table_is_read_as_it_is_or_refused_with_the_place() {
    let text = "# remark\nname,\"speed, Gb/s\",n\n\"a \"\"x\"\"\",1.5,10\nb,2,9\na,NA,9\n";
    let table = Table::parse(text).unwrap();
    assert_eq!(table.columns(), ["name", "speed, Gb/s", "n"]);
    let groups = table.groups("speed, Gb/s", "name").unwrap().levels;
    assert_eq!(groups, [("a \"x\"".to_owned(), vec![1.5]), ("b".to_owned(), vec![2.0])]);
    let by_number = table.groups("speed, Gb/s", "n").unwrap();
    assert_eq!(by_number.levels[0].0, "9", "numbers by size");
    assert_eq!(by_number.without_value, 1);
    for (text, said) in [
        ("", "first line"),
        ("a,b\n1\n", "line 2 has 1 fields"),
        ("a,a\n1,2\n", "two columns are called a"),
        ("a,b\n\"1,2\n", "line 2: an open quote"),
    ] {
        let reason = Table::parse(text).unwrap_err().to_string();
        assert!(reason.contains(said), "{reason}");
    }
    let table = Table::parse("a,b\nx,1\ny,two\n").unwrap();
    assert!(
        table
            .groups("b", "a")
            .unwrap_err()
            .to_string()
            .contains("line 3: b is no finite number: two")
    );
    assert!(table.groups("c", "a").unwrap_err().to_string().contains("there are a, b"));
    assert!(table.groups("b", "a").is_err());
}

#[test]
fn files_as_spreadsheets_write_them_give_the_same_groups() {
    let wanted = [("a".to_owned(), vec![1.5, 2.5]), ("b, c".to_owned(), vec![3.0])];
    let unix = "level,value\na,1.5\na,2.5\n\"b, c\",3\n";
    let utf16 = unix.encode_utf16().flat_map(u16::to_le_bytes);
    let forms: Vec<Vec<u8>> = vec![
        unix.into(),
        unix.replace('\n', "\r\n").into(),
        unix.replace('\n', "\r").into(),
        format!("\u{feff}{unix}").into(),
        unix.trim_end().into(),
        "\"level\" , \"value\"\r\n a ,\" 1.5 \"\n\na, 2.5\n,7\nNA,7\n\"b, c\",3\n".into(),
        "level;value\na;1.5\na;2.5\nb, c;3\n".into(),
        "level\tvalue\na\t1.5\na\t2.5\nb, c\t3\nd\tNaN\ne\tnull\n".into(),
        [0xff, 0xfe].into_iter().chain(utf16).collect(),
    ];
    for bytes in forms {
        let groups = Table::from_bytes(&bytes).unwrap().groups("value", "level").unwrap();
        assert_eq!(groups.levels, wanted, "{}", String::from_utf8_lossy(&bytes));
    }
    let latin =
        Table::from_bytes(b"gr\xf6\xdfe,v\n5\" disk,1\n#2,2\n\"two\nlines\",3\n\"x\n").unwrap_err();
    assert!(latin.to_string().contains("line 6: an open quote"), "{latin}");
    let latin = Table::from_bytes(b"gr\xf6\xdfe,v\n5\" disk,1\n#2,2\n").unwrap();
    let groups = latin.groups("v", "größe").unwrap().levels;
    assert_eq!(groups, [("#2".to_owned(), vec![2.0]), ("5\" disk".to_owned(), vec![1.0])]);
}

#[test]
fn nothing_to_tell_apart_is_said_and_never_invented() {
    let test = |text: &str| Table::parse(text).unwrap().test("v", &["g"]);
    let reason = |text: &str| test(text).unwrap_err().to_string();
    assert!(reason("g,v\na,1\na,2\n").contains("g has one level, a (2 values)"));
    assert!(reason("g,v\na,NaN\n,2\n").contains("no row has both v and g"));
    assert!(reason("g,v\na,1\nb,inf\n").contains("line 3: v is no finite number: inf"));
    let equal = &test("g,v\na,4\nb,4\nc,4\n").unwrap()["g"];
    assert_eq!((equal.h, equal.p, equal.df), (None, None, 2));
    assert_eq!(equal.pairs.len(), 3, "every pair is listed");
    assert!(equal.pairs.iter().all(|it| it.z.is_none() && it.cliffs_delta == 0.0));
    // Zeros of both signs are one value.
    assert_eq!(stats::cliffs_delta(&[0.0, -0.0], &[-0.0]), 0.0);
}

fn all_data() -> BTreeMap<String, Vec<Vec<f64>>> {
    let all = [
        ("bottle_caps", BOTTLE_CAPS),
        ("insect_sprays", INSECT_SPRAYS),
        ("plant_growth", PLANT_GROWTH),
        ("weights", WEIGHTS),
    ];
    let mut all: BTreeMap<String, Vec<Vec<f64>>> =
        all.into_iter().map(|(name, data)| (name.to_owned(), groups(data))).collect();
    // Sizes at which the approximations of Shapiro-Wilk change: 3, 4 to 5, 6 to 11, above.
    for size in [3, 4, 5, 6, 11, 12, 40] {
        let sample = |at: usize| ((at * at * 7 + 3 * at) % 101) as f64 / 3.0;
        all.insert(format!("made_{size}"), vec![(0..size).map(sample).collect()]);
    }
    all
}

fn folder_of_judges() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/judges")
}

/// Debian's Python, whatever else stands in the path: it is the one that has python3-scipy and
/// python3-statsmodels.
fn judging_python() -> &'static str {
    "/usr/bin/python3"
}

fn scipy(data: &BTreeMap<String, Vec<Vec<f64>>>) -> Option<Value> {
    let mut command = Command::new(judging_python());
    command.arg(folder_of_judges().join("scipy_answers.py"));
    let said = process::run_with_input(&mut command, &json!(data).to_string(), LIMIT);
    match said {
        Ok(said) => Some(serde_json::from_str(&said.stdout).expect("the judge speaks JSON")),
        Err(reason) if reason.to_string().contains("No module named 'scipy'") => {
            eprintln!("SKIPPED: scipy_agrees: no SciPy; try `apt-get install python3-scipy`");
            None
        }
        Err(reason) if format!("{reason:#}").contains("cannot start") => {
            eprintln!("SKIPPED: scipy_agrees: {reason:#}");
            None
        }
        Err(reason) => panic!("{reason:#}"),
    }
}

const LIMIT: Duration = Duration::from_secs(120);

/// scikit-posthocs' answers, made by `judges/scipy_answers.py` where that is installed.
fn committed_dunn(name: &str, a: usize, b: usize) -> Option<f64> {
    let all: Value = serde_json::from_str(include_str!("judges/dunn.json")).expect("JSON");
    all[name][a][b].as_f64()
}

#[test]
fn trials_that_do_not_count_have_no_part_in_a_test() {
    let text = "trial,counts,cipher,gbps\n1,yes,a,1\n2,no,a,9\n2,yes,a,2\n3,yes,b,3\n";
    let mut table = Table::parse(text).unwrap();
    assert_eq!(table.leave_out_uncounted(), 1);
    let groups = table.groups("gbps", "cipher").unwrap();
    assert_eq!(groups.levels, [("a".to_owned(), vec![1.0, 2.0]), ("b".to_owned(), vec![3.0])]);
    // What is no study's has no such column.
    assert_eq!(Table::parse("cipher,gbps\na,1\n").unwrap().leave_out_uncounted(), 0);
}
