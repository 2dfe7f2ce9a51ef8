//! Rows as a Parquet file: a column each, compressed by zstd, read by pandas, DuckDB and Spark.

use std::io::Write;
use std::sync::Arc;

use anyhow::{Context, Result};
use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use serde_json::{Map, Value};
use weir_serve::columns::Kind;

/// Writes `rows` with `columns`, in one row group: there are 10,000 rows at most.
///
/// # Errors
/// `out` cannot be written.
pub(super) fn write(
    columns: &[(String, Kind)],
    rows: &[Map<String, Value>],
    out: impl Write + Send,
) -> Result<()> {
    let fields = columns.iter().map(|(name, kind)| match kind {
        Kind::Text => format!("OPTIONAL BYTE_ARRAY {name} (UTF8);"),
        Kind::Number => format!("OPTIONAL INT64 {name} (UINT_64);"),
        Kind::Float => format!("OPTIONAL DOUBLE {name};"),
        Kind::Flag => format!("OPTIONAL BOOLEAN {name};"),
    });
    let message = format!("message rows {{ {} }}", fields.collect::<String>());
    let schema = Arc::new(parse_message_type(&message).context("no schema of these columns")?);
    let compression = Compression::ZSTD(ZstdLevel::default());
    let properties = WriterProperties::builder().set_compression(compression).build();
    let mut file = SerializedFileWriter::new(out, schema, Arc::new(properties))?;
    let mut group = file.next_row_group()?;
    for (name, kind) in columns {
        let cells = rows.iter().map(|row| row.get(name).filter(|it| !it.is_null()));
        match kind {
            Kind::Text => column::<ByteArrayType>(&mut group, cells, |it| Some(text(it)))?,
            // Parquet's integers are signed; the schema says that these are not.
            Kind::Number => {
                column::<Int64Type>(&mut group, cells, |it| it.as_u64().map(|it| it as i64))?;
            }
            Kind::Float => column::<DoubleType>(&mut group, cells, Value::as_f64)?,
            Kind::Flag => column::<BoolType>(&mut group, cells, Value::as_bool)?,
        }
    }
    group.close()?;
    file.close()?;
    Ok(())
}

fn text(value: &Value) -> ByteArray {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    ByteArray::from(text.into_bytes())
}

/// Writes the next column; a cell without a value is null.
fn column<'a, T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, impl Write + Send>,
    cells: impl Iterator<Item = Option<&'a Value>>,
    value: impl Fn(&Value) -> Option<T::T>,
) -> Result<()> {
    let cells: Vec<Option<T::T>> = cells.map(|cell| cell.and_then(&value)).collect();
    let levels: Vec<i16> = cells.iter().map(|cell| i16::from(cell.is_some())).collect();
    let values: Vec<T::T> = cells.into_iter().flatten().collect();
    let mut writer = group.next_column()?.context("more columns than the schema has")?;
    writer.typed::<T>().write_batch(&values, Some(&levels), None)?;
    writer.close()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;
    use serde_json::json;

    use super::*;

    #[test]
    fn cells_come_back_as_they_were_and_absent_ones_as_null() {
        let columns = [
            ("address", Kind::Text),
            ("bytes", Kind::Number),
            ("names.host", Kind::Text),
            ("acknowledged", Kind::Flag),
            ("share", Kind::Float),
        ];
        let columns = columns.map(|(name, kind)| (name.to_owned(), kind));
        let rows = [
            json!({"address": "10.0.0.1", "bytes": u64::MAX, "acknowledged": true, "share": 0.5}),
            json!({"address": "\u{1F980}\";", "names.host": "node1", "bytes": 0, "other": 7}),
        ];
        let rows: Vec<_> = rows.iter().map(|row| row.as_object().unwrap().clone()).collect();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.parquet");
        write(&columns, &rows, File::create(&path).unwrap()).unwrap();
        let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
        let read: Vec<Vec<Field>> = reader
            .get_row_iter(None)
            .unwrap()
            .map(|row| row.unwrap().get_column_iter().map(|(_, field)| field.clone()).collect())
            .collect();
        let text = |text: &str| Field::Str(text.to_owned());
        let first = [
            text("10.0.0.1"),
            Field::ULong(u64::MAX),
            Field::Null,
            Field::Bool(true),
            Field::Double(0.5),
        ];
        assert_eq!(read[0], first);
        assert_eq!(read[1][..3], [text("\u{1F980}\";"), Field::ULong(0), text("node1")]);
        assert_eq!(read[1][3..], [Field::Null, Field::Null]);
    }

    #[test]
    fn no_rows_make_a_file_of_the_same_columns() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("none.parquet");
        let columns = [("bytes".to_owned(), Kind::Number)];
        write(&columns, &[], File::create(&path).unwrap()).unwrap();
        let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
        assert_eq!(reader.metadata().file_metadata().num_rows(), 0);
        let schema = reader.metadata().file_metadata().schema().get_fields()[0].name().to_owned();
        assert_eq!(schema, "bytes");
    }
}
