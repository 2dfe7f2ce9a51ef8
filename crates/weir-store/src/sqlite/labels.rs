//! What people call addresses: host, tenant, job and rail. The gateway writes its `[[label]]`
//! tables beside the records, so that whoever reads a store finds the names there.

use rusqlite::types::Value;
use rusqlite::{Connection, Row, Transaction};

use super::read::{QueryError, Reader};

/// Labels of a store, at most.
pub const LABELS_MAX: usize = 1024;

/// What a label may say.
pub const LABEL_KINDS: [&str; 4] = ["host", "tenant", "job", "rail"];

/// Names of an address, in the order of [`LABEL_KINDS`].
pub type Names = [Option<String>; 4];

/// A range of addresses, and what it is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// Its first address.
    pub first: [u8; 16],
    /// Its last.
    pub last: [u8; 16],
    /// What it is called.
    pub names: Names,
}

impl Label {
    /// Leading bits that its addresses share: of two labels, the longer one counts.
    pub fn length_bits(&self) -> u32 {
        (u128::from_be_bytes(self.first) ^ u128::from_be_bytes(self.last)).leading_zeros()
    }
}

/// The labels of a store, the longest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(Vec<Label>);

impl Labels {
    /// Whether nothing has a name.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What `address` is called: each name by the longest label that has one.
    pub fn names(&self, address: [u8; 16]) -> Names {
        let mut names = Names::default();
        for label in self.0.iter().filter(|it| (it.first..=it.last).contains(&address)) {
            for (name, own) in names.iter_mut().zip(&label.names) {
                *name = name.take().or_else(|| own.clone());
            }
        }
        names
    }
}

/// Which name an end must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelFilter {
    /// Of [`LABEL_KINDS`]; absent: any.
    kind: Option<&'static str>,
    name: String,
}

impl std::str::FromStr for LabelFilter {
    type Err = String;

    /// `NAME`, or `tenant=NAME` and the like.
    fn from_str(text: &str) -> Result<Self, String> {
        let Some((kind, name)) = text.split_once('=') else {
            return Ok(Self { kind: None, name: text.to_owned() });
        };
        let Some(kind) = LABEL_KINDS.into_iter().find(|it| *it == kind) else {
            let kinds = LABEL_KINDS.join(", ");
            return Err(format!(
                "`{kind}` is no kind of name: write a name, or KIND=NAME of {kinds}"
            ));
        };
        Ok(Self { kind: Some(kind), name: name.to_owned() })
    }
}

impl LabelFilter {
    /// Whether one of `names`, in the order of [`LABEL_KINDS`], is the one that is wanted.
    pub fn fits(&self, names: &Names) -> bool {
        LABEL_KINDS.iter().zip(names).any(|(kind, name)| {
            self.kind.is_none_or(|own| own == *kind) && name.as_deref() == Some(&self.name)
        })
    }

    /// The condition that one of `columns` has the name, and its values.
    pub(super) fn term(&self, columns: &[&str]) -> (String, Vec<Value>) {
        let kinds = self.kind.as_ref().map_or(&LABEL_KINDS[..], std::slice::from_ref);
        let mut terms = Vec::new();
        for column in columns {
            for kind in kinds {
                terms.push(format!(
                    "(SELECT {kind} FROM label WHERE {kind} IS NOT NULL \
                     AND {column} BETWEEN first AND last ORDER BY length_bits DESC LIMIT 1) = ?"
                ));
            }
        }
        let values = vec![Value::Text(self.name.clone()); terms.len()];
        (format!("({})", terms.join(" OR ")), values)
    }
}

impl Reader {
    /// What addresses are called; nothing in a store of a Weir that knew no labels.
    ///
    /// # Errors
    /// [`QueryError`].
    pub fn labels(&self) -> Result<Labels, QueryError> {
        if !self.has_table("label")? {
            return Ok(Labels::default());
        }
        Ok(read(&self.connection)?)
    }
}

/// The labels of a store that has a table of them.
pub(super) fn read(connection: &Connection) -> rusqlite::Result<Labels> {
    let sql = "SELECT * FROM label ORDER BY length_bits DESC";
    let mut select = connection.prepare_cached(sql)?;
    let rows = select.query_map([], Label::of)?;
    Ok(Labels(rows.collect::<Result<_, _>>()?))
}

impl Label {
    fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        let mut names = Names::default();
        for (name, kind) in names.iter_mut().zip(LABEL_KINDS) {
            *name = row.get(kind)?;
        }
        Ok(Self { first: row.get("first")?, last: row.get("last")?, names })
    }
}

/// Puts `labels` in the place of those that were there.
pub(super) fn replace(transaction: &Transaction<'_>, labels: &[Label]) -> rusqlite::Result<()> {
    transaction.execute("DELETE FROM label", [])?;
    let mut insert = transaction.prepare_cached(
        "INSERT INTO label (first, last, length_bits, host, tenant, job, rail) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?;
    for label in labels {
        let [host, tenant, job, rail] = &label.names;
        let length = label.length_bits();
        insert.execute((label.first, label.last, length, host, tenant, job, rail))?;
    }
    Ok(())
}
