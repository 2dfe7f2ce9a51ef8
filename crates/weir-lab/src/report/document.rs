//! A report as a list of blocks, and its two forms: one self-contained HTML file, and Markdown.

use std::fmt::Write;

use base64ct::{Base64, Encoding};

/// A report.
#[derive(Debug)]
pub(crate) struct Document {
    title: String,
    blocks: Vec<Block>,
}

/// A part of a report.
#[derive(Debug)]
enum Block {
    /// What must not be overlooked.
    Banner(String),
    Heading(String),
    Paragraph(String),
    List(Vec<String>),
    Table {
        head: Vec<String>,
        rows: Vec<Vec<String>>,
        caption: String,
    },
    Figure {
        name: String,
        svg: String,
        caption: String,
    },
    /// Files that the report carries along.
    Files(Vec<(String, String)>),
}

const STYLE: &str = "\
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;
color:#1b1f24}
h1{font-size:1.7rem;line-height:1.25}
h2{font-size:1.25rem;margin-top:2.2rem;border-bottom:1px solid #d0d7de}
.banner{border:3px solid #b35900;background:#fff4e5;font-size:1.4rem;font-weight:700;
padding:.7rem 1rem;margin:1rem 0}
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:.9rem;margin:.5rem 0}
caption,figcaption{text-align:left;color:#57606a;font-size:.9rem;padding:.3rem 0}
th,td{border:1px solid #d0d7de;padding:.25rem .55rem;text-align:left;vertical-align:top}
th{background:#f6f8fa}td.number{text-align:right;font-variant-numeric:tabular-nums}
figure{margin:1rem 0}figure svg{max-width:100%;height:auto}code{overflow-wrap:anywhere}
@media print{body{max-width:none;margin:0;font-size:11pt}.wide{overflow:visible}
th,td{overflow-wrap:anywhere}h2,caption{break-after:avoid}
figure,tr,.banner{break-inside:avoid}table{font-size:8pt}
thead{display:table-header-group}th,td{padding:.12rem .3rem}.banner{font-size:14pt}
@page{margin:15mm}}";

impl Document {
    pub(crate) fn new(title: &str) -> Self {
        Self { title: title.to_owned(), blocks: Vec::new() }
    }

    pub(crate) fn banner(&mut self, text: impl Into<String>) {
        self.blocks.push(Block::Banner(text.into()));
    }

    pub(crate) fn heading(&mut self, text: impl Into<String>) {
        self.blocks.push(Block::Heading(text.into()));
    }

    pub(crate) fn paragraph(&mut self, text: impl Into<String>) {
        self.blocks.push(Block::Paragraph(text.into()));
    }

    pub(crate) fn list(&mut self, items: Vec<String>) {
        self.blocks.push(Block::List(items));
    }

    pub(crate) fn table(&mut self, head: &[&str], rows: Vec<Vec<String>>, caption: &str) {
        let head = head.iter().map(|it| (*it).to_owned()).collect();
        self.blocks.push(Block::Table { head, rows, caption: caption.to_owned() });
    }

    pub(crate) fn figure(&mut self, name: &str, svg: String, caption: &str) {
        let (name, caption) = (name.to_owned(), caption.to_owned());
        self.blocks.push(Block::Figure { name, svg, caption });
    }

    /// Files by name, whole: to be saved from the report.
    pub(crate) fn files(&mut self, files: Vec<(String, String)>) {
        self.blocks.push(Block::Files(files));
    }

    /// Figures by name.
    pub(crate) fn figures(&self) -> impl Iterator<Item = (&str, &str)> {
        self.blocks.iter().filter_map(|block| match block {
            Block::Figure { name, svg, .. } => Some((name.as_str(), svg.as_str())),
            _ => None,
        })
    }

    /// One file that asks nothing of any server.
    pub(crate) fn html(&self) -> String {
        let title = escaped(&self.title);
        let mut html = format!(
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{title}</title>\n<style>{STYLE}</style></head>\n<body>\n<h1>{title}</h1>\n"
        );
        for block in &self.blocks {
            block.html(&mut html);
        }
        html + "</body></html>\n"
    }

    /// The same for text tools and version control.
    pub(crate) fn markdown(&self) -> String {
        let mut text = format!("# {}\n", plain(&self.title));
        for block in &self.blocks {
            text.push('\n');
            block.markdown(&mut text);
        }
        text
    }
}

impl Block {
    // Writing to a string cannot fail.
    fn html(&self, html: &mut String) {
        let _ = match self {
            Block::Banner(text) => {
                writeln!(html, "<div class=\"banner\" role=\"note\">{}</div>", escaped(text))
            }
            Block::Heading(text) => writeln!(html, "<h2>{}</h2>", escaped(text)),
            Block::Paragraph(text) => writeln!(html, "<p>{}</p>", escaped(text)),
            Block::List(items) => {
                let items: Vec<String> =
                    items.iter().map(|it| format!("<li>{}</li>", escaped(it))).collect();
                writeln!(html, "<ul>{}</ul>", items.join("\n"))
            }
            Block::Table { head, rows, caption } => {
                let head: Vec<String> = head
                    .iter()
                    .map(|it| format!("<th scope=\"col\">{}</th>", escaped(it)))
                    .collect();
                let rows: Vec<String> = rows.iter().map(|row| html_row(row)).collect();
                writeln!(
                    html,
                    "<div class=\"wide\"><table><caption>{}</caption><thead><tr>{}</tr></thead>\n\
                     <tbody>{}</tbody></table></div>",
                    escaped(caption),
                    head.concat(),
                    rows.join("\n"),
                )
            }
            Block::Figure { svg, caption, name } => writeln!(
                html,
                "<figure id=\"{name}\" aria-label=\"{0}\">{svg}<figcaption>{0}</figcaption>\
                 </figure>",
                escaped(caption)
            ),
            Block::Files(files) => {
                let one = |(name, text): &(String, String)| {
                    format!(
                        "<li><a download=\"{0}\" href=\"data:text/plain;base64,{1}\">{0}</a></li>",
                        escaped(name),
                        Base64::encode_string(text.as_bytes())
                    )
                };
                writeln!(html, "<ul>{}</ul>", files.iter().map(one).collect::<String>())
            }
        };
    }

    fn markdown(&self, text: &mut String) {
        let _ = match self {
            Block::Banner(words) => writeln!(text, "> **{}**", plain(words).to_uppercase()),
            Block::Heading(words) => writeln!(text, "## {}", plain(words)),
            Block::Paragraph(words) => writeln!(text, "{}", plain(words)),
            Block::List(items) => {
                items.iter().try_for_each(|item| writeln!(text, "- {}", plain(item)))
            }
            Block::Table { head, rows, caption } => {
                let line = |cells: &[String]| {
                    let cells: Vec<String> = cells.iter().map(|it| plain(it)).collect();
                    format!("| {} |\n", cells.join(" | "))
                };
                let rule = format!("|{}\n", "---|".repeat(head.len()));
                let rows: String = rows.iter().map(|row| line(row)).collect();
                write!(text, "{}\n\n{}{rule}{rows}", plain(caption), line(head))
            }
            Block::Figure { name, caption, .. } => {
                writeln!(text, "![{0}](figures/{name}.svg)\n\n{0}", plain(caption))
            }
            Block::Files(files) => files.iter().try_for_each(|(name, _)| {
                let name = plain(name);
                writeln!(text, "- [{name}]({name})")
            }),
        };
    }
}

fn html_row(cells: &[String]) -> String {
    let cells: Vec<String> = cells
        .iter()
        .map(|cell| {
            let first = cell.chars().next().unwrap_or('-');
            let is_number = first.is_ascii_digit() || (first == '-' && cell.len() > 1);
            let class = if is_number { " class=\"number\"" } else { "" };
            format!("<td{class}>{}</td>", escaped(cell))
        })
        .collect();
    format!("<tr>{}</tr>", cells.concat())
}

pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}

/// Text that Markdown takes as text.
fn plain(text: &str) -> String {
    let mut safe = String::new();
    for sign in text.chars() {
        match sign {
            '\\' | '`' | '*' | '_' | '|' | '<' | '>' | '[' | ']' | '#' => safe.extend(['\\', sign]),
            '\n' => safe.push(' '),
            _ => safe.push(sign),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_stays_text() {
        let mut document = Document::new("<script>alert(1)</script>");
        document.table(&["a|b"], vec![vec!["<img src=x>|`x`".to_owned()]], "\"quoted\"");
        document.paragraph("<https://example.org>");
        let html = document.html();
        assert!(!html.contains("<script") && !html.contains("<img"), "{html}");
        assert!(html.contains("&lt;script&gt;") && html.contains("&quot;quoted&quot;"));
        let markdown = document.markdown();
        assert!(markdown.contains("a\\|b") && markdown.contains("\\<img src=x\\>\\|\\`x\\`"));
        let rows = markdown.lines().filter(|line| line.starts_with('|'));
        assert!(rows.into_iter().all(|row| row.replace("\\|", "").matches('|').count() == 2));
    }
}
