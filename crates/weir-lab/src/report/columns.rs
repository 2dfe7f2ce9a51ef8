//! Tables as Parquet, which pandas and R (arrow, nanoparquet) open with their types: whole numbers,
//! numbers and words; an empty cell is null.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::parser::parse_message_type;

/// A column by its type.
enum Column {
    Whole(Vec<Option<i64>>),
    Number(Vec<Option<f64>>),
    Words(Vec<Option<ByteArray>>),
}

/// Writes `rows`, whose first names the columns, to a file that appears whole. Columns for which
/// `is_measured` holds are numbers, whatever their cells look like.
///
/// # Errors
/// The disk refuses.
pub(super) fn write(
    path: &Path,
    rows: &[Vec<String>],
    is_measured: impl Fn(&str) -> bool,
) -> Result<()> {
    let Some((head, rows)) = rows.split_first() else { return Ok(()) };
    let columns: Vec<(&String, Column)> = head
        .iter()
        .enumerate()
        .map(|(at, name)| (name, Column::of(rows, at, is_measured(name))))
        .collect();
    let unfinished = path.with_extension("part");
    let file = File::create(&unfinished)
        .with_context(|| format!("cannot write {}", unfinished.display()))?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .build();
    let schema = Arc::new(parse_message_type(&schema(&columns))?);
    let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    for (_, column) in columns {
        if let Some(mut writer) = group.next_column()? {
            column.write(&mut writer)?;
            writer.close()?;
        }
    }
    group.close()?;
    writer.close()?;
    fs::rename(unfinished, path)?;
    Ok(())
}

/// In Parquet's own language. Names are ours: letters, digits, `_` and `-`.
fn schema(columns: &[(&String, Column)]) -> String {
    let mut text = String::from("message results {\n");
    for (name, column) in columns {
        let kind = match column {
            Column::Whole(_) => format!("INT64 {name}"),
            Column::Number(_) => format!("DOUBLE {name}"),
            Column::Words(_) => format!("BYTE_ARRAY {name} (UTF8)"),
        };
        text += &format!("OPTIONAL {kind};\n");
    }
    text + "}"
}

impl Column {
    fn of(rows: &[Vec<String>], at: usize, is_measured: bool) -> Self {
        let cells = || rows.iter().map(|row| row[at].as_str());
        let filled = || cells().filter(|cell| !cell.is_empty());
        if !is_measured && filled().all(|cell| cell.parse::<i64>().is_ok()) {
            return Self::Whole(cells().map(|cell| cell.parse().ok()).collect());
        }
        if filled().all(|cell| cell.parse::<f64>().is_ok()) {
            return Self::Number(cells().map(|cell| cell.parse().ok()).collect());
        }
        let word = |cell: &str| (!cell.is_empty()).then(|| ByteArray::from(cell));
        Self::Words(cells().map(word).collect())
    }

    fn write(self, writer: &mut SerializedColumnWriter<'_>) -> Result<()> {
        match self {
            Self::Whole(cells) => {
                let (levels, values) = parts(cells);
                writer.typed::<Int64Type>().write_batch(&values, Some(&levels), None)?
            }
            Self::Number(cells) => {
                let (levels, values) = parts(cells);
                writer.typed::<DoubleType>().write_batch(&values, Some(&levels), None)?
            }
            Self::Words(cells) => {
                let (levels, values) = parts(cells);
                writer.typed::<ByteArrayType>().write_batch(&values, Some(&levels), None)?
            }
        };
        Ok(())
    }
}

/// Which cells are there, and those.
fn parts<T>(cells: Vec<Option<T>>) -> (Vec<i16>, Vec<T>) {
    let levels = cells.iter().map(|cell| i16::from(cell.is_some())).collect();
    (levels, cells.into_iter().flatten().collect())
}
