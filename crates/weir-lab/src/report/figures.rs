//! Figures as SVG: boxes and violins of every combination, surfaces and maps, interactions, runs
//! over time.

mod bars;
mod surfaces;
mod violins;

use anyhow::{Result, anyhow};
use plotters::prelude::*;

pub(super) use bars::bars;

use self::surfaces::Grid;
use super::analysis::{Analysis, Cell, by_factor};
use super::document::Document;
use super::paper;
use crate::stats;
use crate::study::design::Surface;
use crate::study::record::Folder;

/// Width of every figure, in the units of its own drawing.
const WIDTH: u32 = 900;
/// Height of a box's row.
const ROW: u32 = 46;
/// Combinations drawn as violins, at most.
const VIOLINS_MAX: usize = 40;
/// Combinations drawn as boxes, at most: of more, the tables tell.
const BOXES_MAX: usize = 80;
/// Combinations drawn over time, at most: more are lines that nobody tells apart.
const LINES_MAX: usize = 12;
/// Colours that people with colour-blindness tell apart (Okabe and Ito 2008), and three more.
const COLOURS: [RGBColor; 10] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
    RGBColor(150, 150, 150),
    RGBColor(120, 80, 30),
    RGBColor(240, 228, 66),
];

/// Draws what the analysis has data for.
pub(super) fn draw(folder: &Folder, analysis: &Analysis, document: &mut Document) -> Result<()> {
    let response = &analysis.response;
    let cells: Vec<&Cell> = analysis.cells.iter().filter(|it| !it.runs.is_empty()).collect();
    if cells.is_empty() {
        return Ok(());
    }
    let published = paper::means(folder, analysis)?;
    if cells.len() <= BOXES_MAX {
        boxes_figure(analysis, &cells, &published, document)?;
    }
    if let Some(screen) = &folder.study.report.screen {
        let svg = boxes_by(analysis, screen).map_err(|error| anyhow!("a figure: {error}"))?;
        let caption = format!(
            "{} ({}) by {screen}, all other factors together.",
            response.title, response.unit
        );
        document.figure(&format!("{}-by-{screen}", response.name), svg, &caption);
    }
    let shaped: Vec<&Cell> =
        cells.iter().copied().filter(|it| it.pooled().len() >= violins::SAMPLES_MIN).collect();
    if !shaped.is_empty() && shaped.len() <= VIOLINS_MAX {
        let svg = violins::violins(analysis, &shaped);
        let svg = svg.map_err(|error| anyhow!("a figure: {error}"))?;
        let caption = format!(
            "{} ({}) by combination: how samples are distributed, and their median.",
            response.title, response.unit
        );
        document.figure(&format!("{}-violins", response.name), svg, &caption);
    }
    for pair in &folder.study.report.interactions {
        let svg = interaction(analysis, pair).map_err(|error| anyhow!("a figure: {error}"))?;
        let [across, by] = pair;
        let name = format!("{}-{across}-by-{by}", response.name);
        let caption = format!("{} by {across}, a line a level of {by}: means.", response.title);
        document.figure(&name, svg, &caption);
    }
    if let Some(surface) = &folder.study.report.surface {
        let Surface { across, up, each } = surface;
        for (level, _) in by_factor(analysis, each) {
            let grid = Grid::of(analysis, surface, &level);
            let what = format!("{} over {across} and {up}, {each} {level}", response.title);
            if grid.is_surface() {
                let svg = grid.surface(analysis).map_err(|it| anyhow!("a figure: {it}"))?;
                let name = format!("{}-surface-{level}", response.name);
                let caption = format!("{what}: means, as a surface; all surfaces have one scale.");
                document.figure(&name, svg, &caption);
            }
            let svg = grid.map().map_err(|it| anyhow!("a figure: {it}"))?;
            let name = format!("{}-map-{level}", response.name);
            document.figure(&name, svg, &format!("{what}: means, as a map."));
        }
    }
    let sampled: Vec<&&Cell> =
        cells.iter().filter(|it| it.samples.iter().any(|run| run.len() > 1)).collect();
    for (part, cells) in parts(folder, &sampled) {
        let svg = over_time(analysis, &cells).map_err(|error| anyhow!("a figure: {error}"))?;
        let of = if part.is_empty() { String::new() } else { format!(", {part}") };
        let caption = format!(
            "{} ({}) over time{of}: a line a run, a colour a combination.",
            response.title, response.unit
        );
        let name = if part.is_empty() { part } else { format!("-{part}") };
        document.figure(&format!("{}-over-time{name}", response.name), svg, &caption);
    }
    Ok(())
}

/// Boxes of a factor's levels, whatever the others were.
fn boxes_by(analysis: &Analysis, factor: &str) -> Drawn {
    let groups = by_factor(analysis, factor).into_iter();
    let cells: Vec<Cell> = groups
        .map(|(name, runs)| Cell {
            levels: [(factor.to_owned(), name.clone())].into(),
            name,
            runs,
            samples: Vec::new(),
        })
        .collect();
    boxes(analysis, &cells.iter().collect::<Vec<_>>(), &[])
}

fn boxes_figure(
    analysis: &Analysis,
    cells: &[&Cell],
    published: &[(String, f64)],
    document: &mut Document,
) -> Result<()> {
    let response = &analysis.response;
    let svg = boxes(analysis, cells, published).map_err(|error| anyhow!("a figure: {error}"))?;
    let marks = if published.is_empty() { "" } else { "; a diamond is the paper's own mean" };
    let caption = format!(
        "{} ({}) by combination: median, quartiles, whiskers to the last sample within 1.5 times \
         the quartiles' distance, means of runs as dots{marks}.",
        response.title, response.unit
    );
    document.figure(&format!("{}-boxes", response.name), svg, &caption);
    Ok(())
}

/// Combinations that are drawn together over time: all, or, where they are too many, those of each
/// level of the study's first factor.
fn parts<'a>(folder: &Folder, cells: &[&'a &'a Cell]) -> Vec<(String, Vec<&'a &'a Cell>)> {
    let mut parts: Vec<(String, Vec<&'a &'a Cell>)> = Vec::new();
    let first = folder.study.factor_names().first().map(|it| (*it).to_owned());
    for cell in cells.iter().copied() {
        let level = match &first {
            Some(factor) if cells.len() > LINES_MAX => cell.levels.get(factor).cloned(),
            _ => None,
        };
        let level = level.unwrap_or_default();
        match parts.iter_mut().find(|(known, _)| *known == level) {
            Some((_, part)) => part.push(cell),
            None => parts.push((level, vec![cell])),
        }
    }
    parts.retain(|(_, part)| part.len() <= LINES_MAX);
    parts
}

/// One factor's levels as lines over another's, means of runs: lines that are not parallel show an
/// interaction.
fn interaction(analysis: &Analysis, [across, by]: &[String; 2]) -> Drawn {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH / 2, 340)).into_drawing_area();
        area.fill(&WHITE)?;
        let places: Vec<String> = by_factor(analysis, across).into_iter().map(|it| it.0).collect();
        let lines: Vec<String> = by_factor(analysis, by).into_iter().map(|it| it.0).collect();
        let mean = |place: &String, line: &String| -> Option<f64> {
            let cells = analysis.cells.iter().filter(|cell| {
                cell.levels.get(across) == Some(place) && cell.levels.get(by) == Some(line)
            });
            let runs: Vec<f64> = cells.flat_map(|cell| cell.runs.clone()).collect();
            (!runs.is_empty()).then(|| stats::mean(&runs))
        };
        let all = places.iter().flat_map(|place| lines.iter().filter_map(|it| mean(place, it)));
        let largest = all.fold(1e-9, f64::max);
        let (last, count) = (places.len().saturating_sub(1) as f64, lines.len() as f64);
        let mut chart = ChartBuilder::on(&area)
            .margin(12)
            .x_label_area_size(46)
            .y_label_area_size(60)
            // Room for the legend above the lines.
            .build_cartesian_2d(-0.3..last + 0.3, 0.0..largest * (1.1 + 0.09 * count))?;
        let name = |at: &f64| {
            let nearest = at.round();
            let exact = (at - nearest).abs() < 0.01 && nearest >= 0.0;
            if exact {
                places.get(nearest as usize).cloned().unwrap_or_default()
            } else {
                String::new()
            }
        };
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(places.len().max(2) * 10)
            .x_label_formatter(&name)
            .x_desc(across.clone())
            .y_desc(format!("{} ({})", analysis.response.title, analysis.response.unit))
            .label_style(("sans-serif", 13))
            .draw()?;
        for (at, line) in lines.iter().enumerate() {
            let colour = colour(at);
            let points = places.iter().enumerate();
            let points: Vec<(f64, f64)> =
                points.filter_map(|(x, place)| Some((x as f64, mean(place, line)?))).collect();
            chart
                .draw_series(LineSeries::new(points.clone(), colour.stroke_width(2)).point_size(4))?
                .label(line.clone())
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour));
        }
        chart
            .configure_series_labels()
            .background_style(WHITE.mix(0.85))
            .label_font(("sans-serif", 12))
            .position(SeriesLabelPosition::UpperRight)
            .draw()?;
        area.present()?;
    }
    Ok(scalable(&svg))
}

type Drawn = std::result::Result<String, Box<dyn std::error::Error>>;

fn colour(at: usize) -> RGBColor {
    COLOURS[at % COLOURS.len()]
}

fn boxes(analysis: &Analysis, cells: &[&Cell], published: &[(String, f64)]) -> Drawn {
    let mut svg = String::new();
    let height = ROW * cells.len() as u32 + 80;
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        area.fill(&WHITE)?;
        let largest = cells.iter().flat_map(|it| it.pooled()).fold(0.0, f64::max);
        let largest = published.iter().map(|it| it.1).fold(largest, f64::max).max(1e-9);
        let rows = cells.len() as f64;
        let mut chart = ChartBuilder::on(&area)
            .margin(12)
            .x_label_area_size(46)
            .y_label_area_size(240)
            .build_cartesian_2d(0.0..largest * 1.05, rows..0.0)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .y_labels(0)
            .x_desc(format!("{} ({})", analysis.response.title, analysis.response.unit))
            .label_style(("sans-serif", 14))
            .draw()?;
        for (at, cell) in cells.iter().enumerate() {
            let middle = at as f64 + 0.5;
            draw_box(&mut chart, cell, middle, colour(at))?;
            row_name(&area, &chart, &cell.name, middle)?;
            for (_, mean) in published.iter().filter(|(name, _)| *name == cell.name) {
                let (x, y) = chart.backend_coord(&(*mean, middle));
                let diamond = [(x, y - 8), (x + 8, y), (x, y + 8), (x - 8, y)];
                area.draw(&Polygon::new(diamond.to_vec(), BLACK.filled()))?;
            }
        }
        area.present()?;
    }
    Ok(scalable(&svg))
}

type Chart<'a, 'b> = ChartContext<
    'a,
    SVGBackend<'b>,
    Cartesian2d<plotters::coord::types::RangedCoordf64, plotters::coord::types::RangedCoordf64>,
>;

/// A row's name, left of its axis.
fn row_name(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    chart: &Chart<'_, '_>,
    name: &str,
    middle: f64,
) -> std::result::Result<(), Box<dyn std::error::Error>> {
    use plotters::style::text_anchor::{HPos, Pos, VPos};
    let place = chart.backend_coord(&(0.0, middle));
    // Long ones would run out of the page.
    let size = if name.len() > 34 { 10 } else { 14 };
    let style = TextStyle::from(("sans-serif", size)).pos(Pos::new(HPos::Right, VPos::Center));
    area.draw(&Text::new(name.to_owned(), (place.0 - 8, place.1), style))?;
    Ok(())
}

fn draw_box(
    chart: &mut Chart<'_, '_>,
    cell: &Cell,
    middle: f64,
    colour: RGBColor,
) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let samples = cell.pooled();
    let Some(it) = stats::summary(&samples) else { return Ok(()) };
    let reach = 1.5 * (it.q3 - it.q1);
    let inside = |at: &&f64| **at >= it.q1 - reach && **at <= it.q3 + reach;
    let low = samples.iter().filter(inside).copied().fold(it.q1, f64::min);
    let high = samples.iter().filter(inside).copied().fold(it.q3, f64::max);
    let (above, below) = (middle - 0.28, middle + 0.28);
    let line = |from: (f64, f64), to: (f64, f64)| PathElement::new(vec![from, to], colour);
    let corners = [(it.q1, above), (it.q3, below)];
    chart.draw_series([Rectangle::new(corners, colour.mix(0.18).filled())])?;
    chart.draw_series([Rectangle::new(corners, colour)])?;
    chart.draw_series([
        line((low, middle), (it.q1, middle)),
        line((it.q3, middle), (high, middle)),
        line((low, middle - 0.12), (low, middle + 0.12)),
        line((high, middle - 0.12), (high, middle + 0.12)),
    ])?;
    let median = vec![(it.median, above), (it.median, below)];
    chart.draw_series([PathElement::new(median, colour.stroke_width(3))])?;
    let outside = samples.iter().filter(|at| !inside(at));
    let outside: Vec<f64> = outside.copied().collect();
    chart.draw_series(outside.iter().map(|at| Circle::new((*at, middle), 2, colour.mix(0.6))))?;
    let runs = cell.runs.iter().map(|run| Circle::new((*run, middle), 4, colour.filled()));
    chart.draw_series(runs)?;
    Ok(())
}

fn over_time(analysis: &Analysis, cells: &[&&Cell]) -> Drawn {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, 420)).into_drawing_area();
        area.fill(&WHITE)?;
        let all = || cells.iter().flat_map(|it| &it.samples);
        let longest = all().map(Vec::len).max().unwrap_or(1) as f64;
        let largest = all().flatten().copied().fold(1e-9, f64::max);
        let mut chart = ChartBuilder::on(&area)
            .margin(12)
            .x_label_area_size(46)
            .y_label_area_size(60)
            .build_cartesian_2d(1.0..longest.max(2.0), 0.0..largest * 1.05)?;
        chart
            .configure_mesh()
            .x_desc("Second (after those that are dropped)")
            .y_desc(format!("{} ({})", analysis.response.title, analysis.response.unit))
            .label_style(("sans-serif", 14))
            .draw()?;
        for (at, cell) in cells.iter().enumerate() {
            let colour = colour(at);
            for (nth, run) in cell.samples.iter().enumerate() {
                let points = run.iter().enumerate().map(|(at, it)| ((at + 1) as f64, *it));
                let drawn = chart.draw_series(LineSeries::new(points, colour.mix(0.8)))?;
                if nth == 0 {
                    drawn.label(cell.name.clone()).legend(move |(x, y)| {
                        PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(3))
                    });
                }
            }
        }
        chart
            .configure_series_labels()
            .background_style(WHITE.mix(0.85))
            .border_style(BLACK.mix(0.3))
            .label_font(("sans-serif", 13))
            .position(SeriesLabelPosition::UpperRight)
            .draw()?;
        area.present()?;
    }
    Ok(scalable(&svg))
}

/// A drawing that grows and shrinks with its page, without the declaration that HTML forbids.
fn scalable(svg: &str) -> String {
    svg.find("<svg").map_or(svg, |at| &svg[at..]).trim().to_owned()
}
