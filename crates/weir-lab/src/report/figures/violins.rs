//! Violins: how samples are distributed, where there are enough of them to say.

use plotters::prelude::*;

use super::{Chart, Drawn, ROW, WIDTH, colour, row_name, scalable};
use crate::report::analysis::{Analysis, Cell};
use crate::stats;

/// Fewer samples have no shape.
pub(super) const SAMPLES_MIN: usize = 20;
/// Points of an outline.
const POINTS: usize = 80;

pub(super) fn violins(analysis: &Analysis, cells: &[&Cell]) -> Drawn {
    let mut svg = String::new();
    let height = ROW * cells.len() as u32 + 80;
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        area.fill(&WHITE)?;
        let largest = cells.iter().flat_map(|it| it.pooled()).fold(1e-9, f64::max);
        let mut chart = ChartBuilder::on(&area)
            .margin(12)
            .x_label_area_size(46)
            .y_label_area_size(240)
            .build_cartesian_2d(0.0..largest * 1.05, cells.len() as f64..0.0)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .y_labels(0)
            .x_desc(format!("{} ({})", analysis.response.title, analysis.response.unit))
            .label_style(("sans-serif", 14))
            .draw()?;
        for (at, cell) in cells.iter().enumerate() {
            let middle = at as f64 + 0.5;
            draw(&mut chart, &cell.pooled(), middle, colour(at))?;
            row_name(&area, &chart, &cell.name, middle)?;
        }
        area.present()?;
    }
    Ok(scalable(&svg))
}

/// A kernel density (Gaussian, bandwidth by Silverman's rule), both sides of `middle`.
fn draw(
    chart: &mut Chart<'_, '_>,
    samples: &[f64],
    middle: f64,
    colour: RGBColor,
) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let Some(it) = stats::summary(samples) else { return Ok(()) };
    let spread = it.sd.unwrap_or(0.0).min((it.q3 - it.q1) / 1.34);
    let spread = if spread > 0.0 { spread } else { it.sd.unwrap_or(0.0) };
    // Equal samples are a line.
    let width = (0.9 * spread * (samples.len() as f64).powf(-0.2)).max(it.max.abs() * 1e-3);
    let (low, high) = ((it.min - 2.0 * width).max(0.0), it.max + 2.0 * width);
    let density =
        |at: f64| samples.iter().map(|it| (-0.5 * ((at - it) / width).powi(2)).exp()).sum::<f64>();
    let places: Vec<f64> =
        (0..=POINTS).map(|it| low + (high - low) * it as f64 / POINTS as f64).collect();
    let heights: Vec<f64> = places.iter().map(|it| density(*it)).collect();
    let tallest = heights.iter().copied().fold(1e-12, f64::max);
    let half = |at: usize| 0.38 * heights[at] / tallest;
    let above = (0..=POINTS).map(|at| (places[at], middle - half(at)));
    let below = (0..=POINTS).rev().map(|at| (places[at], middle + half(at)));
    let outline: Vec<(f64, f64)> = above.chain(below).collect();
    chart.draw_series([Polygon::new(outline.clone(), colour.mix(0.25).filled())])?;
    chart.draw_series([PathElement::new(outline, colour)])?;
    let line = vec![(it.median, middle - 0.2), (it.median, middle + 0.2)];
    chart.draw_series([PathElement::new(line, colour.stroke_width(3))])?;
    Ok(())
}
