//! The picture: rates above, one table below.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Paragraph, Row, Sparkline, Table};
use weir_serve::dto::GatewayStatus;
use weir_serve::live::Point;

use super::data::{Data, scaled};
use super::{Choice, View, chosen};

const KEYS: &str =
    "1-5 Tab: table   g: gateway   arrows: move   p: stand still   r: record   q: leave";

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, data: &Data, choice: &Choice) {
    let rows = [
        Constraint::Length(1),
        Constraint::Length(4),
        Constraint::Length(1),
        Constraint::Min(3),
        Constraint::Length(1),
    ];
    let [head, rates, tabs, body, foot] = Layout::vertical(rows).areas(frame.area());
    frame.render_widget(Paragraph::new(health(data, choice)), head);
    draw_rates(frame, rates, data, choice);
    frame.render_widget(Paragraph::new(views(choice)), tabs);
    draw_table(frame, body, data, choice);
    let done = if choice.said.is_empty() { KEYS } else { &choice.said };
    let said = data.problems.first().map_or(done, String::as_str);
    frame.render_widget(Paragraph::new(said).style(Style::new().fg(Color::DarkGray)), foot);
}

fn health(data: &Data, choice: &Choice) -> Line<'static> {
    let mut line = vec![Span::styled("weir top  ", Style::new().add_modifier(Modifier::BOLD))];
    for status in &data.statuses {
        if choice.gateway.as_ref().is_some_and(|name| *name != status.name) {
            continue;
        }
        let summary = GatewayStatus::up(status);
        let (word, color) = match summary.problems.first() {
            None => ("healthy", Color::Green),
            Some(problem) => (problem.as_str(), Color::Red),
        };
        line.push(Span::raw(format!("{} ", status.name)));
        line.push(Span::styled(format!("{word}  "), Style::new().fg(color)));
    }
    if choice.trace.is_some() {
        line.push(Span::styled("recording  ", Style::new().fg(Color::Red)));
    }
    if choice.is_paused {
        line.push(Span::styled("standing still", Style::new().fg(Color::Yellow)));
    }
    Line::from(line)
}

/// The newest point of each gateway, added up.
fn now(data: &Data, choice: &Choice) -> Point {
    let mut sum = Point::default();
    for status in &data.statuses {
        let Some(last) = chosen(&data.points, choice).filter(|it| it.gateway == status.name).last()
        else {
            continue;
        };
        sum.out_bits += last.out_bits;
        sum.in_bits += last.in_bits;
        sum.out_packets += last.out_packets;
        sum.in_packets += last.in_packets;
        sum.dropped += last.dropped;
        sum.queue_pairs += last.queue_pairs;
        sum.flows += last.flows;
        sum.peers += last.peers;
        sum.peers_up += last.peers_up;
    }
    sum
}

fn draw_rates(frame: &mut Frame<'_>, area: Rect, data: &Data, choice: &Choice) {
    let now = now(data, choice);
    let [text, out, into] =
        Layout::horizontal([Constraint::Length(42), Constraint::Fill(1), Constraint::Fill(1)])
            .areas(area);
    let lines = vec![
        Line::raw(format!(
            "from hosts  {:>8}b/s {:>8}/s",
            scaled(now.out_bits),
            scaled(now.out_packets)
        )),
        Line::raw(format!(
            "from wire   {:>8}b/s {:>8}/s",
            scaled(now.in_bits),
            scaled(now.in_packets)
        )),
        Line::raw(format!("dropped     {:>8}/s", scaled(now.dropped))),
        Line::raw(format!(
            "{} queue pairs, {} flows, {} of {} peers up",
            now.queue_pairs, now.flows, now.peers_up, now.peers
        )),
    ];
    frame.render_widget(Paragraph::new(lines), text);
    for (area, title, bits) in [
        (out, "from hosts", (|it| it.out_bits) as fn(&Point) -> f64),
        (into, "from wire", |it| it.in_bits),
    ] {
        let bars: Vec<u64> = chosen(&data.points, choice).map(|it| bits(it) as u64).collect();
        let room = usize::from(area.width).saturating_sub(1);
        let bars = &bars[bars.len().saturating_sub(room)..];
        let chart = Sparkline::default().block(Block::new().title(title)).data(bars);
        frame.render_widget(chart.style(Style::new().fg(Color::Cyan)), area);
    }
}

fn views(choice: &Choice) -> Line<'static> {
    let names = View::ALL.iter().enumerate().map(|(index, view)| {
        let style = if *view == choice.view {
            Style::new().add_modifier(Modifier::REVERSED)
        } else {
            Style::new()
        };
        Span::styled(format!(" {} {} ", index + 1, view.name()), style)
    });
    Line::from(names.collect::<Vec<_>>())
}

fn draw_table(frame: &mut Frame<'_>, area: Rect, data: &Data, choice: &Choice) {
    let table = data.table(choice);
    let widest = |column: usize| {
        let cells = table.rows.iter().filter_map(|row| row.get(column));
        let widest = cells.map(|it| it.chars().count()).max().unwrap_or(0);
        widest.max(table.names[column].chars().count()).min(48) as u16
    };
    let widths: Vec<_> = (0..table.names.len()).map(|it| Constraint::Length(widest(it))).collect();
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let head = Row::new(table.names.iter().map(|it| Cell::from(*it))).style(bold);
    let first = choice.first_row.min(table.rows.len().saturating_sub(1));
    if table.rows.is_empty() {
        frame.render_widget(Paragraph::new("nothing"), area);
        return;
    }
    let rows = table.rows.into_iter().skip(first).map(Row::new);
    frame.render_widget(Table::new(rows, widths).header(head).column_spacing(2), area);
}
